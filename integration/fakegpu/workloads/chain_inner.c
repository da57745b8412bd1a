/* The inner half of the chain: frames of all sizes and kinds, with the driver below. */
#define _GNU_SOURCE
#include "chain.h"
#include "cuda.h"
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int stacks = -1;

__attribute__((constructor)) static void open_stacks(void)
{
	const char *path = getenv("FAKEGPU_TRACEBACKS");
	void *pc[1];

	if (!path || !*path)
		return;
	stacks = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
	if (stacks < 0) {
		perror(path);
		exit(1);
	}
	backtrace(pc, 1); /* loads the unwinder now rather than in the first allocation */
}

/* Notes the stack as glibc sees it, from the caller outwards. */
static FRAME void note_stack(const struct request *r)
{
	static __thread char text[1 << 16];
	void *pc[256];
	int n = backtrace(pc, 256);
	size_t used = snprintf(text, sizeof(text), "{\"pid\":%d,\"tid\":%ld,\"size\":%lu,\"frames\":[", getpid(), syscall(SYS_gettid), r->size);

	for (int i = 1; i < n && used < sizeof(text) - 1024; i++) {
		Dl_info at = {0};
		dladdr(pc[i], &at);
		const char *slash = at.dli_fname ? strrchr(at.dli_fname, '/') : 0;
		used += snprintf(text + used, sizeof(text) - used, "%s{\"object\":\"%.200s\",\"offset\":%lu,\"name\":\"%.500s\"}", i > 1 ? "," : "",
				 slash ? slash + 1 : at.dli_fname ? at.dli_fname : "", (char *)pc[i] - (char *)at.dli_fbase, at.dli_sname ? at.dli_sname : "");
	}
	used += snprintf(text + used, sizeof(text) - used, "]}\n");
	if (write(stacks, text, used) != (ssize_t)used) {
		perror("write FAKEGPU_TRACEBACKS");
		exit(1);
	}
}

FRAME long inner_call_driver(struct request *r)
{
	volatile char frame[24];
	size_t pitch;
	CUmemAllocationProp on_device = { .type = 1, .location = { 1, 0 } };
	CUDA_ARRAY_DESCRIPTOR floats = { r->size / 16, 4, 0x20, 1 };

	frame[0] = 1;
	if (stacks >= 0)
		note_stack(r);
	switch (r->kind) {
	case KIND_DEVICE: r->result = cuMemAlloc_v2(&r->pointer, r->size); break;
	case KIND_PITCH: r->result = cuMemAllocPitch_v2(&r->pointer, &pitch, r->size / 64, 64, 4); break;
	case KIND_MANAGED: r->result = cuMemAllocManaged(&r->pointer, r->size, 1); break;
	case KIND_ASYNC: r->result = cuMemAllocAsync(&r->pointer, r->size, 0); break;
	case KIND_PINNED: r->result = cuMemHostAlloc((void **)&r->pointer, r->size, 0); break;
	case KIND_VMM: r->result = cuMemCreate(&r->pointer, (r->size + (2 << 20) - 1) & -(2ul << 20), &on_device, 0); break;
	case KIND_ARRAY: r->result = cuArrayCreate_v2((CUarray *)&r->pointer, &floats); break;
	}
	return r->result + frame[0];
}

int chain_free(struct request *r)
{
	switch (r->kind) {
	case KIND_ASYNC: return cuMemFreeAsync(r->pointer, 0);
	case KIND_PINNED: return cuMemFreeHost((void *)r->pointer);
	case KIND_VMM: return cuMemRelease(r->pointer);
	case KIND_ARRAY: return cuArrayDestroy((CUarray)r->pointer);
	}
	return cuMemFree_v2(r->pointer);
}

LEVEL(inner_1, inner_call_driver, 8)
LEVEL(inner_2, inner_1, 40)
LEVEL(inner_3, inner_2, 16)
LEVEL(inner_4, inner_3, 200)
LEVEL(inner_5, inner_4, 8)

/* A frame of unknown size: the CFA is found from rbp. */
FRAME long inner_alloca(struct request *r)
{
	volatile char *frame = alloca(r->size % 64 + 16);
	frame[0] = 1;
	long n = inner_5(r);
	return n + frame[0];
}

LEVEL(inner_6, inner_alloca, 64)
LEVEL(inner_7, inner_6, 5000)

/* A frame that is aligned more than the stack is: the CFA is found by an expression. */
FRAME long inner_aligned(struct request *r)
{
	_Alignas(64) volatile char frame[64];
	frame[0] = 1;
	long n = inner_7(r);
	return n + frame[0];
}

LEVEL(inner_8, inner_aligned, 8)
LEVEL(inner_9, inner_8, 1000)
LEVEL(inner_begin, inner_9, 24)
