/* Stream-ordered memory. A pool takes memory from its device in steps and keeps what was freed up to its threshold; the
 * bytes of an allocation are used from the pool. Frees take effect at once: there is no stream to wait for. */
#include "fakegpu.h"
#include <stdio.h>

#define STEP (32ull << 20)

/* CUmemPool_attribute (cuda.h). */
enum { RELEASE_THRESHOLD = 4, RESERVED_CURRENT = 5, USED_CURRENT = 7 };

static u64 steps(u64 bytes) { return (bytes + STEP - 1) / STEP * STEP; }

static struct object *new_pool(int device)
{
	struct object *o = add(K_POOL, new_handle(), 0);
	o->device = device;
	return o;
}

static struct object *default_pool(int device)
{
	struct device *d = &devices[device];

	if (!d->default_pool)
		d->default_pool = new_pool(device);
	if (!d->pool)
		d->pool = d->default_pool;
	return d->default_pool;
}

static struct object *pool(u64 key)
{
	struct object *o = find(K_POOL, key);
	return o && !o->dead ? o : 0;
}

static void shrink(struct object *p, u64 keep)
{
	u64 want = steps(p->used) > keep ? steps(p->used) : keep;

	if (want >= p->reserved)
		return;
	refund(p->device, p->reserved - want);
	p->reserved = want;
}

static void settle(struct object *p)
{
	if (!p->dead || p->used)
		return;
	shrink(p, 0);
	old_handle(p->key);
	drop(p);
}

static int from(struct call *c, struct object *p)
{
	int result = SUCCESS;
	u64 address, need = steps(p->used + c->size);
	struct object *o, *context = current(&result);

	if (result)
		return result;
	if (need > p->reserved) {
		if ((result = charge(p->device, need - p->reserved)))
			return result;
		p->reserved = need;
	}
	address = new_address(c->size);
	if (!address)
		return OUT_OF_MEMORY;
	p->used += c->size;
	o = add(K_DEVICE, address, c->size);
	o->device = p->device;
	o->context = context;
	o->backing = p;
	*(u64 *)c->a[0] = address;
	return gave(c, o);
}

int pool_alloc(struct call *c)
{
	int result = ask(c, POOL, c->a[1]);
	struct object *context = result ? 0 : current(&result);

	if (result)
		return result;
	default_pool(context->device);
	return from(c, devices[context->device].pool);
}

int pool_alloc_from(struct call *c)
{
	struct object *p = pool(c->a[2]);
	int result = ask(c, POOL, c->a[1]);

	return result ? result : p ? from(c, p) : INVALID_VALUE;
}

void pool_return(struct object *o)
{
	struct object *p = o->backing;

	p->used -= o->size;
	shrink(p, p->threshold);
	settle(p);
}

/* CUmemPoolProps: the location's device is at byte 12. */
int pool_create(struct call *c)
{
	int device = ((const int *)c->a[1])[3];

	if (device < 0 || device >= n_devices)
		return INVALID_VALUE;
	*(u64 *)c->a[0] = c->pointer = new_pool(device)->key;
	return SUCCESS;
}

int pool_destroy(struct call *c)
{
	struct object *p = pool(c->a[0]);

	if (!p || p == devices[p->device].default_pool)
		return INVALID_VALUE;
	if (devices[p->device].pool == p)
		devices[p->device].pool = default_pool(p->device);
	p->dead = true;
	p->threshold = 0;
	settle(p);
	return SUCCESS;
}

int pool_trim(struct call *c)
{
	struct object *p = pool(c->a[0]);

	if (!p)
		return INVALID_VALUE;
	shrink(p, c->a[1]);
	return SUCCESS;
}

int pool_set_attribute(struct call *c)
{
	struct object *p = pool(c->a[0]);

	if (!p)
		return INVALID_VALUE;
	if ((u32)c->a[1] == RELEASE_THRESHOLD)
		p->threshold = *(u64 *)c->a[2];
	return SUCCESS;
}

int pool_get_attribute(struct call *c)
{
	struct object *p = pool(c->a[0]);

	if (!p)
		return INVALID_VALUE;
	switch ((u32)c->a[1]) {
	case RELEASE_THRESHOLD: *(u64 *)c->a[2] = p->threshold; break;
	case RESERVED_CURRENT: *(u64 *)c->a[2] = p->reserved; break;
	case USED_CURRENT: *(u64 *)c->a[2] = p->used; break;
	default: return NOT_SUPPORTED;
	}
	return SUCCESS;
}

/* CUmemPoolPtrExportData is 64 bytes that only the driver reads. */
int pool_export(struct call *c)
{
	struct object *o = find(K_DEVICE, c->a[1]);

	if (!o || o->class != POOL)
		return INVALID_VALUE;
	*(u64 *)c->a[0] = o->size;
	return SUCCESS;
}

int pool_import(struct call *c)
{
	u64 size = *(const u64 *)c->a[2];
	int result = ask(c, IMPORTED, 0);
	struct object *o;

	if (result)
		return result;
	if (!pool(c->a[1]) || !size)
		return INVALID_VALUE;
	o = add(K_DEVICE, new_address(size), size);
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

static int with_device(struct call *c, int device, struct object **p)
{
	(void)c;
	if (device < 0 || device >= n_devices)
		return INVALID_DEVICE;
	default_pool(device);
	*p = devices[device].pool;
	return SUCCESS;
}

int pool_default(struct call *c)
{
	struct object *p;
	int result = with_device(c, c->a[1], &p);

	if (!result)
		*(u64 *)c->a[0] = devices[(int)c->a[1]].default_pool->key;
	return result;
}

int pool_get(struct call *c)
{
	struct object *p;
	int result = with_device(c, c->a[1], &p);

	if (!result)
		*(u64 *)c->a[0] = p->key;
	return result;
}

int pool_set(struct call *c)
{
	struct object *p = pool(c->a[1]), *was;
	int result = with_device(c, c->a[0], &was);

	if (result)
		return result;
	if (!p || p->device != (int)c->a[0])
		return INVALID_VALUE;
	devices[(int)c->a[0]].pool = p;
	return SUCCESS;
}
