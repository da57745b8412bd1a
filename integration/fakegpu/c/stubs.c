/* The exported functions, in the shape that NVIDIA's drivers 535 and 550 give theirs: a stub of 32 bytes that compares a
 * guard with a magic number, jumps through a table, and gives CUDA_ERROR_DEINITIALIZED once the library is torn down. */
#define _GNU_SOURCE
#include "fakegpu.h"
#include <pthread.h>

#ifndef __x86_64__
#error "the stubs are written for x86-64"
#endif

#define TORN_DOWN 0x321cba00u
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool used, forked_away;
__attribute__((used)) unsigned guard;

static int dispatch(const struct function *f, const u64 *a, const char *text)
{
	struct script script = {0};
	struct call call = { .function = f, .a = a, .text = text };
	int result;

	if (scripted)
		script = script_for(f);
	if (script.delay_ns)
		wait_ns(script.delay_ns);
	pthread_mutex_lock(&lock);
	used = true;
	call.forced = script.result;
	if (forked_away)
		call.forced = NOT_INITIALIZED;
	result = call.forced && !f->allocates ? call.forced : f->run(&call);
	if (ledger >= 0)
		ledger_append(&call, result);
	pthread_mutex_unlock(&lock);
	if (script.linger_ns)
		wait_ns(script.linger_ns);
	return result;
}

enum {
#define F(symbol, ...) N_##symbol,
#include "functions.def"
#undef F
};

/* The handle of cuIpcOpenMemHandle is passed by value, so it lies above the return address, and the flags are in rsi. */
struct ipc_handle { char bytes[64]; };
#define OPEN(symbol) \
	static int open_##symbol(u64 pointer, struct ipc_handle handle, u64 flags) \
	{ return dispatch(&functions[N_##symbol], (u64[]){ pointer, flags }, handle.bytes); }
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

#define F(symbol, ...) \
	static int enter_##symbol(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f) \
	{ return dispatch(&functions[N_##symbol], (u64[]){ a, b, c, d, e, f }, 0); }
#include "functions.def"
#undef F

#define F(symbol, ...) \
	__attribute__((used)) void *slot_##symbol = \
		N_##symbol == N_cuIpcOpenMemHandle ? (void *)open_cuIpcOpenMemHandle : \
		N_##symbol == N_cuIpcOpenMemHandle_v2 ? (void *)open_cuIpcOpenMemHandle_v2 : (void *)enter_##symbol; \
	__asm__(".text\n.p2align 5\n.globl " #symbol "\n.type " #symbol ", @function\n" #symbol ":\n.cfi_startproc\n" \
		"cmpl $0x321cba00, guard(%rip)\n.byte 0x74, 0x0c\n" /* je over the jump */ \
		"jmp *slot_" #symbol "(%rip)\n.byte 0x66, 0x0f, 0x1f, 0x44, 0, 0\n" /* a nop of 6 bytes */ \
		"mov $4, %eax\nret\n.cfi_endproc\n.size " #symbol ", . - " #symbol "\n.byte 0x66, 0x90\n"); \
	__attribute__((visibility("default"))) int symbol(void);
#include "functions.def"
#undef F

const struct function functions[] = {
#define F(symbol, base, since, arguments, run, allocates) { #symbol, base, since, arguments, run, allocates, (void *)symbol },
#include "functions.def"
#undef F
};
const int n_functions = sizeof(functions) / sizeof(*functions);

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void)
{
	forked_away = used;
	pthread_mutex_unlock(&lock);
}

void settings_read(void);
__attribute__((constructor)) static void load(void)
{
	settings_read();
	ledger_open();
	pthread_atfork(before_fork, in_parent, in_child);
}

__attribute__((destructor)) static void tear_down(void) { guard = TORN_DOWN; }
