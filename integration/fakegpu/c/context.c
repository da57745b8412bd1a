/* Contexts: the end of one frees what was allocated in it. */
#include "fakegpu.h"
#include <stdlib.h>
#include <sys/mman.h>

/* Contexts are few and are never forgotten, so that a thread's stack cannot hold a stale pointer. */
#define STACK 16
static __thread struct object *stack[STACK];
static __thread int depth;

static struct object *new_context(int device)
{
	struct object *o = add(K_CONTEXT, new_handle(), 0);
	o->device = device;
	return o;
}

struct object *primary(int device)
{
	if (!devices[device].primary)
		devices[device].primary = new_context(device);
	return devices[device].primary;
}

/* The thread's context. A thread that has none gets device 0's, since programs for the fake driver may be short. */
struct object *current(int *result)
{
	struct object *o = depth ? stack[depth - 1] : 0;

	if (!n_devices) {
		*result = INVALID_CONTEXT;
		return 0;
	}
	if (!o)
		o = primary(0);
	if (o->dead)
		*result = CONTEXT_IS_DESTROYED;
	return o;
}

static void free_owned(struct object *o, void *with)
{
	if (o->context != with)
		return;
	switch (o->kind) {
	case K_DEVICE:
		if (o->class == POOL)
			return; /* belongs to its pool, and that to the device */
		if (o->class == DEVICE)
			refund(o->device, o->size);
		if (o->class == MANAGED)
			munmap((void *)o->key, (o->size + 4095) & ~4095ull);
		else
			old_address(o->key, o->size);
		break;
	case K_HOST:
		free((void *)o->key);
		break;
	case K_ARRAY:
	case K_MIPMAPPED:
		if (o->class == ARRAY)
			refund(o->device, o->size);
		old_handle(o->key);
		break;
	case K_REGISTERED:
		break;
	case K_IPC:
		for (; o->refs > 1; o->refs--)
			ledger_freed(IMPORTED, 0);
		old_address(o->key, o->size);
		break;
	default:
		return;
	}
	end(o);
}

static int with_device(u64 n, int *device)
{
	*device = (int)n;
	return *device >= 0 && *device < n_devices ? SUCCESS : INVALID_DEVICE;
}

static struct object *context(u64 key)
{
	struct object *o = find(K_CONTEXT, key);
	return o && !o->dead ? o : 0;
}

int context_create(struct call *c)
{
	int device, result = with_device(c->a[2], &device);

	if (result)
		return result;
	if (depth == STACK)
		return OUT_OF_MEMORY;
	stack[depth++] = new_context(device);
	*(u64 *)c->a[0] = c->pointer = stack[depth - 1]->key;
	return SUCCESS;
}

int context_destroy(struct call *c)
{
	struct object *o = context(c->a[0]);

	if (!o || o == devices[o->device].primary)
		return INVALID_CONTEXT;
	each(free_owned, o);
	o->dead = true;
	if (depth && stack[depth - 1] == o)
		depth--;
	return SUCCESS;
}

int context_get(struct call *c)
{
	*(u64 *)c->a[0] = depth && stack[depth - 1] ? stack[depth - 1]->key : 0;
	return SUCCESS;
}

int context_set(struct call *c)
{
	struct object *o = context(c->a[0]);

	if (c->a[0] && !o)
		return INVALID_CONTEXT;
	if (!depth)
		depth = 1;
	stack[depth - 1] = o;
	return SUCCESS;
}

int context_push(struct call *c)
{
	struct object *o = context(c->a[0]);

	if (!o || depth == STACK)
		return INVALID_CONTEXT;
	stack[depth++] = o;
	return SUCCESS;
}

int context_pop(struct call *c)
{
	struct object *o = depth ? stack[depth - 1] : 0;

	if (!o)
		return INVALID_CONTEXT;
	depth--;
	if (c->a[0])
		*(u64 *)c->a[0] = o->key;
	return SUCCESS;
}

int context_device(struct call *c)
{
	int result = SUCCESS;
	struct object *o = current(&result);

	if (!result)
		*(int *)c->a[0] = o->device;
	return result;
}

int stream_priorities(struct call *c)
{
	if (c->a[0])
		*(int *)c->a[0] = 0;
	if (c->a[1])
		*(int *)c->a[1] = -5;
	return SUCCESS;
}

int primary_retain(struct call *c)
{
	int device, result = with_device(c->a[1], &device);

	if (result)
		return result;
	devices[device].primary_refs++;
	*(u64 *)c->a[0] = c->pointer = primary(device)->key;
	return SUCCESS;
}

/* Only the last reference frees. */
int primary_release(struct call *c)
{
	int device, result = with_device(c->a[0], &device);

	if (result)
		return result;
	if (!devices[device].primary_refs)
		return INVALID_CONTEXT;
	if (!--devices[device].primary_refs)
		each(free_owned, primary(device));
	return SUCCESS;
}

int primary_reset(struct call *c)
{
	int device, result = with_device(c->a[0], &device);

	if (!result)
		each(free_owned, primary(device));
	return result;
}

int primary_state(struct call *c)
{
	int device, result = with_device(c->a[0], &device);

	if (result)
		return result;
	if (c->a[1])
		*(u32 *)c->a[1] = 0;
	if (c->a[2])
		*(int *)c->a[2] = devices[device].primary_refs > 0;
	return SUCCESS;
}
