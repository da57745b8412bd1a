/* Device, managed and pinned memory, and what can be asked about a pointer. */
#define _GNU_SOURCE
#include "fakegpu.h"
#include <stdlib.h>
#include <sys/mman.h>

static u64 page(u64 size) { return (size + 4095) & ~4095ull; }

/* Memory on the current device, at an address of 32 bits for the functions from before CUDA 3.2. */
static int device_memory(struct call *c, u64 size, bool narrow)
{
	int result = ask(c, DEVICE, size);
	struct object *context = result ? 0 : current(&result), *o;
	u64 address;

	if (result || (result = charge(context->device, size)))
		return result;
	address = narrow ? new_address_32(size) : new_address(size);
	if (!address) {
		refund(context->device, size);
		return OUT_OF_MEMORY;
	}
	o = add(K_DEVICE, address, size);
	o->device = context->device;
	o->context = context;
	return gave(c, o);
}

int mem_alloc(struct call *c)
{
	int result = device_memory(c, c->a[1], false);
	if (!result)
		*(u64 *)c->a[0] = c->pointer;
	return result;
}

int mem_alloc_32(struct call *c)
{
	int result = device_memory(c, (u32)c->a[1], true);
	if (!result)
		*(u32 *)c->a[0] = c->pointer;
	return result;
}

/* Rows of 512 bytes at least, as on devices so far. A call that fails is taken to have asked for rows without padding. */
static u64 pitch_of(u64 width) { return (width + 511) & ~511ull; }

static int pitched(struct call *c, u64 width, u64 height, bool narrow)
{
	int result = device_memory(c, pitch_of(width) * height, narrow);
	if (result)
		c->size = width * height;
	return result;
}

int mem_alloc_pitch(struct call *c)
{
	int result = pitched(c, c->a[2], c->a[3], false);
	if (!result) {
		*(u64 *)c->a[0] = c->pointer;
		*(u64 *)c->a[1] = pitch_of(c->a[2]);
	}
	return result;
}

int mem_alloc_pitch_32(struct call *c)
{
	int result = pitched(c, (u32)c->a[2], (u32)c->a[3], true);
	if (!result) {
		*(u32 *)c->a[0] = c->pointer;
		*(u32 *)c->a[1] = pitch_of((u32)c->a[2]);
	}
	return result;
}

/* Managed memory is the host's until a kernel touches it, so the program may write to it and the device is not charged. */
int mem_alloc_managed(struct call *c)
{
	int result = ask(c, MANAGED, c->a[1]);
	struct object *context = result ? 0 : current(&result), *o;
	void *p;

	if (result)
		return result;
	p = mmap(0, page(c->size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return OUT_OF_MEMORY;
	o = add(K_DEVICE, (u64)p, c->size);
	o->device = context->device;
	o->context = context;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

static int free_device(u64 pointer)
{
	struct object *o = find(K_DEVICE, pointer);

	if (!pointer)
		return SUCCESS;
	if (!o)
		return INVALID_VALUE;
	switch (o->class) {
	case MANAGED:
		munmap((void *)o->key, page(o->size));
		break;
	case POOL:
		pool_return(o);
		old_address(o->key, o->size);
		break;
	case DEVICE:
		refund(o->device, o->size);
		/* fall through */
	default: /* imported, or of a graph */
		old_address(o->key, o->size);
	}
	end(o);
	return SUCCESS;
}

int mem_free(struct call *c) { return free_device(c->a[0]); }
int mem_free_32(struct call *c) { return free_device((u32)c->a[0]); }

static int pinned(struct call *c, u64 size)
{
	int result = ask(c, PINNED, size);
	struct object *context = result ? 0 : current(&result), *o;
	void *p;

	if (result)
		return result;
	p = aligned_alloc(4096, page(size));
	if (!p)
		return OUT_OF_MEMORY;
	o = add(K_HOST, (u64)p, size);
	o->device = context->device;
	o->context = context;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

int host_alloc(struct call *c) { return pinned(c, c->a[1]); }
int host_alloc_32(struct call *c) { return pinned(c, (u32)c->a[1]); }

int host_free(struct call *c)
{
	struct object *o = find(K_HOST, c->a[0]);

	if (!o)
		return INVALID_VALUE;
	free((void *)o->key);
	end(o);
	return SUCCESS;
}

int host_register(struct call *c)
{
	int result = ask(c, REGISTERED, c->a[1]);
	struct object *context = result ? 0 : current(&result), *o;

	if (result)
		return result;
	if (!c->a[0])
		return INVALID_VALUE;
	if (find(K_REGISTERED, c->a[0]))
		return HOST_MEMORY_ALREADY_REGISTERED;
	o = add(K_REGISTERED, c->a[0], c->size);
	o->device = context->device;
	o->context = context;
	return gave(c, o);
}

int host_unregister(struct call *c)
{
	struct object *o = find(K_REGISTERED, c->a[0]);

	if (!o)
		return HOST_MEMORY_NOT_REGISTERED;
	end(o);
	return SUCCESS;
}

int host_device_pointer(struct call *c)
{
	if (!find_around(c->a[1]))
		return INVALID_VALUE;
	*(u64 *)c->a[0] = c->a[1];
	return SUCCESS;
}

int mem_info(struct call *c)
{
	int result = SUCCESS;
	struct object *context = current(&result);

	if (result)
		return result;
	if (c->a[0])
		*(u64 *)c->a[0] = capacity - devices[context->device].used;
	if (c->a[1])
		*(u64 *)c->a[1] = capacity;
	return SUCCESS;
}

static u32 clip(u64 n) { return n > UINT32_MAX ? UINT32_MAX : n; }

int mem_info_32(struct call *c)
{
	int result = SUCCESS;
	struct object *context = current(&result);

	if (result)
		return result;
	if (c->a[0])
		*(u32 *)c->a[0] = clip(capacity - devices[context->device].used);
	if (c->a[1])
		*(u32 *)c->a[1] = clip(capacity);
	return SUCCESS;
}

int mem_range(struct call *c)
{
	struct object *o = find_around(c->a[2]);

	if (!o)
		return INVALID_VALUE;
	if (c->a[0])
		*(u64 *)c->a[0] = o->key;
	if (c->a[1])
		*(u64 *)c->a[1] = o->size;
	return SUCCESS;
}

/* CUpointer_attribute, and CUmemorytype: 1 host, 2 device. */
static int attribute(u64 data, u32 which, const struct object *o, u64 pointer)
{
	bool host = o->kind == K_HOST || o->kind == K_REGISTERED;

	switch (which) {
	case 1: *(u64 *)data = o->context ? o->context->key : 0; break; /* CONTEXT */
	case 2: *(u32 *)data = host ? 1 : 2; break;                     /* MEMORY_TYPE */
	case 3: *(u64 *)data = pointer; break;                          /* DEVICE_POINTER */
	case 4:                                                         /* HOST_POINTER */
		if (!host && o->class != MANAGED)
			return INVALID_VALUE;
		*(u64 *)data = pointer;
		break;
	case 8: *(u32 *)data = o->class == MANAGED; break;              /* IS_MANAGED */
	case 9: *(int *)data = o->device; break;                        /* DEVICE_ORDINAL */
	case 11: *(u64 *)data = o->key; break;                          /* RANGE_START_ADDR */
	case 12: *(u64 *)data = o->size; break;                         /* RANGE_SIZE */
	case 13: *(u32 *)data = 1; break;                               /* MAPPED */
	default: return INVALID_VALUE;
	}
	return SUCCESS;
}

int pointer_attribute(struct call *c)
{
	struct object *o = find_around(c->a[2]);
	return o ? attribute(c->a[0], c->a[1], o, c->a[2]) : INVALID_VALUE;
}

/* Of a pointer that the driver does not know every attribute is 0, and the call succeeds (cuda.h). */
int pointer_attributes(struct call *c)
{
	struct object none = { .kind = K_HOST }, *o = find_around(c->a[3]);
	const u32 *which = (void *)c->a[1];
	const u64 *data = (void *)c->a[2];

	for (u32 i = 0; i < (u32)c->a[0]; i++)
		if (!o && which[i] == 2)
			*(u32 *)data[i] = 0;
		else
			attribute(data[i], which[i], o ? o : &none, o ? c->a[3] : 0);
	return SUCCESS;
}
