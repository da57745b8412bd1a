// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Taking a stack: recognise or walk it, name it by a hash of its frames, and send the frames once.
#pragma once
#include "python.h"

// The smaller of the two, as a bound that the verifier sees too: the empty asm keeps clang from proving it elsewhere.
static __always_inline u64 at_most(u64 n, u64 most)
{
	asm volatile("" : "+r"(n));
	if (n > most)
		n = most;
	return n;
}

// The copies of a code object and of what it points to, so that its name and lines are known even when it, or its
// process, is gone before user space looks.
__noinline int send_code(struct task_state *s, struct python *p, u64 code, u64 identity, u32 account)
{
	if (!s || !p)
		return 0;
	struct code_key *key = &s->code_key;
	key->code = code;
	key->identity = identity;
	key->account = account;
	if (bpf_map_lookup_elem(&codes, key))
		return 0;
	struct code_record *r = &s->code_record;
	u64 length, at, n;
	u32 size = p->code_size;
	u8 one = 1;

	r->kind = RECORD_CODE;
	r->account = account;
	r->code = code;
	r->identity = identity;
	if (size > CODE_HEAD || bpf_probe_read_user(r->head, size, (void *)code))
		return 0; // user space finds no name for it and says so
	r->address[0] = code;
	r->length[0] = size;
	for (u32 i = 0; i < 3; i++) {
		u32 field = i == 0 ? p->code_filename : i == 1 ? p->code_name : p->code_qualname;
		at = *(u64 *)&r->head[field & (CODE_HEAD - 8)];
		r->address[i + 1] = at;
		r->length[i + 1] = 0;
		if (READ(length, at + p->string_length))
			continue;
		// 4 bytes a character at most; where that much is not there, 1
		n = at_most(p->string_head + length * 4 + 4, CODE_STRING);
		if (bpf_probe_read_user(r->strings[i], n, (void *)at)) {
			n = at_most(p->string_head + length + 1, CODE_STRING);
			if (bpf_probe_read_user(r->strings[i], n, (void *)at))
				continue;
		}
		r->length[i + 1] = n;
	}
	at = *(u64 *)&r->head[p->code_table & (CODE_HEAD - 8)];
	r->address[4] = at;
	r->length[4] = 0;
	n = 0;
	if (!READ(length, at + p->string_length)) {
		n = at_most(length + p->bytes_head, CODE_TABLE);
		if (bpf_probe_read_user(r->table, n, (void *)at))
			n = 0;
		r->length[4] = n;
	}
	if (bpf_ringbuf_output(&records, r, offsetof(struct code_record, table) + n, 0)) {
		add(STAT_RING_FULL, 1);
		return 1;
	}
	bpf_map_update_elem(&codes, key, &one, BPF_ANY);
	return 0;
}

// Records are sent with the default flags throughout: the kernel wakes the reader when it had caught up. One sent without
// a wake-up would leave the reader asleep for all that follow.

struct sender { struct task_state *s; struct python *python; u32 account, failed, n, pad; };

static long send_one_code(u32 i, struct sender *d)
{
	if (i >= d->n)
		return 1;
	struct python_frame *f = &d->s->python.frames[i & (MAX_PYTHON - 1)];
	if (f->code)
		d->failed |= send_code(d->s, d->python, f->code, f->identity, d->account);
	return 0;
}

struct copier { struct task_state *s; u64 from; u32 n, failed; };

// The stack from where the walk stopped, for user space to finish. It ends where the stack's memory does.
static long send_one_copy(u32 i, struct copier *c)
{
	struct copy_record *r = &c->s->chunk;
	u64 at = c->from;
	u32 n = COPY_CHUNK;
	if (bpf_probe_read_user(r->bytes, COPY_CHUNK, (void *)at)) {
		n = 4096 - (at & 4095); // page by page to the stack's end
		if (bpf_probe_read_user(r->bytes, n & (COPY_CHUNK - 1), (void *)at))
			return 1;
	}
	r->kind = RECORD_COPY;
	r->account = c->s->stack.account;
	r->id = c->s->stack.id;
	r->address = at;
	if (n > COPY_CHUNK)
		return 1;
	if (bpf_ringbuf_output(&records, r, offsetof(struct copy_record, bytes) + n, 0)) {
		c->failed = 1;
		return 1;
	}
	c->from = at + n;
	c->n += n;
	return 0;
}

__noinline int send_stack(struct task_state *s, struct image *image, struct reused *reused)
{
	if (!s || !reused)
		return 1;
	struct stack_record *r = &s->stack;
	u32 native = s->walk.n, python = reused->python;
	struct sender d = { .s = s, .account = r->account, .n = python };
	struct copier c = { .s = s, .from = s->walk.sp };

	r->kind = RECORD_STACK;
	r->native = native;
	r->python = python;
	r->native_stop = s->walk.stop;
	r->python_stop = reused->python_stop;
	r->pc = s->walk.pc;
	r->sp = s->walk.sp;
	r->bp = s->walk.bp;
	r->ra = s->walk.ra;
	r->copied = 0;
	r->time = bpf_ktime_get_ns();
	if (python && image) {
		d.python = &image->python;
		bpf_loop(MAX_PYTHON, send_one_code, &d, 0);
		s->python.kind = RECORD_PYTHON;
		s->python.account = r->account;
		s->python.id = r->id;
		if (python > MAX_PYTHON)
			return 1;
		d.failed |= !!bpf_ringbuf_output(&records, &s->python, offsetof(struct python_record, frames) + python * sizeof(struct python_frame), 0);
	}
	if (s->walk.unfinished) {
		bpf_loop(COPY_CHUNKS, send_one_copy, &c, 0);
		r->copied = c.n;
		d.failed |= c.failed;
		add(STAT_COPIES, 1);
	}
	if (native > MAX_NATIVE)
		return 1;
	if (d.failed || bpf_ringbuf_output(&records, r, offsetof(struct stack_record, frames) + native * sizeof(struct native_frame), 0)) {
		add(STAT_RING_FULL, 1);
		return 1;
	}
	return 0;
}

// Only a process's own image, or that of the program it was forked from and still runs, says how to read it.
static __always_inline struct image *image_of(struct task_struct *t, u64 start_stack)
{
	for (int i = 0; i < 4; i++) {
		u32 tgid = t->tgid;
		struct image *image = bpf_map_lookup_elem(&images, &tgid);
		if (image && image->start_stack == start_stack)
			return image;
		t = t->real_parent;
		if (!t)
			break;
	}
	return 0;
}

// Takes the stack of the current thread, whose registers are in s->walk, into c->stack: its identity within the account.
__noinline int take_stack(struct task_state *s, struct account *a, struct call *c)
{
	if (!s || !a || !c)
		return 0;
	u64 pc = s->walk.pc, sp = s->walk.sp, bp = s->walk.bp;
	u32 account = c->account;
	struct task_struct *t = bpf_get_current_task_btf();
	struct image *image = image_of(t, a->start_stack);
	struct reused *r = &s->reused[((sp >> 4) ^ (sp >> 7) ^ pc) & (REUSE_WAYS - 1)];
	struct walker w = { .image = image, .s = s, .reused = r };
	u32 generation = image ? image->generation : 0, native = 0, python = 0, has_python = image && image->python.key;
	u64 hi, lo;

	add(STAT_WALKS, 1);
	if (reuse && image && r->generation == generation && r->start_stack == a->start_stack) {
		native = same_native(s, r, pc, sp, bp);
		python = native && (!has_python || same_python(s, r, &image->python));
	}
	if (check_reuse && native && python) {
		hi = r->hi ^ r->python_hi;
		lo = r->lo ^ r->python_lo;
		walk_native(&w);
		walk_python(&w);
		if (hi != (r->hi ^ r->python_hi) || lo != (r->lo ^ r->python_lo))
			add(STAT_REUSED_WRONG, 1);
	}
	if (native) {
		add(STAT_NATIVE_REUSED, 1);
		s->walk.sp0 = sp;
	} else {
		r->pc = pc;
		r->sp = sp;
		r->bp = bp;
		r->generation = generation;
		r->start_stack = a->start_stack;
		walk_native(&w);
	}
	if (python)
		add(STAT_PYTHON_REUSED, 1);
	else
		walk_python(&w);
	hi = r->hi;
	lo = r->lo;
	mix(&hi, &lo, r->python_hi);
	mix(&hi, &lo, r->python_lo);
	mix(&hi, &lo, r->native_stop | (u64)r->python_stop << 32);

	// A walk that stopped for want of rows is finished by user space, from a copy of the stack. Until that is known, two
	// such stacks may not pass for one.
	c->stack.hi = hi;
	c->stack.lo = lo;
	s->walk.unfinished = 0;
	if ((r->native_stop == STOP_NO_ROWS || r->native_stop == STOP_NO_IMAGE || r->native_stop == STOP_NO_MAPPING) && a->copies < copies_per_account) {
		u64 nth = __sync_fetch_and_add(&a->copies, 1);
		mix(&c->stack.hi, &c->stack.lo, nth + 1);
		s->walk.unfinished = 1;
	}
	struct stack_key *key = &s->stack_key;
	key->id = c->stack;
	key->account = account;
	if (bpf_map_lookup_elem(&stacks, key))
		return 0;
	if (native) { // recognised, and yet not known: its frames are not at hand
		walk_native(&w);
		walk_python(&w);
	}
	s->stack.account = account;
	s->stack.id = c->stack;
	s->stack.tgid = t->tgid;
	s->stack.tid = bpf_get_current_pid_tgid();
	u8 one = 1;
	u32 failed = send_stack(s, image, r);
	if (failed && s->walk.unfinished) {
		// No room for the copy: then the stack as far as it goes, under the name that all such have, so that one that is
		// sent names them all.
		s->walk.unfinished = 0;
		s->stack.id.hi = c->stack.hi = key->id.hi = hi;
		s->stack.id.lo = c->stack.lo = key->id.lo = lo;
		if (bpf_map_lookup_elem(&stacks, key))
			return 0;
		failed = send_stack(s, image, r);
	}
	if (!failed)
		bpf_map_update_elem(&stacks, key, &one, BPF_ANY);
	return 0;
}
