"""A training loop on the CUDA driver, by way of every kind of call that Python has.

Version v2 holds more than v1: FeatureCache.remember keeps activations of every step, up to --cache of them.

With the environment variable FAKEGPU_TRACEBACKS every allocation appends one JSON line to the file that it names: the
Python stack at the call, innermost first, each frame as [qualified name (from 3.11 on; before, the bare name), file,
line], with the size, the function, the process and the thread.
"""
import argparse
import ctypes
import functools
import json
import os
import sys
import threading
import time

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
tracebacks = os.environ.get("FAKEGPU_TRACEBACKS")
tracebacks = os.open(tracebacks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if tracebacks else None


def note(function, size):
    """Writes the caller's stack and gives the size back, so that it can stand in the very line of the driver call."""
    if tracebacks is None:
        return size
    frames = []
    frame = sys._getframe(1)
    while frame:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    line = {"pid": os.getpid(), "tid": threading.get_native_id(), "function": function, "size": size, "frames": frames}
    os.write(tracebacks, (json.dumps(line) + "\n").encode())
    return size


class OutOfMemory(MemoryError):
    pass


class Driver:
    """The driver, with device 0's primary context."""

    def __init__(self, path):
        lib = ctypes.CDLL(path)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
        for name, arguments in {
            "cuInit": [number],
            "cuDevicePrimaryCtxRetain": [pointer, ctypes.c_int],
            "cuCtxSetCurrent": [pointer],
            "cuMemAlloc_v2": [pointer, size],
            "cuMemAllocManaged": [pointer, size, number],
            "cuMemAllocAsync": [pointer, size, pointer],
            "cuMemFree_v2": [ctypes.c_uint64],
            "cuMemFreeAsync": [ctypes.c_uint64, pointer],
            "cuMemHostAlloc": [pointer, size, number],
            "cuMemFreeHost": [pointer],
        }.items():
            getattr(lib, name).argtypes = arguments
        self.lib = lib
        self.context = pointer()
        check(lib.cuInit(0))
        check(lib.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0))
        self.enter()

    def enter(self):
        """Makes the context the calling thread's."""
        check(self.lib.cuCtxSetCurrent(self.context))


def check(result):
    if result == 2:
        raise OutOfMemory("the device is full")
    if result:
        raise RuntimeError("CUDA error %d" % result)


class Memory:
    """Memory that is freed when the last reference to it is gone."""

    def __init__(self, pointer, free):
        self.pointer, self.free = pointer, free

    def __del__(self):
        self.free(self.pointer)


def device(size):
    p = ctypes.c_uint64()
    check(driver.lib.cuMemAlloc_v2(ctypes.byref(p), note("cuMemAlloc_v2", size)))
    return Memory(p.value, driver.lib.cuMemFree_v2)


def managed(size):
    p = ctypes.c_uint64()
    check(driver.lib.cuMemAllocManaged(ctypes.byref(p), note("cuMemAllocManaged", size), 1))
    return Memory(p.value, driver.lib.cuMemFree_v2)


def scratch(size):
    p = ctypes.c_uint64()
    check(driver.lib.cuMemAllocAsync(ctypes.byref(p), note("cuMemAllocAsync", size), None))
    return Memory(p.value, lambda pointer: driver.lib.cuMemFreeAsync(pointer, None))


def pinned(size):
    p = ctypes.c_void_p()
    check(driver.lib.cuMemHostAlloc(ctypes.byref(p), note("cuMemHostAlloc", size), 0))
    return Memory(p.value, driver.lib.cuMemFreeHost)


# An extension that calls back into Python: C, Python, C.
extension = ctypes.CDLL(os.path.join(HERE, "libcallback.so"))
Callback = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)
extension.call_back.argtypes = [Callback, ctypes.c_long]


def gather(size):
    got = []

    @Callback
    def from_c(n):
        got.append(scratch(n))
        return 0

    extension.call_back(from_c, size)
    return got


# Code that no file holds, as a compiler of kernels makes it.
generated = {"scratch": scratch, "MIB": MIB}
exec(compile("def fused_kernel(n):\n\n    return [\n        scratch(n * MIB)\n    ]\n", "<generated>", "exec"), generated)


def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            wrapper.spent += time.perf_counter() - start

    wrapper.spent = 0.0
    return wrapper


class Layer:
    def __init__(self, index):
        self.index = index
        self.weight, self.bias = (device(n) for n in ((8 + index) * MIB, 64 << 10))

    def __call__(self, x):
        return x + [self.forward(
            len(x),

            rows=16,
        )]

    def forward(self, depth, rows):
        return device(rows * (self.index + 1) * MIB // 8)


class Attention(Layer):
    heads = 4

    def forward(self, depth, rows):
        by_size = sorted(range(self.heads), key=self.workspace)
        kept = super().forward(depth, rows)
        return kept, by_size

    def workspace(self, head):
        got = scratch((head + 1) * MIB)
        return -head * len(str(got.pointer))


def größe_anpassen(größe):
    return scratch(größe + (größe and 512))


def tree(depth):
    """A recursion with two kinds of caller."""
    if depth == 0:
        return [device(96 << 10)]
    return tree(depth - 1) + [m for d in (depth,) for m in tree(depth - 1)[:d]]


class Model:
    def __init__(self, layers):
        self.layers = [Attention(i) if i % 2 else Layer(i) for i in range(layers)]

    def forward(self, x):
        return functools.reduce(lambda seen, layer: layer(seen), self.layers, x)


class FeatureCache:
    """What version v2 adds: it never lets go of anything until it is full."""

    def __init__(self, most):
        self.entries, self.most = [], most

    def remember(self, step):
        if len(self.entries) < self.most:
            self.entries.append(device(12 * MIB + step % 3 * MIB))


class Optimizer:
    def __init__(self, model):
        self.model = model
        self.state = {}

    @timed
    def step(self):
        for layer in self.model.layers:
            self.state.setdefault(layer.index, None)
            if self.state[layer.index] is None:
                self.state[layer.index] = {k: make() for k, make in self.moments(layer).items()}

    def moments(self, layer):
        n = (8 + layer.index) * MIB
        return {"first": lambda: device(n), "second": lambda: managed(n)}


class Backward(threading.Thread):
    """Gradients come from threads of their own, whose stacks do not begin in the training loop."""

    def __init__(self, layers):
        super().__init__(name="backward")
        self.layers, self.gradients = layers, []

    def run(self):
        driver.enter()
        for layer in self.layers:
            self.gradients.append(self.gradient(layer))

    @staticmethod
    def gradient(layer):
        return device((8 + layer.index) * MIB)


def batches():
    while True:
        yield pinned(3 * MIB)


class Prefetch:
    def __enter__(self):
        self.buffer = pinned(1 * MIB)
        return self

    def __exit__(self, *_):
        self.buffer = None


async def download(n):
    return await unpack(n)


async def unpack(n):
    return scratch(n * MIB)


def run(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value


class Trainer:
    def __init__(self, options):
        self.model = Model(options.layers)
        self.optimizer = Optimizer(self.model)
        self.cache = FeatureCache(options.cache if options.version == "v2" else 0)
        self.batches = batches()
        self.threads = options.threads

    def step(self, number):
        with Prefetch():
            batch = next(self.batches)
            activations = self.model.forward([])
            workspace = [gather(2 * MIB), generated["fused_kernel"](3), größe_anpassen(5 * MIB), run(download(4)), tree(3)]
            halves = [Backward(self.model.layers[i::self.threads]) for i in range(self.threads)]
            for half in halves:
                half.start()
            for half in halves:
                half.join()
            self.optimizer.step()
            self.cache.remember(number)
        return len(activations) + len(workspace) + (batch is not None)


def wait(what):
    print(what, flush=True)
    if not sys.stdin.readline():
        while True:  # standard input is closed: only a signal ends this
            time.sleep(3600)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="steps; 0: until a signal ends it (3)")
    parser.add_argument("--sleep", type=float, default=0, help="seconds between steps (0)")
    parser.add_argument("--version", choices=["v1", "v2"], default="v1")
    parser.add_argument("--cache", type=int, default=256, help="activations that v2 keeps at most (256)")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2, help="threads of the backward pass (2)")
    parser.add_argument("--wait", action="store_true", help='print "start" and wait for a line before the first step')
    parser.add_argument("--hold", action="store_true", help='print "hold" and wait for a line at the end')
    parser.add_argument("--driver", default="libcuda.so.1", help="the driver's library (libcuda.so.1)")
    options = parser.parse_args()

    global driver
    driver = Driver(options.driver)
    trainer = Trainer(options)
    if options.wait:
        wait("start")
    number = 0
    while options.steps == 0 or number < options.steps:
        try:
            trainer.step(number)
        except OutOfMemory as e:
            print("step %d: %s" % (number, e), file=sys.stderr, flush=True)
        number += 1
        time.sleep(options.sleep)
    if options.hold:
        wait("hold")


if __name__ == "__main__":
    main()
