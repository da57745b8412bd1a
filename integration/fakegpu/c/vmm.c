/* Virtual memory management: physical memory lives while a handle has references or mappings. */
#define _GNU_SOURCE
#include "fakegpu.h"
#include <sys/mman.h>
#include <unistd.h>

#define GRANULARITY (2ull << 20)

/* CUmemAllocationProp (cuda.h). */
struct properties { u32 type, handle_types; u32 location_type; int location; u64 win32; unsigned char flags[8]; };
enum { ON_DEVICE = 1, ON_HOST = 2, ON_HOST_NUMA = 3 };

int vmm_create(struct call *c)
{
	const struct properties *p = (void *)c->a[2];
	bool host = p->location_type == ON_HOST || p->location_type == ON_HOST_NUMA;
	int result = ask(c, VMM, c->a[1]);
	struct object *o;

	if (result)
		return result;
	if (c->size % GRANULARITY || (!host && p->location_type != ON_DEVICE))
		return INVALID_VALUE;
	if (!host) {
		if (p->location < 0 || p->location >= n_devices)
			return INVALID_DEVICE;
		if ((result = charge(p->location, c->size)))
			return result;
	}
	o = add(K_HANDLE, new_handle(), c->size);
	o->device = host ? -1 : p->location;
	o->refs = 1;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

/* Ends the memory of a handle that nothing holds any more. */
void handle_settle(struct object *o)
{
	if (o->refs || o->maps)
		return;
	if (o->class == VMM && o->device >= 0)
		refund(o->device, o->size);
	old_handle(o->key);
	end(o);
}

static struct object *handle(u64 key)
{
	struct object *o = find(K_HANDLE, key);
	return o && o->refs ? o : 0; /* without references only its mappings keep it: its handle is no handle any more */
}

int vmm_release(struct call *c)
{
	struct object *o = handle(c->a[0]);

	if (!o)
		return INVALID_VALUE;
	o->refs--;
	handle_settle(o);
	return SUCCESS;
}

int vmm_reserve(struct call *c)
{
	u64 size = c->a[1], address;

	if (!size || size % GRANULARITY)
		return INVALID_VALUE;
	address = new_address(size);
	if (!address)
		return OUT_OF_MEMORY;
	add(K_RESERVATION, address, size);
	*(u64 *)c->a[0] = c->pointer = address;
	return SUCCESS;
}

struct range { u64 start, end, mapped, partial; struct object *inside; };

static void overlap(struct object *o, void *with)
{
	struct range *r = with;

	if (o->kind == K_RESERVATION && o->key <= r->start && r->end <= o->key + o->size)
		r->inside = o;
	if (o->kind != K_MAPPING || o->key >= r->end || o->key + o->size <= r->start)
		return;
	r->mapped += o->size;
	if (o->key < r->start || o->key + o->size > r->end)
		r->partial++;
}

static struct range look(u64 start, u64 size)
{
	struct range r = { start, start + size, 0, 0, 0 };
	each(overlap, &r);
	return r;
}

int vmm_unreserve(struct call *c)
{
	struct object *o = find(K_RESERVATION, c->a[0]);

	if (!o || o->size != c->a[1] || look(o->key, o->size).mapped)
		return INVALID_VALUE;
	old_address(o->key, o->size);
	drop(o);
	return SUCCESS;
}

int vmm_map(struct call *c)
{
	u64 address = c->a[0], size = c->a[1];
	struct object *h = handle(c->a[3]), *m;
	struct range r = look(address, size);

	if (!h || !size || address % GRANULARITY || size % GRANULARITY || c->a[2] || size > h->size || !r.inside || r.mapped)
		return INVALID_VALUE;
	m = add(K_MAPPING, address, size);
	m->device = h->device;
	m->backing = h;
	h->maps++;
	return SUCCESS;
}

static void unmap(struct object *o, void *with)
{
	struct range *r = with;

	if (o->kind != K_MAPPING || o->key < r->start || o->key >= r->end)
		return;
	o->backing->maps--;
	drop(o);
}

static void settle(struct object *o, void *with)
{
	(void)with;
	if (o->kind == K_HANDLE)
		handle_settle(o);
}

/* One call may take many mappings away, but none in part. */
int vmm_unmap(struct call *c)
{
	struct range r = look(c->a[0], c->a[1]);

	if (r.partial || !c->a[1] || r.mapped != c->a[1])
		return INVALID_VALUE;
	each(unmap, &r);
	each(settle, 0);
	return SUCCESS;
}

int vmm_access(struct call *c)
{
	struct range r = look(c->a[0], c->a[1]);
	return r.mapped >= c->a[1] && c->a[1] && c->a[3] ? SUCCESS : INVALID_VALUE;
}

int vmm_retain(struct call *c)
{
	struct object *o = find_around(c->a[1]);

	if (!o || o->kind != K_MAPPING)
		return INVALID_VALUE;
	o->backing->refs++;
	*(u64 *)c->a[0] = c->pointer = o->backing->key;
	return SUCCESS;
}

/* A shareable handle is a file descriptor whose file holds the size, so that it works between processes. */
int vmm_export(struct call *c)
{
	struct object *o = handle(c->a[1]);
	int fd;

	if (!o)
		return INVALID_VALUE;
	fd = memfd_create("fakegpu-handle", MFD_CLOEXEC);
	if (fd < 0 || write(fd, &o->size, sizeof(o->size)) != sizeof(o->size))
		return OUT_OF_MEMORY;
	*(int *)c->a[0] = fd;
	return SUCCESS;
}

int vmm_import(struct call *c)
{
	int result = ask(c, IMPORTED, 0);
	u64 size;
	struct object *o;

	if (result)
		return result;
	if (pread((int)c->a[1], &size, sizeof(size), 0) != sizeof(size))
		return INVALID_VALUE;
	o = add(K_HANDLE, new_handle(), size);
	o->refs = 1;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

int vmm_granularity(struct call *c)
{
	*(u64 *)c->a[0] = GRANULARITY;
	return SUCCESS;
}

/* A multicast object has no memory of its own, but it is released as a handle is. */
int multicast_create(struct call *c)
{
	struct object *o = add(K_HANDLE, new_handle(), 0);

	o->refs = 1;
	o->device = -1;
	*(u64 *)c->a[0] = c->pointer = o->key;
	return SUCCESS;
}
