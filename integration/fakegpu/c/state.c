/* Objects by key, addresses that are given out again at once, and the bytes of the devices. */
#include "fakegpu.h"
#include <stdlib.h>

static struct object **buckets, *spare;
static u64 n_buckets, n_objects;

static struct object **bucket(enum kind kind, u64 key)
{
	u64 h = (key ^ (u64)kind << 56) * 0x9e3779b97f4a7c15ull;
	return &buckets[h >> 20 & (n_buckets - 1)];
}

static void *must(void *p)
{
	if (!p)
		abort(); /* the model itself is out of host memory: nothing it says would be true */
	return p;
}

static void grow(void)
{
	struct object **old = buckets;
	u64 n_old = n_buckets;

	n_buckets = n_old ? n_old * 4 : 1024;
	buckets = must(calloc(n_buckets, sizeof(*buckets)));
	for (u64 i = 0; i < n_old; i++)
		for (struct object *o = old[i], *next; o; o = next) {
			struct object **b = bucket(o->kind, o->key);
			next = o->next;
			o->next = *b;
			*b = o;
		}
	free(old);
}

struct object *find(enum kind kind, u64 key)
{
	if (!n_buckets)
		return 0;
	for (struct object *o = *bucket(kind, key); o; o = o->next)
		if (o->key == key && o->kind == kind)
			return o;
	return 0;
}

void each(void (*visit)(struct object *, void *), void *with)
{
	for (u64 i = 0; i < n_buckets; i++)
		for (struct object *o = buckets[i], *next; o; o = next) {
			next = o->next;
			visit(o, with);
		}
}

struct search { u64 address; struct object *found; };

static void look(struct object *o, void *with)
{
	struct search *s = with;
	bool memory = o->kind == K_DEVICE || o->kind == K_HOST || o->kind == K_REGISTERED || o->kind == K_IPC || o->kind == K_MAPPING;
	if (memory && s->address - o->key < o->size)
		s->found = o;
}

/* The memory that an address lies in, of whatever kind. */
struct object *find_around(u64 address)
{
	struct search s = { address, find(K_DEVICE, address) };
	if (!s.found)
		each(look, &s);
	return s.found;
}

struct object *add(enum kind kind, u64 key, u64 size)
{
	struct object *o = spare, **b;

	if (n_objects >= n_buckets)
		grow();
	n_objects++;
	if (o)
		spare = o->next;
	else
		o = must(malloc(sizeof(*o)));
	*o = (struct object){ .kind = kind, .key = key, .size = size };
	b = bucket(kind, key);
	o->next = *b;
	*b = o;
	return o;
}

void drop(struct object *o)
{
	struct object **p = bucket(o->kind, o->key);

	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	n_objects--;
	o->next = spare;
	spare = o;
}

/* Addresses of one size, a power of two, are given out again last in, first out, as the real driver does. */
struct arena {
	u64 next;
	int least;
	struct { u64 *address; size_t n, room; } freed[48];
};
static struct arena wide = { .next = 0x200000000000, .least = 9 }, narrow = { .next = 0x10000000, .least = 9 },
		    handles = { .next = 0x600000000000, .least = 6 };

static int order(const struct arena *a, u64 size)
{
	int bits = a->least;
	while (bits < 47 && 1ull << bits < size)
		bits++;
	return bits;
}

static u64 take(struct arena *a, u64 size, u64 end)
{
	int bits = order(a, size);
	u64 step = 1ull << bits, address;

	if (a->freed[bits].n)
		return a->freed[bits].address[--a->freed[bits].n];
	address = (a->next + step - 1) & -step;
	if (address + step > end)
		return 0;
	a->next = address + step;
	return address;
}

static void put(struct arena *a, u64 address, u64 size)
{
	int bits = order(a, size);

	if (a->freed[bits].n == a->freed[bits].room) {
		a->freed[bits].room = a->freed[bits].room * 2 + 16;
		a->freed[bits].address = must(realloc(a->freed[bits].address, a->freed[bits].room * sizeof(u64)));
	}
	a->freed[bits].address[a->freed[bits].n++] = address;
}

u64 new_address(u64 size) { return take(&wide, size, 0x540000000000); }
u64 new_address_32(u64 size) { return take(&narrow, size, 1ull << 32); }
u64 new_handle(void) { return take(&handles, 1, ~0ull); }
void old_handle(u64 handle) { put(&handles, handle, 1); }
void old_address(u64 address, u64 size) { put(address < 1ull << 32 ? &narrow : &wide, address, size); }

int charge(int device, u64 bytes)
{
	if (bytes > capacity - devices[device].used)
		return OUT_OF_MEMORY;
	devices[device].used += bytes;
	return SUCCESS;
}

void refund(int device, u64 bytes) { devices[device].used -= bytes; }

int ask(struct call *c, enum class class, u64 size)
{
	c->class = class;
	c->size = size;
	if (c->forced)
		return c->forced;
	return size || class == IMPORTED ? SUCCESS : INVALID_VALUE;
}

int gave(struct call *c, struct object *o)
{
	o->class = c->class;
	c->pointer = o->key;
	return SUCCESS;
}

void end(struct object *o)
{
	if (o->class != NO_CLASS)
		ledger_freed(o->class, o->class == IMPORTED ? 0 : o->size);
	drop(o);
}
