"""Stops itself twice, after telling what every thread's stack is: once while all other threads have released the
interpreter lock, once while the main thread holds it. One JSON line before each stop."""
import ctypes, json, os, signal, sys, threading, time

libc = ctypes.PyDLL(None)  # calls with the lock held
wake = os.pipe()
park = os.pipe()


def describe(frame):
    frames = []
    while frame:
        code = frame.f_code
        frames.append({
            "code": id(code), "filename": code.co_filename, "name": code.co_name,
            "qualname": getattr(code, "co_qualname", code.co_name), "firstline": code.co_firstlineno,
            "linetable": code.co_linetable.hex(), "lasti": frame.f_lasti,
        })
        frame = frame.f_back
    return frames


def tell(threads):
    print(json.dumps({"threads": [{"ident": ident, "frames": describe(f)} for ident, f in threads.items()]}), flush=True)


def wait(read, fd):
    read(fd, 1)  # the lock is released in here


def watch(idents):
    while True:
        frames = sys._current_frames()
        if all(i in frames and frames[i].f_code is wait.__code__ and frames[i].f_lasti > 0
               and frames[i].f_lineno == wait.__code__.co_firstlineno + 1 for i in idents):
            break
        del frames
        time.sleep(0.001)
    tell({i: frames[i] for i in idents})
    os.kill(os.getpid(), signal.SIGSTOP)
    os.write(wake[1], b"x")


def leaf(*_):
    worker = threading.Thread(target=wait, args=(os.read, park[0]))
    worker.start()
    watcher = threading.Thread(target=watch, args=([threading.get_ident(), worker.ident],))
    watcher.start()
    wait(os.read, wake[0])
    watcher.join()
    tell({threading.get_ident(): sys._getframe()})
    libc["raise"](signal.SIGSTOP)
    os.write(park[1], b"x")
    worker.join()
    return 0


# A file name that is no UTF-8, from which Python makes a lone surrogate; wide characters; Latin-1 only.
scope = {"leaf": leaf}
exec(compile("def café():\n\n    return leaf()\n", "naïve\udcff.py", "exec"), scope)


def 𐎀lpha(a):
    return max([1], key=lambda _: scope["café"]())


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def compare(a, b):
    for value in (𐎀lpha(x) for x in [1]):
        return 0


class Größe:
    def 方法(self):
        numbers = (ctypes.c_int * 2)(1, 2)
        return [libc.qsort(numbers, 2, 4, compare) for _ in range(1)]


class Callable:
    def __call__(self):
        return Größe().方法()


Callable()()
