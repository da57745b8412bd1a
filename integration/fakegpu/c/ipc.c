/* Memory of other processes and of other APIs: it is mapped here, and it is not new. */
#include "fakegpu.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The 64 bytes of a CUipcMemHandle hold text: who exported what, and how much. */
#define HANDLE "fakegpu %d %" PRIx64 " %" PRIx64

int ipc_get(struct call *c)
{
	struct object *o = find(K_DEVICE, c->a[1]);
	char text[64] = {0};

	if (!o || o->class == MANAGED)
		return INVALID_VALUE;
	snprintf(text, sizeof(text), HANDLE, getpid(), o->key, o->size);
	memcpy((void *)c->a[0], text, sizeof(text));
	return SUCCESS;
}

struct opened { int pid; u64 from; struct object *found; };

/* The exporter's address and process are kept in `used` and `reserved`, which only pools use otherwise. */
static void same(struct object *o, void *with)
{
	struct opened *w = with;
	if (o->kind == K_IPC && o->used == w->from && o->reserved == (u64)w->pid)
		w->found = o;
}

int ipc_open(struct call *c)
{
	struct opened w = {0};
	u64 size;
	int result = ask(c, IMPORTED, 0);
	struct object *context = result ? 0 : current(&result);

	if (result)
		return result;
	if (sscanf(c->text, HANDLE, &w.pid, &w.from, &size) != 3 || !size)
		return INVALID_HANDLE;
	if (w.pid == getpid())
		return INVALID_CONTEXT; /* the exporter has it already */
	each(same, &w);
	if (!w.found) {
		w.found = add(K_IPC, new_address(size), size);
		w.found->device = context->device;
		w.found->context = context;
		w.found->used = w.from;
		w.found->reserved = w.pid;
	}
	w.found->refs++;
	*(u64 *)c->a[0] = w.found->key;
	return gave(c, w.found);
}

int ipc_close(struct call *c)
{
	struct object *o = find(K_IPC, c->a[0]);

	if (!o)
		return INVALID_VALUE;
	if (--o->refs) {
		ledger_freed(IMPORTED, 0);
		return SUCCESS;
	}
	old_address(o->key, o->size);
	end(o);
	return SUCCESS;
}

/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC, ..._BUFFER_DESC and ..._MIPMAPPED_ARRAY_DESC (cuda.h). */
struct external { u32 type; u64 handle[2]; u64 size; u32 flags; };
struct buffer { u64 offset, size; u32 flags; };
struct mipmapped { u64 offset; u64 shape[5]; u32 levels; };

int external_import(struct call *c)
{
	const struct external *d = (void *)c->a[1];
	struct object *o;

	if (!d->size)
		return INVALID_VALUE;
	o = add(K_EXTERNAL, new_handle(), d->size);
	*(u64 *)c->a[0] = c->pointer = o->key;
	return SUCCESS;
}

int external_buffer(struct call *c)
{
	const struct buffer *d = (void *)c->a[2];
	struct object *e = find(K_EXTERNAL, c->a[1]), *o;
	int result = ask(c, IMPORTED, 0);
	struct object *context = result ? 0 : current(&result);

	if (result)
		return result;
	if (!e || !d->size || d->offset > e->size || d->size > e->size - d->offset)
		return INVALID_VALUE;
	o = add(K_DEVICE, new_address(d->size), d->size);
	o->device = context->device;
	o->context = context;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

int external_mipmapped(struct call *c)
{
	const struct mipmapped *d = (void *)c->a[2];
	struct object *e = find(K_EXTERNAL, c->a[1]), *o;
	int result = ask(c, IMPORTED, 0);
	struct object *context = result ? 0 : current(&result);

	if (result)
		return result;
	if (!e || !d->levels)
		return INVALID_VALUE;
	o = add(K_MIPMAPPED, new_handle(), descriptor_bytes(d->shape, d->levels));
	o->device = context->device;
	o->context = context;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

int external_destroy(struct call *c)
{
	struct object *o = find(K_EXTERNAL, c->a[0]);

	if (!o)
		return INVALID_HANDLE;
	old_handle(o->key);
	drop(o);
	return SUCCESS;
}
