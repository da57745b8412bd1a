/* behaviour LIBRARY CASE: makes the calls of one case and says where a result is not what the real driver's would be. */
#include "behaviour.h"

static void pointers(void)
{
	u64 a, b, c;
	WANT(0, DO(cuMemAlloc_v2, P(&a), 3 * MiB));
	WANT(0, DO(cuMemAlloc_v2, P(&b), 3 * MiB));
	WANT(1, a != b);
	WANT(0, DO(cuMemFree_v2, b));
	WANT(0, DO(cuMemFree_v2, a));
	WANT(1, DO(cuMemFree_v2, a)); /* twice */
	WANT(0, DO(cuMemFree_v2, 0));
	WANT(0, DO(cuMemAlloc_v2, P(&c), 3 * MiB));
	WANT(a, c); /* the last one freed is given again at once */
	WANT(1, DO(cuMemFree_v2, 12345));
	WANT(1, DO(cuMemAlloc_v2, P(&b), 0));
	WANT(1, DO(cuMemFreeHost, c)); /* another family */
	WANT(0, DO(cuMemFreeAsync, c, 0));
}

static void capacity(void)
{
	u64 a, b, free_bytes, total;
	WANT(0, DO(cuMemAlloc_v2, P(&a), 60 * MiB));
	WANT(2, DO(cuMemAlloc_v2, P(&b), 41 * MiB));
	WANT(0, DO(cuMemAlloc_v2, P(&b), 40 * MiB));
	WANT(0, DO(cuMemGetInfo_v2, P(&free_bytes), P(&total)));
	WANT(0, free_bytes);
	WANT(100 * MiB, total);
	WANT(0, DO(cuMemGetInfo_v2, 0, P(&total)));
	WANT(2, DO(cuMemAllocAsync, P(&total), 1, 0));
	WANT(0, DO(cuMemFree_v2, a));
	WANT(0, DO(cuMemGetInfo_v2, P(&free_bytes), 0));
	WANT(60 * MiB, free_bytes);
}

static void narrow(void)
{
	u64 p = ~0ull, pitch = ~0ull;
	WANT(0, DO(cuMemAlloc, P(&p), 0xabcd00000000 | 2 * MiB)); /* the register's upper half holds anything */
	WANT(0xffffffff, p >> 32);                                /* 32 bits are written, no more */
	WANT(0, DO(cuMemFree, 0xabcd00000000 | (u32)p));
	WANT(0, DO(cuMemAllocPitch, P(&p), P(&pitch), 1000, 10, 4));
	WANT(0xffffffff00000400, pitch);
	WANT(0, DO(cuMemAllocHost, P(&p), MiB));
	memset((void *)p, 1, MiB);
	WANT(0, DO(cuMemFreeHost, p));
}

static void kinds(void)
{
	u64 p, pitch, managed, host;
	static char mine[8192];
	u64 array[3] = { 100, 0, 0x20 | 4ull << 32 }, cube[5] = { 64, 32, 16, 0x10 | 2ull << 32, 0 };
	WANT(0, DO(cuMemAllocPitch_v2, P(&p), P(&pitch), 1000, 10, 4));
	WANT(1024, pitch);
	WANT(0, DO(cuMemAllocManaged, P(&managed), 5 * MiB, 1));
	memset((void *)managed, 1, 5 * MiB);
	WANT(0, DO(cuMemFree_v2, managed));
	WANT(0, DO(cuMemHostAlloc, P(&host), 7 * MiB, 0));
	memset((void *)host, 1, 7 * MiB);
	WANT(1, DO(cuMemFree_v2, host));
	WANT(0, DO(cuMemFreeHost, host));
	WANT(0, DO(cuMemAllocHost_v2, P(&host), MiB));
	WANT(0, DO(cuMemHostRegister_v2, P(mine), 4096, 0));
	WANT(712, DO(cuMemHostRegister, P(mine), 4096, 0));
	WANT(0, DO(cuMemHostUnregister, P(mine)));
	WANT(713, DO(cuMemHostUnregister, P(mine)));
	WANT(0, DO(cuMemHostRegister, P(mine), 8192, 0));
	WANT(0, DO(cuArrayCreate_v2, P(&p), P(array))); /* 100 × 4 floats */
	WANT(0, DO(cuArrayDestroy, p));
	WANT(400, DO(cuArrayDestroy, p));
	WANT(0, DO(cuArray3DCreate_v2, P(&p), P(cube))); /* 64 × 32 × 16 × 2 halves */
	WANT(0, DO(cuMipmappedArrayCreate, P(&p), P(cube), 3));
	WANT(400, DO(cuArrayDestroy, p));
}

static void vmm(void)
{
	u32 device[8] = { 1, 1, 1, 0 }, host[8] = { 1, 1, 2, 0 }, nowhere[8] = { 1, 1, 1, 7 };
	u64 h, h2, va, size = 4 * MiB;
	int fd = -1;
	WANT(0, DO(cuMemAddressReserve, P(&va), 64 * MiB, 0, 0, 0));
	/* released while mapped: the memory goes with the last mapping */
	WANT(0, DO(cuMemCreate, P(&h), size, P(device), 0));
	WANT(0, DO(cuMemMap, va, size, 0, h, 0));
	WANT(1, DO(cuMemMap, va + 2 * MiB, size, 0, h, 0)); /* over a mapping */
	WANT(0, DO(cuMemMap, va + 8 * MiB, size, 0, h, 0));
	WANT(0, DO(cuMemRelease, h));
	WANT(1, DO(cuMemRelease, h));
	WANT(1, DO(cuMemUnmap, va, 2 * MiB)); /* in part */
	WANT(0, DO(cuMemUnmap, va, size));
	WANT(0, DO(cuMemSetAccess, va + 8 * MiB, size, P(device), 1));
	WANT(1, DO(cuMemAddressFree, va, 64 * MiB)); /* something is mapped */
	WANT(0, DO(cuMemUnmap, va + 8 * MiB, size));
	/* unmapped first, and held by a second reference */
	WANT(0, DO(cuMemCreate, P(&h), size, P(device), 0));
	WANT(0, DO(cuMemMap, va, size, 0, h, 0));
	WANT(0, DO(cuMemRetainAllocationHandle, P(&h2), va + 100));
	WANT(h, h2);
	WANT(0, DO(cuMemUnmap, va, size));
	WANT(0, DO(cuMemRelease, h));
	WANT(0, DO(cuMemRelease, h2));
	WANT(1, DO(cuMemRelease, h2));
	/* one unmapping of two mappings */
	WANT(0, DO(cuMemCreate, P(&h), size, P(device), 0));
	WANT(0, DO(cuMemCreate, P(&h2), size, P(device), 0));
	WANT(0, DO(cuMemMap, va, size, 0, h, 0));
	WANT(0, DO(cuMemMap, va + size, size, 0, h2, 0));
	WANT(0, DO(cuMemRelease, h));
	WANT(0, DO(cuMemRelease, h2));
	WANT(0, DO(cuMemUnmap, va, 2 * size));
	/* shared: the import is no new memory */
	WANT(0, DO(cuMemCreate, P(&h), size, P(device), 0));
	WANT(0, DO(cuMemExportToShareableHandle, P(&fd), h, 1, 0));
	WANT(0, DO(cuMemImportFromShareableHandle, P(&h2), fd, 1));
	WANT(0, DO(cuMemRelease, h2));
	WANT(0, DO(cuMemAddressFree, va, 64 * MiB));
	WANT(1, DO(cuMemCreate, P(&h2), 4097, P(device), 0));
	WANT(101, DO(cuMemCreate, P(&h2), size, P(nowhere), 0));
	WANT(0, DO(cuMemCreate, P(&h2), 1024 * MiB, P(host), 0)); /* not the device's: beyond its capacity */
	WANT(2, DO(cuMemCreate, P(&h2), 1024 * MiB, P(device), 0));
}

static void pools(void)
{
	u32 properties[22] = { 1, 0, 1, 0 };
	u64 pool, standard, a, b, c, free_bytes, value = 64 * MiB, reserved;
	WANT(0, DO(cuMemPoolCreate, P(&pool), P(properties)));
	WANT(0, DO(cuMemPoolSetAttribute, pool, 4, P(&value)));
	WANT(0, DO(cuMemAllocFromPoolAsync, P(&a), 10 * MiB, pool, 0));
	WANT(0, DO(cuMemAllocFromPoolAsync_ptsz, P(&b), 30 * MiB, pool, 0));
	WANT(0, DO(cuMemPoolGetAttribute, pool, 5, P(&reserved)));
	WANT(64 * MiB, reserved);
	WANT(0, DO(cuMemFreeAsync_ptsz, b, 0));
	WANT(0, DO(cuMemFree_v2, a)); /* the plain free takes pool memory too */
	WANT(0, DO(cuMemGetInfo_v2, P(&free_bytes), 0));
	WANT(36 * MiB, free_bytes); /* freed to the pool, which keeps it */
	WANT(0, DO(cuMemPoolTrimTo, pool, 0));
	WANT(0, DO(cuMemGetInfo_v2, P(&free_bytes), 0));
	WANT(100 * MiB, free_bytes);
	WANT(0, DO(cuMemAllocAsync, P(&c), MiB, 0));
	WANT(0, DO(cuMemAllocAsync_ptsz, P(&a), MiB, 0));
	WANT(0, DO(cuDeviceGetDefaultMemPool, P(&standard), 0));
	WANT(1, DO(cuMemPoolDestroy, standard));
	WANT(0, DO(cuMemAllocFromPoolAsync, P(&a), 5 * MiB, pool, 0));
	WANT(0, DO(cuMemPoolDestroy, pool)); /* what was allocated from it lives on */
	WANT(1, DO(cuMemPoolTrimTo, pool, 0));
	WANT(0, DO(cuMemFreeAsync, a, 0));
}

struct handle { char bytes[64]; };
typedef int open_by_value(u64 *, struct handle, unsigned);

static void ipc(void)
{
	struct handle h;
	int to_child[2], status;
	u64 a;
	pipe(to_child);
	pid_t pid = fork(); /* before the driver is used, as programs must */
	if (!pid) {
		u64 first, second, third;
		WANT(64, read(to_child[0], &h, 64));
		open_by_value *open = symbol("cuIpcOpenMemHandle_v2"), *open_v1 = symbol("cuIpcOpenMemHandle");
		WANT(0, open(&first, h, 1));
		WANT(0, open_v1(&second, h, 1));
		WANT(first, second); /* counted, not mapped again */
		WANT(1, DO(cuMemFree_v2, first));
		WANT(0, DO(cuIpcCloseMemHandle, first));
		WANT(0, DO(cuIpcCloseMemHandle, first));
		WANT(1, DO(cuIpcCloseMemHandle, first));
		WANT(400, open(&third, (struct handle){"nonsense"}, 1));
		exit(0);
	}
	WANT(0, DO(cuMemAlloc_v2, P(&a), 6 * MiB));
	WANT(0, DO(cuIpcGetMemHandle, P(&h), a));
	WANT(201, ((open_by_value *)symbol("cuIpcOpenMemHandle_v2"))(&a, h, 1)); /* its own */
	WANT(64, write(to_child[1], &h, 64));
	WANT(pid, waitpid(pid, &status, 0));
	WANT(0, status);
}

static void external(void)
{
	u64 description[5] = { 1, 3, 0, 8 * MiB, 0 }, buffer[3] = { MiB, 4 * MiB, 0 }, all[3] = { MiB, 8 * MiB, 0 },
	    mip[7] = { 0, 64, 64, 0, 0x20 | 1ull << 32, 0, 3 }, e, p, m;
	WANT(0, DO(cuImportExternalMemory, P(&e), P(description)));
	WANT(0, DO(cuExternalMemoryGetMappedBuffer, P(&p), e, P(buffer)));
	WANT(1, DO(cuExternalMemoryGetMappedBuffer, P(&p), e, P(all)));
	WANT(0, DO(cuExternalMemoryGetMappedMipmappedArray, P(&m), e, P(mip)));
	WANT(0, DO(cuMemFree_v2, p));
	WANT(0, DO(cuMipmappedArrayDestroy, m));
	WANT(0, DO(cuDestroyExternalMemory, e));
}

static void contexts(void)
{
	u64 first, second, p, q, host, h, now, info;
	u32 device[8] = { 1, 0, 1, 1 };
	int ordinal;
	WANT(0, DO(cuDevicePrimaryCtxRetain, P(&first), 1));
	WANT(0, DO(cuDevicePrimaryCtxRetain, P(&second), 1));
	WANT(first, second);
	WANT(0, DO(cuCtxSetCurrent, first));
	WANT(0, DO(cuCtxGetDevice, P(&ordinal)));
	WANT(1, ordinal);
	WANT(0, DO(cuMemAlloc_v2, P(&p), 10 * MiB));
	WANT(0, DO(cuCtxCreate_v2, P(&second), 0, 0));
	WANT(0, DO(cuMemAlloc_v2, P(&q), 20 * MiB));
	WANT(0, DO(cuMemHostAlloc, P(&host), 3 * MiB, 0));
	WANT(0, DO(cuMemCreate, P(&h), 2 * MiB, P(device), 0));
	WANT(0, DO(cuMemGetInfo_v2, P(&info), 0));
	WANT(80 * MiB, info);
	WANT(0, DO(cuCtxDestroy_v2, second)); /* takes its memory with it */
	WANT(1, DO(cuMemFree_v2, q));
	WANT(201, DO(cuCtxPushCurrent_v2, second));
	WANT(0, DO(cuCtxGetCurrent, P(&now)));
	WANT(first, now);
	WANT(0, DO(cuMemGetInfo_v2, P(&info), 0));
	WANT(88 * MiB, info); /* 10 allocated, 2 behind a handle */
	WANT(0, DO(cuDevicePrimaryCtxRelease_v2, 1));
	WANT(0, DO(cuMemFree_v2, p)); /* a reference was left */
	WANT(0, DO(cuMemAlloc_v2, P(&p), MiB));
	WANT(0, DO(cuDevicePrimaryCtxRelease_v2, 1));
	WANT(201, DO(cuDevicePrimaryCtxRelease_v2, 1));
	WANT(1, DO(cuMemFree_v2, p));
	WANT(0, DO(cuMemAlloc_v2, P(&p), MiB));
	WANT(0, DO(cuDevicePrimaryCtxReset_v2, 1));
	WANT(1, DO(cuMemFree_v2, p));
	WANT(0, DO(cuMemRelease, h)); /* belongs to no context */
}

static void graphs(void)
{
	struct { char properties[88]; u64 access, n_access, size, address; } node = { .size = 30 * MiB };
	struct { u32 type, reserved[3]; char properties[88]; u64 access, n_access, size, address; char rest[128]; } any =
		{ .type = 10, .size = 5 * MiB };
	u64 graph, n, exec, info;
	WANT(0, DO(cuGraphCreate, P(&graph), 0));
	WANT(0, DO(cuGraphAddMemAllocNode, P(&n), graph, 0, 0, P(&node)));
	WANT(0, DO(cuGraphAddNode, P(&n), graph, 0, 0, P(&any)));
	WANT(1, node.address && any.address && node.address != any.address);
	WANT(0, DO(cuGraphAddMemFreeNode, P(&n), graph, 0, 0, node.address));
	WANT(0, DO(cuMemGetInfo_v2, P(&info), 0));
	WANT(100 * MiB, info);
	WANT(0, DO(cuGraphInstantiateWithFlags, P(&exec), graph, 0));
	WANT(0, DO(cuGraphLaunch, exec, 0));
	WANT(0, DO(cuGraphLaunch_ptsz, exec, 0));
	WANT(0, DO(cuMemGetInfo_v2, P(&info), 0));
	WANT(65 * MiB, info); /* taken at the first launch */
	WANT(0, DO(cuGraphExecDestroy, exec));
	WANT(0, DO(cuGraphDestroy, graph));
	WANT(0, DO(cuDeviceGraphMemTrim, 0));
	WANT(0, DO(cuMemGetInfo_v2, P(&info), 0));
	WANT(100 * MiB, info);
}

static void lookup_one(const char *name, int version, u64 flags, const char *want, int status)
{
	void *p = (void *)7, *wanted = want ? symbol(want) : 0;
	int got = -1;
	WANT(0, DO(cuGetProcAddress_v2, P(name), P(&p), version, flags, P(&got)));
	WANT(P(wanted), P(p));
	WANT(status, got);
	p = (void *)7;
	WANT(want ? 0 : 500, DO(cuGetProcAddress, P(name), P(&p), version, flags));
	WANT(want ? P(wanted) : 7, P(p));
}

/* What driver 550.163.01 answers. */
static void lookup(void)
{
	lookup_one("cuMemAlloc", 2000, 0, "cuMemAlloc", 0);
	lookup_one("cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 0);
	lookup_one("cuMemAlloc", 12000, 2, "cuMemAlloc_v2", 0);
	lookup_one("cuMemAlloc_v2", 12000, 0, 0, 1);
	lookup_one("cuMemAllocAsync", 11000, 0, 0, 2);
	lookup_one("cuMemAllocAsync", 12000, 0, "cuMemAllocAsync", 0);
	lookup_one("cuMemAllocAsync", 12000, 1, "cuMemAllocAsync", 0);
	lookup_one("cuMemAllocAsync", 12000, 2, "cuMemAllocAsync_ptsz", 0);
	lookup_one("cuMemAllocAsync_ptsz", 12000, 2, 0, 1);
	lookup_one("cuIpcOpenMemHandle", 5000, 0, "cuIpcOpenMemHandle", 0);
	lookup_one("cuIpcOpenMemHandle", 11000, 0, "cuIpcOpenMemHandle_v2", 0);
	lookup_one("cuMemHostRegister", 5000, 0, "cuMemHostRegister", 0);
	lookup_one("cuCtxDestroy", 3020, 0, "cuCtxDestroy", 0);
	lookup_one("cuGetProcAddress", 11000, 0, 0, 2);
	lookup_one("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0);
	lookup_one("cuNothing", 12000, 0, 0, 1);
}

static void ask_about(void)
{
	u64 p, base, size, values[2];
	u32 type = 0, attributes[2] = { 11, 12 };
	u64 into[2] = { P(&values[0]), P(&values[1]) };
	const char *text;
	char name[32], bus[32];
	unsigned char uuid[16];
	WANT(0, DO(cuInit, 0));
	WANT(0, DO(cuDeviceGetName, P(name), sizeof(name), 1));
	WANT(0, DO(cuDeviceGetPCIBusId, P(bus), sizeof(bus), 1));
	WANT(0, strcmp(bus, "0000:01:00.0")); /* CUDA_VISIBLE_DEVICES=1,0 */
	WANT(0, DO(cuDeviceGetUuid_v2, P(uuid), 0));
	WANT(1, uuid[15]);
	WANT(101, DO(cuDeviceGetUuid_v2, P(uuid), 2));
	WANT(0, DO(cuDeviceTotalMem_v2, P(&size), 0));
	WANT(100 * MiB, size);
	WANT(0, DO(cuMemAlloc_v2, P(&p), MiB));
	WANT(0, DO(cuPointerGetAttribute, P(&type), 2, p + 5));
	WANT(2, type);
	WANT(1, DO(cuPointerGetAttribute, P(&type), 2, 99));
	WANT(0, DO(cuPointerGetAttributes, 2, P(attributes), P(into), p + 4096));
	WANT(p, values[0]);
	WANT(MiB, values[1]);
	WANT(0, DO(cuMemGetAddressRange_v2, P(&base), P(&size), p + MiB - 1));
	WANT(p, base);
	WANT(0, DO(cuGetErrorName, 2, P(&text)));
	WANT(0, strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
}

static void forks(void)
{
	u64 p;
	int status;
	WANT(0, DO(cuMemAlloc_v2, P(&p), MiB));
	pid_t pid = fork();
	if (!pid) {
		WANT(3, DO(cuMemAlloc_v2, P(&p), MiB));
		WANT(3, DO(cuMemFree_v2, p));
		exit(0);
	}
	WANT(pid, waitpid(pid, &status, 0));
	WANT(0, status);
}

/* FAKEGPU_SCRIPT=cuMemAlloc_v2:every=3,result=2;cuMemFree_v2:nth=2,result=1;cuMemAlloc_v2:nth=2,result=999 */
static void scripted(void)
{
	u64 p[6] = {0};
	static const int want[6] = { 0, 999, 2, 0, 0, 2 };
	for (int i = 0; i < 6; i++)
		WANT(want[i], DO(cuMemAlloc_v2, P(&p[i]), MiB));
	WANT(0, DO(cuMemFree_v2, p[0]));
	WANT(1, DO(cuMemFree_v2, p[3])); /* and it is still there */
	WANT(0, DO(cuMemFree_v2, p[3]));
}

/* The guard is where every stub says it is, 10 bytes after its begin plus the displacement. */
static void torn_down(void)
{
	unsigned char *stub = symbol("cuMemFree_v2");
	u32 *guard = (u32 *)(stub + 10 + *(int *)(stub + 2));
	u64 p;
	WANT(0, DO(cuMemAlloc_v2, P(&p), MiB));
	*guard = 0x321cba00;
	WANT(4, DO(cuMemFree_v2, p));
	WANT(4, DO(cuMemAlloc_v2, P(&p), MiB));
}

static const struct { const char *name; void (*run)(void); } cases[] = {
	{ "pointers", pointers }, { "capacity", capacity }, { "narrow", narrow }, { "kinds", kinds }, { "vmm", vmm }, { "pools", pools },
	{ "ipc", ipc }, { "external", external }, { "contexts", contexts }, { "graphs", graphs }, { "lookup", lookup },
	{ "ask", ask_about }, { "forks", forks }, { "script", scripted }, { "torn down", torn_down },
};

int main(int argc, char **argv)
{
	library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : 0;
	for (size_t i = 0; library && i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].name, argv[2])) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "usage: behaviour LIBRARY CASE: %s\n", library ? "no such case" : dlerror());
	return 2;
}
