// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The maps, the state of a thread, and the settings that user space fixes before loading.
//
// Scratch space is per task and never per CPU: a uprobe program may be preempted, and another thread's program then runs
// on the same CPU in the middle of it.
#pragma once
#include "kernel.h"
#include "layout.h"

#define REUSE_WORDS 256   // words that decided a native walk
#define REUSE_SPAN 16384  // bytes of stack, or of Python's data stack, that are compared at once
#define REUSE_FRAMES 64   // Python frames
#define REUSE_WAYS 4      // walks that a thread remembers
#define REUSE_NEVER 0xffff

volatile const u64 hash_seed[2] = { 0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f };
volatile const u32 only_below = 0;       // 0: every process; else only descendants of this thread group
volatile const u32 reuse = 1;            // recognise a stack that has not changed instead of walking it
volatile const u32 check_reuse = 0;      // tests: walk it all the same, and count where the two differ
volatile const u64 copies_per_account = 4096;

// Keep the types that no map names in the object's BTF, from which the Go side is generated.
const struct process_record *process_record_type __attribute__((unused));
const struct commit_record *commit_record_type __attribute__((unused));
const enum record_kind *record_kind_type __attribute__((unused));
const enum stop *stop_type __attribute__((unused));
const enum python_entry *python_entry_type __attribute__((unused));
const enum statistic *statistic_type __attribute__((unused));

u64 epoch = 1;        // the interval; user space adds 1 at each drain
u32 last_account = OVERFLOW_ACCOUNT;

// What a walk depended on: as long as none of it has changed, the walk would end the same.
struct reused_frame { u64 previous, code, instruction, identity; u16 below; u8 entry, pad[5]; };
struct reused {
	u64 pc, sp, bp, start_stack;
	u32 generation, words, native_words, span, bp_matters, pad0;
	u32 native_stop, native, python_stop, python;
	u64 hi, lo;                       // hash of the native frames
	u64 python_hi, python_lo;
	u64 tstate, top, newest;          // top: the thread state's frame or CFrame
	u32 frames, depth, shims, pad;    // depth: bytes of data stack below the newest frame
	u64 word[REUSE_WORDS];
	u16 offset[REUSE_WORDS];
	struct reused_frame frame[REUSE_FRAMES];
};

// A walk under way. In map memory, not on the BPF stack: there the verifier knows no values, and so explores one step
// of the walk and not every path through all of them.
struct walk {
	u64 pc, sp, bp, sp0, bp_at;
	u32 ra, stop, bp_seen, n;
	u64 hi, lo;
	struct mapping mapping;
	u64 frame, cframe;                // Python
	u64 python_hi, python_lo;
	u32 python_n, python_stop, unfinished, pad;
};

// A driver call that a thread is in.
struct call {
	u64 sp, size, arguments[8];
	struct stack_id stack;
	u32 row, account;
	u32 freed, pad;                   // live was taken out of the live map and goes back if the call fails
	struct live_key key;
	struct live live;
};

struct stack_key { struct stack_id id; u32 account, pad; };

struct task_state {
	u32 depth, pad;
	struct stack_key stack_key;
	struct code_key code_key;
	struct call calls[MAX_CALLS];
	struct walk walk;
	struct stack_record stack;
	struct python_record python;
	u8 frame[128];                    // one Python frame's head
	u8 code[128];                     // the telling part of one code object
	u8 text[64];
	struct reused reused[REUSE_WAYS];
	union {
		u8 copy[REUSE_SPAN];
		struct copy_record chunk;
		struct code_record code_record;
	};
};

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 256); __type(key, u32); __type(value, struct call_row); } rows SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_TASK_STORAGE); __uint(map_flags, BPF_F_NO_PREALLOC); __type(key, int); __type(value, struct task_state); } tasks SEC(".maps");

// Accounting. Sizes are set at load; the costs of an entry are stated where the flags are.
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 16384); __type(key, u32); __type(value, struct process); } processes SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 16384); __type(key, u32); __type(value, struct account); } accounts SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 262144); __type(key, struct counter_key); __type(value, struct counter); } counters SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 1048576); __type(key, struct live_key); __type(value, struct live); } lives SEC(".maps");

// Stacks and code objects that user space has.
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 262144); __type(key, struct stack_key); __type(value, u8); } stacks SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 131072); __type(key, struct code_key); __type(value, u8); } codes SEC(".maps");

// Unwinding. Inner arrays differ in size (BPF_F_INNER_MAP, kernel 5.10 on).
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(map_flags, BPF_F_NO_PREALLOC); __uint(max_entries, 16384); __type(key, u32); __type(value, struct image); } images SEC(".maps");
struct inner_space { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_INNER_MAP); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, sizeof(struct space_chunk)); };
struct inner_rows { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_INNER_MAP); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, sizeof(struct row_chunk)); };
struct inner_index { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(map_flags, BPF_F_INNER_MAP); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, sizeof(struct index_chunk)); };
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 16384); __type(key, u32); __array(values, struct inner_space); } spaces SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 8192); __type(key, u32); __array(values, struct inner_rows); } row_tables SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 8192); __type(key, u32); __array(values, struct inner_index); } row_indexes SEC(".maps");

struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 16 << 20); } records SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, STATISTICS); __type(key, u32); __type(value, u64); } statistics SEC(".maps");
// Never filled. A reachable tail call keeps the verifier from giving these programs a private stack per CPU, which from
// 6.13 on rests on the false belief that a uprobe program cannot be preempted.
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 1); __type(key, u32); __type(value, u32); } no_programs SEC(".maps");

static __always_inline void add(u32 statistic, u64 n)
{
	u64 *v = bpf_map_lookup_elem(&statistics, &statistic);
	if (v)
		__sync_fetch_and_add(v, n);
}

static __always_inline void mix(u64 *hi, u64 *lo, u64 word)
{
	u64 h = (*hi ^ word) * 0xff51afd7ed558ccdull, l = (*lo + word) * 0x9fb21c651e98df25ull;
	*hi = (h << 29 | h >> 35) ^ l;
	*lo = (l ^ l >> 31) + h;
}
