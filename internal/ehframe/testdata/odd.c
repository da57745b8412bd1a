// Functions with frames of every kind. Run with the name of a file, it single-steps through them and writes to the file
// what libgcc's unwinder says of the stack at every instruction, with the registers and the stack itself.
//   cc -pthread -o odd odd.c silent.c
// silent.c is compiled without unwind tables.
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

extern char __executable_start, etext;
int silent(int (*call)(int), int x);
int leaf(int x);

enum { MOST = 64 };
static int out = -1, tracing;
static uintptr_t stack_end;
static struct { uintptr_t pc, sp, bp, n, length; struct { uintptr_t pc, sp; } frame[MOST]; } step;

static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *interrupted)
{
	int before;
	uintptr_t pc = _Unwind_GetIPInfo(c, &before);
	if (step.n == 0 && !(before && pc == step.pc)) // the frames of this handler
		return _URC_NO_REASON;
	if (step.n == MOST || !pc) // behind the outermost one
		return _URC_END_OF_STACK;
	step.frame[step.n].pc = pc;
	step.frame[step.n++].sp = _Unwind_GetCFA(c);
	return _URC_NO_REASON;
}

static void put(const void *b, size_t n)
{
	for (ssize_t k; n; n -= k, b = (const char *)b + k)
		if ((k = write(out, b, n)) <= 0)
			_exit(10);
}

static void trapped(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t pc = r[REG_RIP];
	if (!tracing)
		r[REG_EFL] &= ~0x100;
	if (pc < (uintptr_t)&__executable_start || pc >= (uintptr_t)&etext)
		return;
	step.pc = pc, step.sp = r[REG_RSP], step.bp = r[REG_RBP], step.n = 0;
	step.length = stack_end - step.sp + 128; // with the red zone, where a register that was just popped still is
	_Unwind_Backtrace(frame, NULL);
	put(&step, sizeof step);
	put((void *)(step.sp - 128), step.length);
}

#define TRACE() do { tracing = 1; asm volatile("pushf; orq $0x100, (%%rsp); popf" ::: "memory", "cc"); } while (0)
#define STOP() (tracing = 0)

__attribute__((noinline)) int plain(int x) { return leaf(x) + 1; }

__attribute__((noinline)) int saves(int a, int b, int c, int d, int e, int f, int g)
{
	int n = plain(a);
	for (int i = 0; i < 2; i++)
		n += plain(a * b + i) ^ plain(c + d) ^ plain(e) ^ plain(f - g);
	return n + a + b + c + d + e + f + g;
}

__attribute__((noinline)) int dynamic(int n)
{
	char *p = alloca(n * 16);
	memset(p, n, n * 16);
	return plain(p[n]) + p[3];
}

__attribute__((noinline)) int aligned(int n)
{
	_Alignas(64) volatile char v[128];
	volatile char *p = alloca(n);
	v[n] = p[0] = n;
	return plain(v[n] + (int)((uintptr_t)v & 63)) + p[0];
}

__attribute__((noinline)) int aligned_many(int a, int b, int c, int d, int e, int f, int g, int h)
{
	_Alignas(128) volatile int v[32];
	v[a & 31] = g;
	return plain(v[a & 31]) + saves(a, b, c, d, e, f, h) + v[1];
}

__attribute__((noinline)) int huge(int n)
{
	volatile char v[200000];
	v[n] = n;
	return plain(v[n]) + saves(n, 2, 3, 4, 5, 6, 7) + v[n];
}

__attribute__((noinline)) int early(int n)
{
	if (n > 3)
		return n;
	volatile char v[64];
	v[n] = n;
	int r = plain(v[n]);
	if (r == 77)
		return 5;
	return r + plain(r) + v[n];
}

__attribute__((noinline)) int calls_library(int n)
{
	char *p = strdup("a stub of the linkage table");
	int r = strlen(p) + n;
	free(p);
	return r;
}

__attribute__((noinline, noreturn)) void leaves(void)
{
	plain(3);
	STOP();
	pthread_exit(NULL);
}

__attribute__((noinline)) int everything(int n)
{
	int r = saves(n, 2, 3, 4, 5, 6, 7) + dynamic(n + 3) + aligned(n) + aligned_many(n, 2, 3, 4, 5, 6, 7, 8) + huge(n) + early(n) +
		early(9) + calls_library(n) + silent(plain, n);
	return r + plain(r);
}

static void handler(int sig)
{
	TRACE();
	everything(sig);
	STOP();
}

static void *thread(void *unused)
{
	pthread_attr_t a;
	void *base;
	size_t size;
	pthread_getattr_np(pthread_self(), &a);
	pthread_attr_getstack(&a, &base, &size);
	stack_end = (uintptr_t)base + size;
	TRACE();
	everything(4);
	leaves();
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return everything(argc) == 0;
	out = open(argv[1], O_CREAT | O_TRUNC | O_WRONLY, 0600);
	int maps = open("/proc/self/maps", O_RDONLY), copy = open(argv[2], O_CREAT | O_TRUNC | O_WRONLY, 0600);
	char b[65536];
	pthread_t t;
	struct sigaction trap = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO }, usr = { .sa_handler = handler };

	stack_end = (uintptr_t)argv;
	if (out < 0 || maps < 0 || copy < 0 || sigaction(SIGTRAP, &trap, NULL) || sigaction(SIGUSR1, &usr, NULL))
		return 1;
	_Unwind_Backtrace(frame, NULL); // loads what it needs
	for (ssize_t n; (n = read(maps, b, sizeof b)) > 0;)
		if (write(copy, b, n) != n)
			return 1;
	TRACE();
	everything(1);
	STOP();
	raise(SIGUSR1);
	if (pthread_create(&t, NULL, thread, NULL) || pthread_join(t, NULL))
		return 1;
	return 0;
}
