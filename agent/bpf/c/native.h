// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The native walk: from a driver function's first instructions up to _start, by the rows of internal/ehframe.
#pragma once
#include "state.h"

// The low three bits of row.cfa; internal/ehframe/row.go.
enum { CFA_END, CFA_SP, CFA_BP, CFA_PLT, CFA_DEREF_BP, CFA_DEREF_SP, CFA_SIGNAL, CFA_BAD };
#define BP_SAME 0x7fff
#define BP_UNDEFINED 0x7ffe
#define BP_AT_BP 0x7ffd
#define NO_FDE (1 << 3 | CFA_BAD)
#define LARGE_CFA (1 << 15) // a frame of 64 KiB and more: Row.Large

struct walker { struct image *image; struct task_state *s; struct reused *reused; };

// The last i with key(i) <= x in a sorted array of a power of two, padded with the largest value. Without branches: the
// empty asm statements keep clang from making branches, or an OR that kernels before 6.9 cannot bound, of it.
#define SEARCH(n, x, key) ({ \
	u64 _lo = 0; \
	_Pragma("unroll") for (u32 _half = (n) / 2; _half; _half >>= 1) { \
		u64 _at = (_lo + _half) & ((n) - 1); \
		u64 _less = ((u64)(x) - (u64)(key(_at))) >> 63; \
		asm volatile("" : "+r"(_less)); \
		_lo += _half & (_less - 1); \
		asm volatile("" : "+r"(_lo)); \
	} \
	(u32)(_lo & ((n) - 1)); })

// A global function is verified once, on its own, and not at every call.
__noinline int keep_word(struct reused *r, u64 offset, u64 word)
{
	if (!r)
		return 0;
	u32 n = r->words;
	if (n >= REUSE_WORDS || offset > REUSE_SPAN - 8 || (offset & 7)) {
		r->words = REUSE_NEVER;
		return 0;
	}
	r->offset[n & (REUSE_WORDS - 1)] = offset;
	r->word[n & (REUSE_WORDS - 1)] = word;
	r->words = n + 1;
	if (offset + 8 > r->span)
		r->span = offset + 8;
	return 0;
}

static __always_inline void keep(struct walker *w, u64 address, u64 word)
{
	keep_word(w->reused, address - w->s->walk.sp0, word);
}

// A saved rbp decides a walk only where a later row reads it; until then it may be a loop counter.
static __always_inline void use_bp(struct walker *w)
{
	struct walk *k = &w->s->walk;
	if (k->bp_seen)
		return;
	k->bp_seen = 1;
	if (k->bp_at)
		keep(w, k->bp_at, k->bp);
	else
		w->reused->bp_matters = 1;
}

static __always_inline int find_mapping(struct walker *w, u64 pc)
{
	struct walk *k = &w->s->walk;
	struct image *image = w->image;
	if (pc >= k->mapping.start && pc < k->mapping.end)
		return 1;
	u32 id = image->space;
	void *space = bpf_map_lookup_elem(&spaces, &id);
	if (!space)
		return 0;
#define FIRST(i) image->first[i]
	u32 chunk = SEARCH(SPACE_CHUNKS, pc, FIRST);
	struct space_chunk *c = bpf_map_lookup_elem(space, &chunk);
	if (!c)
		return 0;
#define START(i) c->mappings[i].start
	k->mapping = c->mappings[SEARCH(SPACE_CHUNK, pc, START)];
	return pc >= k->mapping.start && pc < k->mapping.end;
}

static __always_inline int find_row(struct mapping *m, u32 pc, struct row *row)
{
	u32 table = m->table, indexes = m->indexes, i = 0;
	void *index = bpf_map_lookup_elem(&row_indexes, &table);
	if (!index)
		return 0;
	for (int n = 0; n < 64; n++) { // more than one index chunk only above 524,288 rows
		u32 next = i + 1;
		if (next >= indexes)
			break;
		struct index_chunk *c = bpf_map_lookup_elem(index, &next);
		if (!c || c->pc[0] > pc)
			break;
		i = next;
	}
	struct index_chunk *c = bpf_map_lookup_elem(index, &i);
	void *chunks = bpf_map_lookup_elem(&row_tables, &table);
	if (!c || !chunks)
		return 0;
#define INDEX_PC(i) c->pc[i]
	u32 chunk = i * INDEX_CHUNK + SEARCH(INDEX_CHUNK, pc, INDEX_PC);
	struct row_chunk *r = bpf_map_lookup_elem(chunks, &chunk);
	if (!r)
		return 0;
#define ROW_PC(i) r->rows[i].pc
	*row = r->rows[SEARCH(ROW_CHUNK, pc, ROW_PC)];
	return 1;
}

#define STOP(reason) do { k->stop = reason; return 1; } while (0)
#define READ(to, from) bpf_probe_read_user(&(to), sizeof(to), (void *)(from))

// One frame: note it, then find its caller. The state is left at the frame whose caller could not be found.
static long native_step(u32 i, struct walker *w)
{
	struct walk *k = &w->s->walk;
	struct stack_record *out = &w->s->stack;
	struct row row = {};
	u64 pc = k->pc - k->ra, cfa = 0, ra = 0;
	u32 n = k->n, interrupted = n && !k->ra;

	if (n >= MAX_NATIVE)
		STOP(STOP_DEPTH);
	if (n && !find_mapping(w, pc)) {
		if (!k->pc) // a thread's outermost frame that says so by a return address of 0
			STOP(STOP_COMPLETE);
		STOP(STOP_NO_MAPPING);
	}
	out->frames[n & (MAX_NATIVE - 1)].pc = k->pc;
	out->frames[n & (MAX_NATIVE - 1)].cfa = k->sp | interrupted;
	k->n = n + 1;
	mix(&k->hi, &k->lo, k->pc);

	if (!n) { // the probed function: nothing is pushed yet, the return address is on top
		out->frames[0].cfa = k->sp + 8;
		if (READ(ra, k->sp))
			STOP(STOP_UNREADABLE);
		keep(w, k->sp, ra);
		k->sp += 8;
		k->pc = ra;
		k->ra = 1;
		return 0;
	}
	if (!k->mapping.table || !find_row(&k->mapping, pc - k->mapping.base, &row))
		STOP(STOP_NO_ROWS);

	s64 offset = (row.cfa >> 3) * 8;
	switch (row.cfa & 7) {
	case CFA_SP:
		cfa = k->sp + offset;
		break;
	case CFA_BP:
		use_bp(w);
		cfa = k->bp + offset;
		break;
	case CFA_PLT: // sp+8, and 8 more from the stub's push on: the offset is where in its 16 bytes that is
		cfa = k->sp + 8 + ((pc & 15) >= (row.cfa >> 3) ? 8 : 0);
		break;
	case CFA_DEREF_BP: {
		u64 at = k->bp + (s64)(s16)(row.cfa & ~7);
		use_bp(w);
		if (READ(cfa, at))
			STOP(STOP_UNREADABLE);
		keep(w, at, cfa);
		break;
	}
	case CFA_DEREF_SP: {
		u64 at = k->sp + (s64)(s16)(row.cfa & ~7);
		if (READ(cfa, at))
			STOP(STOP_UNREADABLE);
		keep(w, at, cfa);
		break;
	}
	case CFA_SIGNAL: { // struct rt_sigframe's ucontext: gregs are 40 bytes in, RBP is the 11th, RSP the 16th, RIP the 17th
		u64 regs[17];
		w->reused->words = REUSE_NEVER;
		if (READ(regs, k->sp + 40))
			STOP(STOP_UNREADABLE);
		out->frames[n & (MAX_NATIVE - 1)].cfa = regs[15];
		k->bp = regs[10];
		k->sp = regs[15];
		k->pc = regs[16];
		k->ra = 0;
		k->bp_seen = 1;
		return 0;
	}
	case CFA_END:
		STOP(STOP_COMPLETE);
	default:
		if (!(row.cfa & LARGE_CFA))
			STOP(row.cfa == NO_FDE ? STOP_NO_ROWS : STOP_BAD_ROW);
		u32 words = row.bp & 15;
		cfa = k->sp + ((u64)(row.cfa >> 3 & 0xfff) << 12 | (u16)row.bp >> 4) * 8;
		row.bp = words == 0 ? BP_SAME : words == 1 ? BP_UNDEFINED : -8 * (s32)words;
	}
	out->frames[n & (MAX_NATIVE - 1)].cfa = cfa | interrupted;
	if (cfa <= k->sp)
		STOP(STOP_BAD_CFA);
	if (READ(ra, cfa - 8))
		STOP(STOP_UNREADABLE);
	keep(w, cfa - 8, ra);
	if (row.bp == BP_UNDEFINED) {
		k->bp = 0;
		k->bp_seen = 1;
	} else if (row.bp != BP_SAME) {
		u64 at = cfa + row.bp;
		if (row.bp == BP_AT_BP) {
			use_bp(w);
			at = k->bp;
		}
		k->bp_at = at;
		k->bp_seen = 0;
		// On the last instruction of a function that re-aligned its stack the rule is in force and rbp is not: then the
		// walk goes on without it, since few callers need it.
		if (READ(k->bp, k->bp_at)) {
			k->bp = k->bp_at = 0;
			k->bp_seen = 1;
			w->reused->words = REUSE_NEVER;
		}
	}
	k->sp = cfa;
	k->pc = ra;
	k->ra = 1;
	return 0;
}

// Walks from the registers in w->reused. Of the verifier's 512 bytes of stack, a function of its own costs what it needs
// only while it runs.
static __noinline void walk_native(struct walker *w)
{
	struct walk *k = &w->s->walk;
	struct reused *r = w->reused;

	r->words = r->span = r->bp_matters = 0;
	k->pc = r->pc;
	k->sp = k->sp0 = r->sp;
	k->bp = r->bp;
	k->bp_at = 0;
	k->ra = k->bp_seen = k->n = 0;
	k->stop = STOP_DEPTH;
	k->mapping.start = k->mapping.end = 0;
	k->hi = hash_seed[0];
	k->lo = hash_seed[1];
	if (w->image && w->image->chunks)
		bpf_loop(MAX_NATIVE + 1, native_step, w, 0);
	else
		k->stop = STOP_NO_IMAGE;
	r->hi = k->hi;
	r->lo = k->lo;
	r->native = k->n;
	r->native_stop = k->stop;
	if (k->stop != STOP_COMPLETE)
		r->words = REUSE_NEVER;
	r->native_words = r->words;
}

// Whether the words that decided the last walk from these registers are what they were. Then so is the walk.
__noinline int same_native(struct task_state *s, struct reused *r, u64 pc, u64 sp, u64 bp)
{
	if (!s || !r)
		return 0;
	u32 n = r->words, span = r->span;
	u64 different = 0;
	if (!n || n > REUSE_WORDS || r->pc != pc || r->sp != sp || (r->bp_matters && r->bp != bp))
		return 0;
	if (span > REUSE_SPAN || bpf_probe_read_user(s->copy, span, (void *)sp))
		return 0;
	for (u32 i = 0; i < REUSE_WORDS; i++) {
		if (i >= n)
			break;
		different |= *(u64 *)&s->copy[r->offset[i] & (REUSE_SPAN - 8)] ^ r->word[i];
	}
	return !different;
}
