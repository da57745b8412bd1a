// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel half: one pair of programs for every allocating function of every driver and one for every freeing one,
// told by the probe's cookie which row of agent/gpuapi they serve. Loaded as they are for uprobe_multi links (kernel 6.6
// on), and with attach type 0 for probes by perf events.
#include "account.h"
#include "take.h"
#include "size.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { ROLE_ALLOCATE = 1, ROLE_FREE = 2 }; // agent/gpuapi/function.go

// The entry of a call. An entry whose stack pointer is not above this one's belongs to a call that was left by longjmp
// or an exception: its return never comes.
static __always_inline struct call *enter(struct pt_regs *ctx, struct task_state **state, struct call_row *row, struct account **account)
{
	u64 cookie = bpf_get_attach_cookie(ctx), sp = PT_REGS_SP(ctx);
	u32 n = cookie, number = 0;
	struct call_row *r = bpf_map_lookup_elem(&rows, &n);
	struct task_state *s;

	add(STAT_CALLS, 1);
	if (!r || !r->role) {
		add(STAT_ROW_UNKNOWN, 1);
		return 0;
	}
	*row = *r;
	number = account_number();
	if (!number)
		return 0;
	*account = bpf_map_lookup_elem(&accounts, &number);
	if (!*account)
		return 0;
	s = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!s) {
		add(STAT_NO_STORAGE, 1);
		return 0;
	}
	*state = s;
	for (int i = 0; i < MAX_CALLS; i++) {
		u32 d = s->depth;
		if (!d || d > MAX_CALLS || s->calls[(d - 1) & (MAX_CALLS - 1)].sp > sp)
			break;
		s->depth = d - 1;
		add(STAT_CALL_ABANDONED, 1);
	}
	if (s->depth >= MAX_CALLS) {
		add(STAT_CALLS_TOO_DEEP, 1);
		return 0;
	}
	struct call *c = &s->calls[s->depth & (MAX_CALLS - 1)];
	c->sp = sp;
	c->row = n;
	c->account = number;
	c->freed = 0;
	read_arguments(ctx, c);
	return c;
}

// The return of the call that the thread entered last.
static __always_inline struct call *leave(struct pt_regs *ctx, struct call_row *row, struct account **account)
{
	struct task_state *s = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
	u32 n = bpf_get_attach_cookie(ctx), number;

	if (!s)
		return 0; // the entry was not for us
	u32 d = s->depth;
	if (!d || d > MAX_CALLS)
		return 0;
	struct call *c = &s->calls[(d - 1) & (MAX_CALLS - 1)];
	// at the return the stack pointer is where the return address was, plus its 8 bytes
	if (c->row != n || PT_REGS_SP(ctx) != c->sp + 8) {
		add(STAT_RETURN_UNMATCHED, 1);
		return 0;
	}
	s->depth = d - 1;
	struct call_row *r = bpf_map_lookup_elem(&rows, &n);
	number = c->account;
	*account = bpf_map_lookup_elem(&accounts, &number);
	if (!r || !*account)
		return 0;
	*row = *r;
	return c;
}

static __always_inline int on_allocate_entry(struct pt_regs *ctx)
{
	struct task_state *s = 0;
	struct account *a = 0;
	struct call_row row;
	struct call *c = enter(ctx, &s, &row, &a);

	if (c) {
		if (size_on_entry(s, &row, c))
			add(STAT_SIZE_UNREADABLE, 1);
		s->walk.pc = PT_REGS_IP(ctx);
		s->walk.sp = PT_REGS_SP(ctx);
		s->walk.bp = PT_REGS_FP(ctx);
		c->stack = (struct stack_id){};
		if (c->account != OVERFLOW_ACCOUNT)
			take_stack(s, a, c);
		s->depth++;
	}
	return 0;
}

static __always_inline void release(struct account *a, struct live *was)
{
	struct change by = { -(s64)was->size, -1, 0, 0 };
	commit(a, &was->key, &by);
}

static __always_inline int on_allocate_return(struct pt_regs *ctx)
{
	struct call_row row;
	struct account *a = 0;
	struct call *c = leave(ctx, &row, &a);
	s32 result = PT_REGS_RC(ctx);

	if (!c)
		return 0;
	c->live.key = (struct counter_key){ c->stack, c->account, row.class, row.api };
	if (result != row.success && result != row.out_of_memory)
		return 0;
	if (size_on_return(&row, c, result == row.success))
		add(STAT_SIZE_UNREADABLE, 1);
	if (result != row.success) {
		struct counter *f = counter_of(a, &c->live.key, 0);
		__sync_fetch_and_add(&f->failed_bytes, c->size);
		__sync_fetch_and_add(&f->failed_objects, 1);
		return 0;
	}
	c->key = (struct live_key){ 0, c->account, row.family, row.api };
	if (pointer_on_return(&row, c, &c->key.pointer))
		add(STAT_POINTER_UNREADABLE, 1);
	struct live *old = bpf_map_lookup_elem(&lives, &c->key);
	if (old) { // the driver gives it again, so it was freed where we do not look
		struct live was = *old;
		if (!bpf_map_delete_elem(&lives, &c->key)) {
			add(STAT_LIVE_REPLACED, 1);
			release(a, &was);
		}
	}
	struct change by = { c->size, 1, c->size, 1 };
	c->live.size = c->size;
	if (!c->key.pointer || c->account == OVERFLOW_ACCOUNT || bpf_map_update_elem(&lives, &c->key, &c->live, BPF_ANY)) {
		// its free will not be known: it counts as allocated and never as in use
		add(STAT_LIVE_FULL, 1);
		add(STAT_LIVE_FULL_BYTES, c->size);
		by.inuse_bytes = by.inuse_objects = 0;
	}
	commit(a, &c->live.key, &by);
	return 0;
}

// A free counts from its entry on: once it is under way the driver may give the pointer to another thread. Whoever takes
// the live entry out does the accounting.
static __always_inline int on_free_entry(struct pt_regs *ctx)
{
	struct task_state *s = 0;
	struct account *a = 0;
	struct call_row row;
	struct call *c = enter(ctx, &s, &row, &a);
	struct live *l;

	if (!c)
		return 0;
	s->depth++;
	c->key = (struct live_key){ argument(c, row.pointer_arg), c->account, row.family, row.api };
	if (row.pointer_kind == POINTER_ARGUMENT_32)
		c->key.pointer = (u32)c->key.pointer;
	if (!c->key.pointer || c->account == OVERFLOW_ACCOUNT)
		return 0;
	l = bpf_map_lookup_elem(&lives, &c->key);
	if (!l) {
		add(STAT_FREE_UNKNOWN, 1);
		return 0;
	}
	c->live = *l;
	if (bpf_map_delete_elem(&lives, &c->key))
		return 0; // another thread's free of the same pointer was first
	c->freed = 1;
	release(a, &c->live);
	return 0;
}

static __always_inline int on_free_return(struct pt_regs *ctx)
{
	struct call_row row;
	struct account *a = 0;
	struct call *c = leave(ctx, &row, &a);

	if (!c || !c->freed || (s32)PT_REGS_RC(ctx) == row.success)
		return 0;
	add(STAT_FREE_FAILED, 1);
	if (!bpf_map_update_elem(&lives, &c->key, &c->live, BPF_NOEXIST)) {
		struct change by = { c->live.size, 1, 0, 0 };
		commit(a, &c->live.key, &by);
	}
	return 0;
}

#define PROGRAM(name) \
	SEC("uprobe.multi") int name(struct pt_regs *ctx) \
	{ \
		on_##name(ctx); \
		bpf_tail_call(ctx, &no_programs, 0); /* state.h says why */ \
		return 0; \
	}

PROGRAM(allocate_entry)
PROGRAM(allocate_return)
PROGRAM(free_entry)
PROGRAM(free_return)
