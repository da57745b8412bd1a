"""bench.py: the time of the driver's cuMemAlloc_v2 below native frames and ten Python functions.

Options and output are those of the program bench; --depth counts all native frames, the interpreter's included.
"""
import argparse
import ctypes
import json
import os
import sys


class Run(ctypes.Structure):
    _fields_ = [("calls", ctypes.c_long), ("batch", ctypes.c_int), ("depth", ctypes.c_int), ("ns", ctypes.c_double)]


lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libbench.so"))
lib.bench_at_depth.argtypes = [ctypes.c_int, ctypes.POINTER(Run)]


def python_10(depth, run):
    return lib.bench_at_depth(depth, ctypes.byref(run))


def python_9(depth, run):
    return python_10(depth, run)


def python_8(depth, run):
    return python_9(depth, run)


def python_7(depth, run):
    return python_8(depth, run)


def python_6(depth, run):
    return python_7(depth, run)


def python_5(depth, run):
    return python_6(depth, run)


def python_4(depth, run):
    return python_5(depth, run)


def python_3(depth, run):
    return python_4(depth, run)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=34)
    parser.add_argument("--calls", type=int, default=200000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("--wait", action="store_true")
    options = parser.parse_args()
    for _ in range(options.repeats):
        if options.wait:
            print("ready", flush=True)
            if not sys.stdin.readline():
                break
        run = Run(options.calls, options.batch)
        if python_3(options.depth, run):
            sys.exit("bench.py: --depth %d: this interpreter has more native frames than that" % options.depth)
        result = {"depth": run.depth, "python": 10, "calls": run.calls, "batch": bool(run.batch), "ns": round(run.ns / run.calls, 1)}
        print(json.dumps(result), flush=True)


main()  # with the module itself: ten Python frames
