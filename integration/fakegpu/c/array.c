/* Arrays and mipmapped arrays. Their bytes are what the shape needs; the real driver pads. */
#include "fakegpu.h"

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR (cuda.h). */
struct descriptor { u64 width, height; u32 format, channels; };
struct descriptor_3d { u64 width, height, depth; u32 format, channels, flags; };

/* CUarray_format: 8, 16 and 32 bits, unsigned, signed and floating point. */
static u64 element(u32 format, u32 channels)
{
	static const unsigned char bytes[64] = {
		[0x01] = 1, [0x02] = 2, [0x03] = 4, [0x08] = 1, [0x09] = 2, [0x0a] = 4, [0x10] = 2, [0x20] = 4,
	};
	return format < sizeof(bytes) && (channels == 1 || channels == 2 || channels == 4) ? bytes[format] * channels : 0;
}

u64 descriptor_bytes(const void *array3d, u32 levels)
{
	const struct descriptor_3d *d = array3d;
	u64 sum = 0;

	for (u32 level = 0; level < levels && level < 32; level++) {
		u64 w = d->width >> level, h = d->height >> level, deep = d->depth >> level;
		sum += (w ? w : 1) * (h ? h : 1) * (deep ? deep : 1) * element(d->format, d->channels);
	}
	return sum;
}

static int create(struct call *c, enum kind kind, u64 size)
{
	int result = ask(c, ARRAY, size);
	struct object *context = result ? 0 : current(&result), *o;

	if (result || (result = charge(context->device, size)))
		return result;
	o = add(kind, new_handle(), size);
	o->device = context->device;
	o->context = context;
	*(u64 *)c->a[0] = o->key;
	return gave(c, o);
}

int array_create(struct call *c)
{
	const struct descriptor *d = (void *)c->a[1];
	return create(c, K_ARRAY, d->width * (d->height ? d->height : 1) * element(d->format, d->channels));
}

int array_create_3d(struct call *c) { return create(c, K_ARRAY, descriptor_bytes((void *)c->a[1], 1)); }
int mipmapped_create(struct call *c) { return create(c, K_MIPMAPPED, descriptor_bytes((void *)c->a[1], c->a[2])); }

static int destroy(enum kind kind, u64 handle)
{
	struct object *o = find(kind, handle);

	if (!o)
		return INVALID_HANDLE;
	if (o->class == ARRAY)
		refund(o->device, o->size);
	old_handle(handle);
	end(o);
	return SUCCESS;
}

int array_destroy(struct call *c) { return destroy(K_ARRAY, c->a[0]); }
int mipmapped_destroy(struct call *c) { return destroy(K_MIPMAPPED, c->a[0]); }
