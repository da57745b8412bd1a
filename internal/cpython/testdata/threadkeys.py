"""Fails unless the values of 80 pthread keys are where its argument and the rule say, and the C library agrees."""
import ctypes, sys, threading

keys = int(sys.argv[1])
libc = ctypes.CDLL(None)
bits, elements, offset = (ctypes.c_uint32 * 3).in_dll(libc, "_thread_db_pthread_specific")
assert (bits, elements, offset) == (32 * 64, 1, keys + 32 * 16), (bits, elements, offset)


def peek(address):
    return ctypes.c_uint64.from_address(address).value


key = ctypes.c_uint()
for n in range(80):
    assert libc.pthread_key_create(ctypes.byref(key), None) == 0
    assert libc.pthread_setspecific(key, ctypes.c_void_p(0x1000 + n)) == 0
    block = threading.get_ident() + keys
    if key.value >= 32:
        block = peek(block + 32 * 16 + key.value // 32 * 8)
    assert peek(block + key.value % 32 * 16 + 8) == 0x1000 + n, key.value
assert key.value >= 64
