/* A fake libcuda.so.1: the driver API's functions around memory, exported as the real library exports them, over a model
 * of devices with a capacity. It is strict where a profiler can be wrong (double frees, references, maps, pools) and
 * lenient elsewhere: a thread without a current context uses device 0's primary context, and cuInit may be left out.
 * A child of fork whose parent had used the driver gets CUDA_ERROR_NOT_INITIALIZED, as with the real one.
 *
 * Settings, from the environment when the library is loaded:
 *   FAKEGPU_LEDGER    file to which every call appends one JSON line (Call in ../ledger.go), in the order in which the
 *                     calls took effect; none: no ledger
 *   FAKEGPU_MEMORY    capacity of a device, such as 512MiB or 80GiB (the default)
 *   FAKEGPU_DEVICES   number of devices, 1 to 16, by default 1; CUDA_VISIBLE_DEVICES (ordinals or UUIDs) picks from them
 *   FAKEGPU_SCRIPT    rules that break or slow calls, separated by `;`: FUNCTION:KEY=VALUE,... with FUNCTION an exported
 *                     name or *, and the keys
 *                       every=N    only every Nth call of the function in a process
 *                       nth=N      only the Nth call of the function in a process
 *                       result=R   the call has no effect and returns R
 *                       delay=T    the call waits T (such as 5ms, 200us) before it takes effect
 *                       linger=T   the call waits T after it took effect and before it returns
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t u64;
typedef uint32_t u32;

/* CUresult, as far as it is given here (cuda.h). */
enum {
	SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201,
	NOT_MAPPED = 211, INVALID_HANDLE = 400, NOT_FOUND = 500, HOST_MEMORY_ALREADY_REGISTERED = 712,
	HOST_MEMORY_NOT_REGISTERED = 713, CONTEXT_IS_DESTROYED = 709, NOT_SUPPORTED = 801,
};

/* The kinds of memory of which the ledger keeps the truth. */
enum class { NO_CLASS, DEVICE, MANAGED, VMM, POOL, ARRAY, PINNED, REGISTERED, IMPORTED, GRAPH, CLASSES };

/* What a key stands for; each kind has keys of its own. */
enum kind {
	K_DEVICE, K_ARRAY, K_MIPMAPPED, K_HANDLE, K_HOST, K_REGISTERED, K_IPC, K_RESERVATION, K_MAPPING, K_POOL, K_CONTEXT,
	K_GRAPH, K_GRAPH_EXEC, K_EXTERNAL,
};

struct object {
	enum kind kind;
	enum class class;
	u64 key, size;
	int device;
	u32 refs, maps;         /* of a VMM handle; refs of an IPC mapping */
	struct object *context; /* whose end frees it */
	struct object *backing; /* the pool of pool memory, the handle of a mapping, the graph of an executable graph */
	u64 used, reserved, threshold; /* of a pool; used: the bytes of a graph's nodes */
	bool dead;              /* a destroyed context, pool or handle that something still refers to */
	struct object *next;
};

/* One call while it runs, under the lock. An implementation fills in what the ledger tells. */
struct call {
	const struct function *function;
	const u64 *a;           /* the arguments that are passed in registers */
	int forced;             /* the result that the script demands, or 0 */
	const char *text;       /* an argument that is no number */
	enum class class;       /* of the memory that was asked for */
	u64 size, pointer;      /* what was asked for, what came back */
};

struct function {
	const char *symbol, *base;
	int since, arguments;
	int (*run)(struct call *);
	bool allocates;         /* told of a forced failure, so that the ledger has the bytes that were refused */
	void *address;          /* of the exported stub */
};
extern const struct function functions[];
extern const int n_functions;
#define F(symbol, base, since, arguments, run, allocates) int run(struct call *);
#include "functions.def"
#undef F

/* script.c: the settings, read once. */
#define MAX_DEVICES 16
struct device { u64 used, graph_reserved; int number; struct object *primary, *default_pool, *pool; u32 primary_refs; };
extern struct device devices[MAX_DEVICES];
extern int n_devices;
extern u64 capacity;
extern bool scripted;
struct script { int result; u64 delay_ns, linger_ns; };
struct script script_for(const struct function *);
void wait_ns(u64);
void device_uuid(int number, unsigned char uuid[16]);

/* ledger.c */
extern int ledger;
void ledger_open(void);
void ledger_append(const struct call *, int result);
void ledger_freed(enum class, u64 bytes);

/* state.c: objects and addresses. Everything but the settings is guarded by the lock that stubs.c holds during a call. */
struct object *find(enum kind, u64 key);
struct object *find_around(u64 address);
struct object *add(enum kind, u64 key, u64 size);
void drop(struct object *);
void each(void (*)(struct object *, void *), void *);
u64 new_address(u64 size), new_address_32(u64 size), new_handle(void);
void old_address(u64 address, u64 size), old_handle(u64 handle);
int charge(int device, u64 bytes);
void refund(int device, u64 bytes);
/* ask notes what an allocation asks for and gives its result if it fails before it begins. */
int ask(struct call *, enum class, u64 size);
/* gave notes and returns what an allocation gave. */
int gave(struct call *, struct object *);
/* end takes an object away and, if it was memory, tells the ledger. */
void end(struct object *);

/* context.c */
struct object *current(int *result);
struct object *primary(int device);

/* pool.c, vmm.c */
void pool_return(struct object *);
void handle_settle(struct object *);

u64 descriptor_bytes(const void *array3d, u32 levels);
