// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The Python walk: from the thread state, which the C library keeps by a key that survives a released GIL, along the
// frames. It does not depend on the native walk; agent/stack puts the two together by stack address.
#pragma once
#include "native.h"

// A 64-bit field of s->frame or s->code.
#define FRAME_FIELD(o) (*(u64 *)&s->frame[(o) & 120])

static __always_inline u64 fold(u64 h, u64 word)
{
	h = (h ^ word) * 0x9fb21c651e98df25ull;
	return h ^ h >> 32;
}

// What tells a code object from another that later stands at its address: co_version from 3.12 on; before that its own
// words from co_firstlineno to the line table, and what its name and file name begin with.
__noinline u64 code_identity(struct task_state *s, struct python *p, u64 code)
{
	if (!s || !p)
		return 0;
	u64 h = 0;
	u32 first = p->code_first, size = p->code_last - first;
	if (p->code_last < first || size > sizeof(s->code) || bpf_probe_read_user(s->code, size, (void *)(code + first)))
		return 0;
#pragma nounroll
	for (u32 i = 0; i < sizeof(s->code) / 8; i++) {
		if (i * 8 >= size)
			break;
		h = fold(h, *(u64 *)&s->code[i * 8]);
	}
	if (p->deep) {
		u32 name = p->code_name - first, filename = p->code_filename - first;
#pragma nounroll
		for (u32 k = 0; k < 2; k++) {
			u64 of = *(u64 *)&s->code[(k ? filename : name) & 120];
			if (bpf_probe_read_user(s->text, sizeof(s->text), (void *)(of + p->string_length)))
				continue;
#pragma nounroll
			for (u32 i = 0; i < sizeof(s->text) / 8; i++)
				h = fold(h, *(u64 *)&s->text[i * 8]);
		}
	}
	return h;
}

// Notes what this frame's part in the walk depended on. Frames lie on a data stack of their own, read as a whole by
// same_python; a shim frame lies on the C stack.
__noinline int keep_frame(struct reused *r, struct task_state *s, u64 at, u64 previous, u64 entry)
{
	if (!r || !s)
		return 0;
	u64 above = at - s->walk.sp0, below = r->newest - at;
	u32 n = r->frames;
	if (above < REUSE_SPAN) {
		r->shims++;
		return 1;
	}
	if (n >= REUSE_FRAMES || below > REUSE_SPAN - 128) {
		r->frames = REUSE_NEVER;
		return 0;
	}
	struct reused_frame *f = &r->frame[n & (REUSE_FRAMES - 1)];
	struct python_frame *now = &s->python.frames[s->walk.python_n & (MAX_PYTHON - 1)];
	f->previous = previous;
	f->code = now->code;
	f->instruction = now->instruction;
	f->identity = now->identity;
	f->below = below;
	f->entry = entry;
	r->frames = n + 1;
	if (below > r->depth)
		r->depth = below;
	return 0;
}

static long python_step(u32 i, struct walker *w)
{
	struct task_state *s = w->s;
	struct walk *k = &s->walk;
	struct python *p = &w->image->python;
	u32 n = k->python_n, size = p->f_size;
	u64 at = k->frame;

	if (!at) {
		k->python_stop = STOP_COMPLETE;
		return 1;
	}
	if (n >= MAX_PYTHON) {
		k->python_stop = STOP_DEPTH;
		return 1;
	}
	if (size > sizeof(s->frame) || bpf_probe_read_user(s->frame, size, (void *)at)) {
		k->python_stop = STOP_LAYOUT;
		return 1;
	}
	u64 code = FRAME_FIELD(p->f_code) & ~(u64)p->code_tag, previous = FRAME_FIELD(p->f_previous);
	u64 instruction = p->instruction_size == 4 ? *(u32 *)&s->frame[p->f_instruction & 124] : FRAME_FIELD(p->f_instruction);
	u8 entry = s->frame[p->f_entry & 127] == p->entry_value || p->entry_kind == ENTRY_ALWAYS;
	u64 anchor = 0, identity = 0;

	if (entry && p->entry_kind == ENTRY_SHIM) {
		anchor = at;
		code = instruction = 0;
	} else {
		identity = code_identity(s, p, code);
		if (entry) {
			u64 to = 0, field = k->cframe + p->cf_previous;
			anchor = k->cframe;
			if (!READ(to, field))
				keep(w, field, to);
			k->cframe = to;
		}
	}
	struct python_frame *f = &s->python.frames[n & (MAX_PYTHON - 1)];
	f->code = code;
	f->instruction = instruction;
	f->anchor = anchor;
	f->identity = identity;
	if (keep_frame(w->reused, s, at, previous, s->frame[p->f_entry & 127]))
		keep(w, at + p->f_previous, previous);
	mix(&k->python_hi, &k->python_lo, code);
	mix(&k->python_hi, &k->python_lo, instruction);
	mix(&k->python_hi, &k->python_lo, identity ^ !!anchor);
	k->python_n = n + 1;
	k->frame = previous;
	return 0;
}

// glibc's struct pthread keeps the first 32 keys in itself, {sequence, value} each, and from there on an array of 32
// pointers to blocks of 32 (nptl/descr.h: specific_1stblock, specific).
static __always_inline int thread_state(struct python *p, u64 *tstate)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u64 at = t->thread.fsbase + p->thread_keys, block = 0;
	u32 key = 0;

	if (READ(key, p->key) || key >= 1024)
		return -1;
	if (key >= 32) {
		if (READ(block, at + 32 * 16 + key / 32 * 8) || !block)
			return -1;
		at = block;
	}
	return READ(*tstate, at + (key & 31) * 16 + 8);
}

static __noinline void walk_python(struct walker *w)
{
	struct task_state *s = w->s;
	struct walk *k = &s->walk;
	struct reused *r = w->reused;
	u64 tstate = 0;

	r->words = r->native_words;
	r->frames = r->depth = r->shims = 0;
	r->tstate = r->top = r->newest = 0;
	k->python_n = 0;
	k->python_hi = hash_seed[1];
	k->python_lo = hash_seed[0];
	k->python_stop = STOP_DEPTH;
	k->frame = k->cframe = 0;
	struct python *p = w->image ? &w->image->python : 0;
	if (!p || !p->key) {
		k->python_stop = p ? STOP_NONE : STOP_NO_IMAGE;
	} else if (thread_state(p, &tstate)) {
		k->python_stop = STOP_LAYOUT;
		r->frames = REUSE_NEVER;
	} else if (!tstate) {
		k->python_stop = STOP_NONE;
	} else {
		u32 bad = 0;
		if (p->ts_cframe) {
			bad |= !!READ(k->cframe, tstate + p->ts_cframe);
			r->top = k->cframe;
		}
		if (p->cf_frame != 0xffff) {
			bad |= !!READ(k->frame, k->cframe + p->cf_frame);
			keep(w, k->cframe + p->cf_frame, k->frame);
		} else {
			bad |= !!READ(k->frame, tstate + p->ts_frame);
			r->top = k->frame;
		}
		r->tstate = tstate;
		r->newest = k->frame;
		if (bad)
			k->python_stop = STOP_LAYOUT;
		else
			bpf_loop(MAX_PYTHON + 1, python_step, w, 0);
		// 3.10: frames are objects of the heap, without an order that one read could cover
		if (k->python_stop != STOP_COMPLETE || p->entry_kind == ENTRY_ALWAYS)
			r->frames = REUSE_NEVER;
	}
	r->python = k->python_n;
	r->python_stop = k->python_stop;
	r->python_hi = k->python_hi;
	r->python_lo = k->python_lo;
}

__noinline int same_python(struct task_state *s, struct reused *r, struct python *p)
{
	if (!s || !r || !p)
		return 0;
	u64 tstate = 0, top = 0, different = 0;
	u32 n = r->frames, depth = r->depth, size = p->f_size;
	if (n > REUSE_FRAMES || thread_state(p, &tstate) || tstate != r->tstate)
		return 0;
	if (!tstate)
		return 1;
	if (READ(top, tstate + (p->ts_cframe ? p->ts_cframe : p->ts_frame)) || top != r->top)
		return 0;
	if (depth > REUSE_SPAN - 128 || size > 128 || bpf_probe_read_user(s->copy, depth + size, (void *)(r->newest - depth)))
		return 0;
	for (u32 i = 0; i < REUSE_FRAMES; i++) {
		if (i >= n)
			break;
		struct reused_frame *f = &r->frame[i];
		u32 at = (depth - f->below) & (REUSE_SPAN - 8);
		if (at > REUSE_SPAN - 128)
			return 0;
		u8 *b = &s->copy[at];
		different |= *(u64 *)(b + (p->f_previous & 120)) ^ f->previous;
		different |= (*(u64 *)(b + (p->f_code & 120)) & ~(u64)p->code_tag) ^ f->code;
		different |= *(u64 *)(b + (p->f_instruction & 120)) ^ f->instruction;
		different |= b[p->f_entry & 127] ^ f->entry;
	}
	if (different)
		return 0;
	for (u32 i = 0; i < REUSE_FRAMES; i++) {
		if (i >= n)
			break;
		different |= code_identity(s, p, r->frame[i].code) ^ r->frame[i].identity;
	}
	return !different;
}
