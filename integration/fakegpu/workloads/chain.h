/* One allocation on its way down the chain. */
#pragma once
enum { KIND_DEVICE, KIND_PITCH, KIND_MANAGED, KIND_ASYNC, KIND_PINNED, KIND_VMM, KIND_ARRAY, KINDS };
struct request { int kind, result; unsigned long size; unsigned long long pointer; };

/* A function that keeps a frame of its own: never inlined, never a tail call, the frame in use until the end. */
#define FRAME __attribute__((noinline, noclone))
#define LEVEL(name, below, bytes) \
	FRAME long name(struct request *r) \
	{ \
		volatile char frame[bytes]; \
		frame[0] = (char)r->size; \
		long n = below(r); \
		return n + frame[0]; \
	}
