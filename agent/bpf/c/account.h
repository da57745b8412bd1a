// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Accounting, exact under concurrency: whose process this is, and the commit that moves a stack's counters and the
// process's together.
#pragma once
#include "state.h"

// What a new account and a new counter are.
volatile const struct account no_account = {};

static __always_inline int wanted(struct task_struct *t)
{
	if (!only_below)
		return 1;
	for (int i = 0; i < 64; i++) {
		if (t->tgid == only_below)
			return 1;
		if (t->tgid <= 1)
			return 0;
		t = t->real_parent;
		if (!t)
			return 0;
	}
	return 0;
}

// The account of the current process, made on its first call, and made anew when the program or the process behind the
// number is another one. 0 where it is not to be profiled; OVERFLOW_ACCOUNT where there is no room
// for another one.
__noinline u32 account_number(void)
{
	struct task_struct *t = bpf_get_current_task_btf();
	u32 tgid = bpf_get_current_pid_tgid() >> 32, n;
	u64 start = t->group_leader->start_boottime, start_stack = t->mm->start_stack;
	struct process *p = bpf_map_lookup_elem(&processes, &tgid), process = {};
	struct account *a;

	if (p && p->start_boottime == start && p->start_stack == start_stack)
		return p->account;
	process.start_boottime = start;
	process.start_stack = start_stack;
	if (!wanted(t)) {
		bpf_map_update_elem(&processes, &tgid, &process, BPF_ANY);
		return 0;
	}
	n = __sync_fetch_and_add(&last_account, 1) + 1;
	process.account = n;
	bpf_map_update_elem(&accounts, &n, (void *)&no_account, BPF_ANY);
	a = bpf_map_lookup_elem(&accounts, &n);
	if (!a) {
		add(STAT_ACCOUNTS_FULL, 1);
		return OVERFLOW_ACCOUNT;
	}
	a->tgid = tgid;
	a->parent = t->real_parent->tgid;
	a->start_boottime = start;
	a->start_stack = start_stack;
	// Two threads may come here at once: the first one's account stands. After an exec, or for another process of the same
	// number, the entry is old and is replaced.
	if (bpf_map_update_elem(&processes, &tgid, &process, p ? BPF_ANY : BPF_NOEXIST)) {
		bpf_map_delete_elem(&accounts, &n);
		p = bpf_map_lookup_elem(&processes, &tgid);
		if (!p || p->start_boottime != start || p->start_stack != start_stack) {
			add(STAT_ACCOUNTS_FULL, 1);
			return OVERFLOW_ACCOUNT;
		}
		return p->account;
	}
	struct process_record r = { .kind = RECORD_PROCESS, .account = n, .tgid = tgid, .parent = a->parent, .start_boottime = start, .start_stack = start_stack };
	bpf_get_current_comm(r.comm, sizeof(r.comm));
	if (bpf_ringbuf_output(&records, &r, sizeof(r), 0))
		add(STAT_RING_FULL, 1); // the accounts map says the same at the next drain
	return n;
}

static __always_inline struct counter *counter_of(struct account *a, struct counter_key *key, u64 bytes)
{
	struct counter *c = bpf_map_lookup_elem(&counters, key);
	if (c)
		return c;
	bpf_map_update_elem(&counters, key, (void *)&no_account.lost[0], BPF_NOEXIST);
	c = bpf_map_lookup_elem(&counters, key);
	if (c)
		return c;
	add(STAT_COUNTERS_FULL, 1);
	add(STAT_COUNTERS_FULL_BYTES, bytes);
	return &a->lost[key->class & (CLASSES - 1)];
}

struct spin { struct account *account; u32 got, pad; };

static long try_lock(u32 i, struct spin *s)
{
	if (__sync_val_compare_and_swap(&s->account->lock, 0, 1))
		return 0;
	s->got = 1;
	return 1;
}

// What the counter held at the peak of the parity, if the account's peak has moved since the counter last changed.
static __always_inline void settle(struct account *a, struct counter *c, u32 parity)
{
	if (c->generation[parity] == a->generation[parity])
		return;
	c->peak_bytes[parity] = c->inuse_bytes;
	c->peak_objects[parity] = c->inuse_objects;
	c->generation[parity] = a->generation[parity];
}

static __always_inline void new_peak(struct account *a, u32 parity)
{
	a->peak_bytes[parity] = a->inuse_bytes;
	a->generation[parity] = ++a->next_generation;
}

// Moves the counter and its account together: the sum over the counters is the account's value at every moment. The
// peak is kept once for the interval under way and once for the one before, by the parity of the epoch, so that user
// space reads the old one while programs write the new one.
__noinline int commit(struct account *a, struct counter_key *key, struct change *by)
{
	if (!a || !key || !by)
		return 0;
	struct counter *c = counter_of(a, key, by->alloc_bytes);
	struct spin spin = { .account = a };
	u64 now = epoch;
	u32 parity = now & 1;

	if (!!&bpf_preempt_disable)
		bpf_preempt_disable(); // so that nobody waits for a holder that is scheduled away
	bpf_loop(1 << 20, try_lock, &spin, 0);
	if (spin.got) {
		if (a->epoch != now) {
			if (a->epoch + 1 != now) // nothing changed in the whole interval before
				new_peak(a, parity ^ 1);
			new_peak(a, parity);
			a->epoch = now;
		}
		settle(a, c, 0);
		settle(a, c, 1);
		c->inuse_bytes += by->inuse_bytes;
		c->inuse_objects += by->inuse_objects;
		a->inuse_bytes += by->inuse_bytes;
		c->alloc_bytes += by->alloc_bytes;
		c->alloc_objects += by->alloc_objects;
		if (a->inuse_bytes > a->peak_bytes[parity])
			new_peak(a, parity);
		__sync_lock_test_and_set(&a->lock, 0);
	}
	if (!!&bpf_preempt_enable)
		bpf_preempt_enable();
	if (spin.got)
		return 0;
	struct commit_record r = { .kind = RECORD_COMMIT, .account = key->account, .key = *key, .by = *by };
	add(STAT_LOCK_GIVEN_UP, 1);
	if (bpf_ringbuf_output(&records, &r, sizeof(r), 0)) {
		add(STAT_COMMIT_LOST, 1);
		add(STAT_COMMIT_LOST_BYTES, by->alloc_bytes);
	}
	return 0;
}
