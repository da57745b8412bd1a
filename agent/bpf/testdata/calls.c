/* calls: does what it is told, a command a line, and answers each with a line "RESULT POINTER".
 *   a SIZE       allocate
 *   f POINTER    free
 *   t POINTER    free in another thread
 *   r            reset the device, which frees everything without a call that frees
 *   p N THREADS  in each of the threads N allocations, each freed at once, through a path of its own: path of a thread
 *                number T's call I is PATH(T, I / 4), and its size 4096 + path. Then result 0, pointer 0. */
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuDevicePrimaryCtxReset_v2(int);

#define BITS 6 /* 64 paths */
#define FUNCTION __attribute__((noinline, noclone)) static int
#define PATH(t, i) ((uint32_t)((i) * 2654435761u + (t) * 40503u) >> 7 & ((1 << BITS) - 1))

struct request { uint64_t pointer; size_t size; uint32_t path; };

FUNCTION right(struct request *r, int bit);

FUNCTION bottom(struct request *r)
{
	int result = cuMemAlloc_v2(&r->pointer, r->size);
	__asm__ volatile("" ::: "memory");
	return result;
}

FUNCTION left(struct request *r, int bit)
{
	volatile char frame[40];
	frame[bit] = 0;
	int result = bit == BITS ? bottom(r) : r->path >> bit & 1 ? right(r, bit + 1) : left(r, bit + 1);
	return result + frame[bit];
}

FUNCTION right(struct request *r, int bit)
{
	volatile char frame[200];
	frame[bit] = 0;
	int result = bit == BITS ? bottom(r) : r->path >> bit & 1 ? right(r, bit + 1) : left(r, bit + 1);
	return result + frame[bit];
}

/* The same frames at another address each time. */
FUNCTION shifted(struct request *r, int by)
{
	volatile char *room = alloca(16 + 16 * by);
	room[0] = 0;
	return left(r, 0) + room[0];
}

static long calls;

static void *paths(void *number)
{
	for (long i = 0; i < calls; i++) {
		uint32_t path = PATH((uintptr_t)number, i / 4);
		struct request r = { 0, 4096 + path, path };
		if (shifted(&r, i / 5 % 3) || cuMemFree_v2(r.pointer))
			abort();
	}
	return 0;
}

static void *free_it(void *pointer) { return (void *)(intptr_t)cuMemFree_v2((uint64_t)pointer); }

int main(void)
{
	char command;
	unsigned long long argument;
	long threads;
	void *result;
	pthread_t t[16];

	setlinebuf(stdout);
	while (scanf(" %c", &command) == 1) {
		struct request r = { 0 };
		if (command != 'r' && scanf("%llu", &argument) != 1)
			return 1;
		switch (command) {
		case 'a':
			r.size = argument;
			printf("%d", left(&r, 0));
			printf(" %llu\n", (unsigned long long)r.pointer);
			break;
		case 'f':
			printf("%d 0\n", cuMemFree_v2(argument));
			break;
		case 't':
			if (pthread_create(t, 0, free_it, (void *)argument) || pthread_join(t[0], &result))
				return 1;
			printf("%d 0\n", (int)(intptr_t)result);
			break;
		case 'r':
			printf("%d 0\n", cuDevicePrimaryCtxReset_v2(0));
			break;
		case 'p':
			if (scanf("%ld", &threads) != 1 || threads > 16)
				return 1;
			calls = argument;
			for (long i = 0; i < threads; i++)
				if (pthread_create(&t[i], 0, paths, (void *)i))
					return 1;
			for (long i = 0; i < threads; i++)
				pthread_join(t[i], 0);
			puts("0 0");
			break;
		default:
			return 1;
		}
	}
	return 0;
}
