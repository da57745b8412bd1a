// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Where a driver function's size and pointer are; the rules are agent/gpuapi's, with its numbers.
#pragma once
#include "state.h"

enum size_kind { SIZE_NONE, SIZE_ARGUMENT, SIZE_ARGUMENT_32, SIZE_PITCH, SIZE_ARRAY, SIZE_ARRAY_3D, SIZE_MIPMAPPED, SIZE_PITCH_32 };
enum pointer_kind { POINTER_NONE, POINTER_OUT, POINTER_OUT_32, POINTER_ARGUMENT, POINTER_ARGUMENT_32 };

// The arguments of the System V ABI that are in registers. r9 by name: bpf_tracing.h of libbpf 1.1 stops at 5.
static __always_inline void read_arguments(struct pt_regs *ctx, struct call *c)
{
	c->arguments[0] = PT_REGS_PARM1(ctx);
	c->arguments[1] = PT_REGS_PARM2(ctx);
	c->arguments[2] = PT_REGS_PARM3(ctx);
	c->arguments[3] = PT_REGS_PARM4(ctx);
	c->arguments[4] = PT_REGS_PARM5(ctx);
	c->arguments[5] = ctx->r9;
}

// The n-th argument, counted from 1.
static __always_inline u64 argument(struct call *c, u32 n)
{
	return c->arguments[(n - 1) & 7];
}

// Bytes of one element of CUarray_format (cuda.h).
static __always_inline u64 format_bytes(u32 format)
{
	switch (format) {
	case 0x01: case 0x08: return 1;
	case 0x02: case 0x09: case 0x10: return 2;
	case 0x03: case 0x0a: case 0x20: return 4;
	}
	return 0;
}

// CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR (cuda.h).
struct array_2d { u64 width, height; u32 format, channels; };
struct array_3d { u64 width, height, depth; u32 format, channels, flags, pad; };

static __always_inline u64 least_1(u64 n) { return n ? n : 1; }

static __always_inline int size_on_entry(struct task_state *s, struct call_row *row, struct call *c)
{
	struct array_2d *a2 = (void *)s->text;
	struct array_3d *a3 = (void *)s->text;
	u64 first = argument(c, row->size_arg), second = argument(c, row->size_arg2);

	c->size = 0;

	switch (row->size_kind) {
	case SIZE_ARGUMENT:
		c->size = first;
		break;
	case SIZE_ARGUMENT_32:
		c->size = (u32)first;
		break;
	case SIZE_ARRAY:
		if (bpf_probe_read_user(a2, sizeof(*a2), (void *)first))
			return -1;
		c->size = a2->width * least_1(a2->height) * a2->channels * format_bytes(a2->format);
		break;
	case SIZE_ARRAY_3D:
	case SIZE_MIPMAPPED:
		if (bpf_probe_read_user(a3, sizeof(*a3), (void *)first))
			return -1;
		u64 element = a3->channels * format_bytes(a3->format);
		u64 w = a3->width, h = least_1(a3->height), d = least_1(a3->depth);
		u32 levels = row->size_kind == SIZE_MIPMAPPED ? second : 1;
		for (u32 i = 0; i < 32 && i < levels; i++) {
			c->size += w * h * d * element;
			w = least_1(w >> 1);
			h = least_1(h >> 1);
			d = least_1(d >> 1);
		}
		break;
	}
	return 0;
}

// The pitch that the driver chose; a call that failed wrote none, and then the width that was asked for stands.
static __always_inline int size_on_return(struct call_row *row, struct call *c, int success)
{
	u64 pitch = argument(c, row->size_arg + 1), height = argument(c, row->size_arg2);
	u32 narrow = row->size_kind == SIZE_PITCH_32;

	if (row->size_kind != SIZE_PITCH && !narrow)
		return 0;
	if (narrow) {
		pitch = (u32)pitch;
		height = (u32)height;
	}
	if (success && narrow)
		pitch = 0;
	if (success && bpf_probe_read_user(&pitch, narrow ? 4 : 8, (void *)argument(c, row->size_arg)))
		return -1;
	c->size = pitch * height;
	return 0;
}

static __always_inline int pointer_on_return(struct call_row *row, struct call *c, u64 *pointer)
{
	u64 out = argument(c, row->pointer_arg);
	u32 narrow = 0;
	switch (row->pointer_kind) {
	case POINTER_OUT:
		return bpf_probe_read_user(pointer, 8, (void *)out);
	case POINTER_OUT_32:
		if (bpf_probe_read_user(&narrow, 4, (void *)out))
			return -1;
		*pointer = narrow;
		return 0;
	default:
		*pointer = out;
	}
	return 0;
}
