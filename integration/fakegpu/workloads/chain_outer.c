/* The outer half of the chain: a recursion, and a callback through the C library. */
#include "chain.h"
#include <stdlib.h>

long pool_begin(struct request *);

LEVEL(outer_1, pool_begin, 8)
LEVEL(outer_2, outer_1, 104)

static FRAME long outer_recursion(struct request *r, int depth)
{
	volatile char frame[40];
	frame[0] = 1;
	long n = depth ? outer_recursion(r, depth - 1) : outer_2(r);
	return n + frame[0];
}

static FRAME long outer_descend(struct request *r) { return outer_recursion(r, 4) + 1; }

static __thread struct request *sorted;
static __thread long found;

/* qsort of two elements compares once. */
static FRAME int outer_compare(const void *a, const void *b)
{
	volatile char frame[8];
	frame[0] = *(const char *)a - *(const char *)b;
	found = outer_descend(sorted);
	return frame[0];
}

static FRAME long outer_sort(struct request *r)
{
	char two[2] = {2, 1};
	sorted = r;
	qsort(two, 2, 1, outer_compare);
	return found + two[0];
}

LEVEL(outer_3, outer_sort, 8)
LEVEL(outer_4, outer_3, 72)
LEVEL(outer_5, outer_4, 8)
LEVEL(outer_6, outer_5, 300)

int chain_allocate(struct request *r)
{
	volatile char frame[8];
	frame[0] = (char)outer_6(r);
	return r->result + (frame[0] & 0);
}
