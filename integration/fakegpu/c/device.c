/* The driver itself: devices, errors, and the look-up of functions by name. */
#include "fakegpu.h"
#include <stdio.h>
#include <string.h>

#define VERSION 12040

int nothing(struct call *c) { (void)c; return SUCCESS; }
int init(struct call *c) { return c->a[0] ? INVALID_VALUE : n_devices ? SUCCESS : 100 /* CUDA_ERROR_NO_DEVICE */; }

int driver_version(struct call *c)
{
	*(int *)c->a[0] = VERSION;
	return SUCCESS;
}

int device_count(struct call *c)
{
	*(int *)c->a[0] = n_devices;
	return SUCCESS;
}

int device_get(struct call *c)
{
	int n = (int)c->a[1];

	if (n < 0 || n >= n_devices)
		return INVALID_DEVICE;
	*(int *)c->a[0] = n;
	return SUCCESS;
}

static struct device *device(u64 n) { return (u32)n < (u32)n_devices ? &devices[(u32)n] : 0; }

int device_name(struct call *c)
{
	if (!device(c->a[2]) || (int)c->a[1] <= 0)
		return INVALID_DEVICE;
	snprintf((char *)c->a[0], (int)c->a[1], "Fake GPU");
	return SUCCESS;
}

int device_get_uuid(struct call *c)
{
	struct device *d = device(c->a[1]);

	if (!d)
		return INVALID_DEVICE;
	device_uuid(d->number, (unsigned char *)c->a[0]);
	return SUCCESS;
}

int device_pci(struct call *c)
{
	struct device *d = device(c->a[2]);

	if (!d || (int)c->a[1] <= 0)
		return INVALID_DEVICE;
	snprintf((char *)c->a[0], (int)c->a[1], "0000:%02x:00.0", d->number + 1);
	return SUCCESS;
}

int device_total(struct call *c)
{
	if (!device(c->a[1]))
		return INVALID_DEVICE;
	*(u64 *)c->a[0] = capacity;
	return SUCCESS;
}

int device_total_32(struct call *c)
{
	if (!device(c->a[1]))
		return INVALID_DEVICE;
	*(u32 *)c->a[0] = capacity > UINT32_MAX ? UINT32_MAX : capacity;
	return SUCCESS;
}

/* CUdevice_attribute (cuda.h); others are 1. */
int device_attribute(struct call *c)
{
	struct device *d = device(c->a[2]);
	int *value = (int *)c->a[0];

	if (!d)
		return INVALID_DEVICE;
	switch ((u32)c->a[1]) {
	case 1: *value = 1024; break;           /* MAX_THREADS_PER_BLOCK */
	case 10: *value = 32; break;            /* WARP_SIZE */
	case 16: *value = 132; break;           /* MULTIPROCESSOR_COUNT */
	case 33: *value = d->number + 1; break; /* PCI_BUS_ID */
	case 34: case 50: *value = 0; break;    /* PCI_DEVICE_ID, PCI_DOMAIN_ID */
	case 75: *value = 9; break;             /* COMPUTE_CAPABILITY_MAJOR */
	case 76: *value = 0; break;             /* COMPUTE_CAPABILITY_MINOR */
	default: *value = 1;
	}
	return SUCCESS;
}

static const struct { int code; const char *name, *text; } errors[] = {
	{ SUCCESS, "CUDA_SUCCESS", "no error" },
	{ INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed" },
	{ HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the memory is registered" },
	{ HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the memory is not registered" },
	{ NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
};

static int describe(struct call *c, bool name)
{
	const char **out = (const char **)c->a[1];

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].code == (int)c->a[0]) {
			*out = name ? errors[i].name : errors[i].text;
			return SUCCESS;
		}
	*out = 0;
	return INVALID_VALUE;
}

int error_name(struct call *c) { return describe(c, true); }
int error_string(struct call *c) { return describe(c, false); }

/* cuGetProcAddress(name, void **function, version, flags[, CUdriverProcAddressQueryResult *]): the newest variant that the
 * version knows; flag 2 asks for the one with a default stream for each thread. As driver 550 does: a name with a suffix
 * is unknown; what is not found gives a null pointer and success where a status is asked for, else CUDA_ERROR_NOT_FOUND
 * and the pointer as it was. */
int proc_address(struct call *c)
{
	const struct function *best = 0;
	bool known = false, v2 = c->function->arguments == 5;
	int *status = v2 ? (int *)c->a[4] : 0, version = (int)c->a[2];

	if (!c->a[0] || !c->a[1])
		return INVALID_VALUE;
	c->text = (const char *)c->a[0];
	for (const struct function *f = functions; f < functions + n_functions; f++) {
		size_t n = strlen(f->symbol);
		bool per_thread = n > 5 && !strcmp(f->symbol + n - 5, "_ptsz");
		if (strcmp(f->base, c->text))
			continue;
		known = true;
		if (f->since > version || (per_thread && !(c->a[3] & 2)))
			continue;
		if (!best || f->since > best->since || (f->since == best->since && per_thread))
			best = f;
	}
	if (status)
		*status = best ? 0 : known ? 2 : 1; /* SUCCESS, VERSION_NOT_SUFFICIENT, SYMBOL_NOT_FOUND */
	if (best || v2)
		*(void **)c->a[1] = best ? best->address : 0;
	return best || status ? SUCCESS : NOT_FOUND;
}
