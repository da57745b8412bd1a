// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the kernel half and user space share: the records of the ring buffer, the values of the maps. The Go side of
// these structs is generated from this file; nothing here is typed twice.
#pragma once

#define MAX_NATIVE 256        // native frames of one stack
#define MAX_PYTHON 128        // Python frames of one stack, shim frames included
#define MAX_CALLS 4           // nested driver calls of one thread
#define ROW_CHUNK 512         // unwind rows in one array element
#define INDEX_CHUNK 1024      // first addresses of row chunks in one array element
#define SPACE_CHUNK 64        // mappings in one array element
#define SPACE_CHUNKS 64       // such elements at most: 4,096 mappings
#define COPY_CHUNK 8192       // bytes of stack in one copy record
#define COPY_CHUNKS 8         // such records at most: up to 64 KiB, some hundred frames
#define CODE_HEAD 256         // bytes of a code object's fixed part, CPython 3.8 to 3.15
#define CODE_STRING 1024      // bytes of a string object that are copied, header included
#define CODE_TABLE 8192       // bytes of a line table object that are copied, header included
#define CODE_PIECES 5
#define OVERFLOW_ACCOUNT 1    // of the processes that found no room: bytes allocated without stacks, nothing in use
#define CLASSES 16            // memory classes of agent/gpuapi at most

// One function of the driver, as agent/gpuapi describes it.
struct call_row {
	__u8 role, class, family, api;
	__u8 size_kind, size_arg, size_arg2;
	__u8 pointer_kind, pointer_arg;
	__u8 pad[3];
	__s32 success, out_of_memory;
};

// The identity of a stack: 128 bits over its frames. Collisions are as likely as n²/2^129 for n stacks.
struct stack_id { __u64 hi, lo; };

// What one stack holds and did, of one class, in one process. User space reads the fields in this order, ascending,
// while programs write: in use, then the generation, then the bytes at the peak, so that a reader who finds an old
// generation may take `inuse` for the bytes at the peak.
struct counter {
	__u64 alloc_bytes, alloc_objects;
	__u64 failed_bytes, failed_objects;
	__s64 inuse_bytes, inuse_objects;
	__u64 generation[2];          // by the parity of the epoch
	__s64 peak_bytes[2], peak_objects[2];
};

struct counter_key {
	struct stack_id stack;
	__u32 account;
	__u8 class, api, pad[2];
};

// One process from its first probe hit to its exit or exec. The lock guards everything below it and the counters of
// the account.
struct account {
	__u32 tgid, parent;
	__u64 start_boottime, start_stack;
	__u32 lock, pad;
	__u64 epoch, next_generation;
	__u64 generation[2];
	__s64 inuse_bytes, peak_bytes[2];
	__u64 copies;                 // stacks whose copy went to user space
	struct counter lost[CLASSES]; // what found no room in the counters map
};

// Who a thread group is at the moment, and its account; 0: it is not to be profiled.
struct process { __u64 start_boottime, start_stack; __u32 account, pad; };

struct live_key { __u64 pointer; __u32 account; __u8 family, api, pad[2]; };
struct live { __u64 size; struct counter_key key; };

// .eh_frame rows of one file; internal/ehframe says what they mean.
struct row { __u32 pc; __u16 cfa; __s16 bp; };
struct row_chunk { struct row rows[ROW_CHUNK]; };
struct index_chunk { __u32 pc[INDEX_CHUNK]; };

// One executable mapping. base: what to take from an address to get the row's pc.
struct mapping { __u64 start, end, base; __u32 table, indexes; };
struct space_chunk { struct mapping mappings[SPACE_CHUNK]; };

// How to read one CPython's threads and frames; internal/cpython says where each number is from.
struct python {
	__u64 key;                    // address of autoTSSkey._key; 0: no Python
	__u16 thread_keys;            // bytes from the thread pointer to the C library's first block of keys
	__u16 ts_frame, ts_cframe;    // of PyThreadState; ts_cframe 0: there is none
	__u16 cf_frame, cf_previous;  // of CFrame; cf_frame 0xffff: the frame is in the thread state
	__u16 f_size, f_previous, f_code, f_instruction, f_entry;
	__u8 instruction_size;        // 4: f_lasti, an int; 8: a pointer
	__u8 entry_kind, entry_value; // enum python_entry
	__u8 code_tag;                // low bits of the code pointer that are no address
	__u16 code_first, code_last;  // the part of a code object that tells two of them apart
	__u16 code_size, code_filename, code_name, code_qualname, code_table;
	__u16 string_head, bytes_head;
	__u8 string_length, deep;     // deep: no co_version, so the strings' contents are part of the identity
	__u8 pad[6];
};

enum python_entry {
	ENTRY_ALWAYS = 1, // 3.10: every frame has a C evaluator of its own; its CFrame is the anchor
	ENTRY_FLAG = 2,   // 3.11: the byte at f_entry is entry_value; the current CFrame is the anchor
	ENTRY_SHIM = 3,   // 3.12 on: the byte at f_entry (owner) is entry_value; the frame is on the C stack, itself the anchor
};

// A process as it is mapped. start_stack tells an exec'd program from the one before.
struct image {
	__u64 start_stack;
	__u32 generation;             // differs whenever anything about this image does, and between images
	__u32 space, chunks, pad;     // spaces map key; 0 chunks: mappings unknown
	struct python python;
	__u64 first[SPACE_CHUNKS];    // the first mapping's start of each chunk
};

enum stop {
	STOP_COMPLETE = 0,    // the outermost frame was reached
	STOP_DEPTH = 1,
	STOP_NO_MAPPING = 2,  // an address outside every executable mapping
	STOP_NO_ROWS = 3,     // a mapping whose rows are not loaded
	STOP_UNREADABLE = 4,
	STOP_BAD_ROW = 5,     // rows that say they cannot say
	STOP_BAD_CFA = 6,     // a CFA that does not grow
	STOP_NO_IMAGE = 7,    // the process is not known yet
	STOP_LAYOUT = 8,      // Python: a frame or the thread state cannot be read
	STOP_NONE = 9,        // Python: there is none in this process or thread
};

enum record_kind {
	RECORD_PROCESS = 1,
	RECORD_CODE = 2,
	RECORD_PYTHON = 3,
	RECORD_COPY = 4,
	RECORD_STACK = 5, // comes after the Python frames and the copies of its stack
	RECORD_COMMIT = 6,
};

struct process_record {
	__u32 kind, account, tgid, parent;
	__u64 start_boottime, start_stack;
	char comm[16];
};

// The lowest bit of cfa, which is a multiple of 8, says that a signal interrupted this frame: its pc is no return address.
struct native_frame { __u64 pc, cfa; };

struct stack_record {
	__u32 kind, account, tgid, tid;
	struct stack_id id;
	__u32 native, python;         // numbers of frames
	__u32 native_stop, python_stop;
	__u32 copied, ra;             // bytes of stack copied; ra: pc is a return address
	__u64 pc, sp, bp;             // where the walk stopped
	__u64 time;                   // CLOCK_MONOTONIC, ns
	struct native_frame frames[MAX_NATIVE];
};

struct copy_record {
	__u32 kind, account;
	struct stack_id id;
	__u64 address;
	__u8 bytes[COPY_CHUNK];
};

// code 0: a shim frame. anchor 0: not an entry frame. Innermost first.
struct python_frame { __u64 code, instruction, anchor, identity; };

struct python_record {
	__u32 kind, account;
	struct stack_id id;
	struct python_frame frames[MAX_PYTHON];
};

struct code_key { __u64 code, identity; __u32 account, pad; };

// The bytes of a code object and of what it points to, each piece at its address. A piece that is too long is cut.
struct code_record {
	__u32 kind, account;
	__u64 code, identity;
	__u64 address[CODE_PIECES];
	__u32 length[CODE_PIECES], pad;
	__u8 head[CODE_HEAD];
	__u8 strings[3][CODE_STRING]; // filename, name, qualname
	__u8 table[CODE_TABLE];       // last: only what is used of it is sent
};

// What a call changes.
struct change { __s64 inuse_bytes, inuse_objects; __u64 alloc_bytes, alloc_objects; };

// A commit that could not take the account's lock; user space adds it.
struct commit_record {
	__u32 kind, account;
	struct counter_key key;
	struct change by;
};

enum statistic {
	STAT_CALLS,             // probe entries
	STAT_ROW_UNKNOWN,       // a cookie without a row
	STAT_NO_STORAGE,        // no memory for a thread's state
	STAT_CALLS_TOO_DEEP,
	STAT_CALL_ABANDONED,    // an entry whose return never came
	STAT_RETURN_UNMATCHED,
	STAT_POINTER_UNREADABLE,
	STAT_SIZE_UNREADABLE,
	STAT_LIVE_REPLACED,     // a pointer given again whose free was not seen
	STAT_FREE_UNKNOWN,      // a pointer that no allocation gave
	STAT_FREE_FAILED,       // put back
	STAT_ACCOUNTS_FULL,
	STAT_COUNTERS_FULL, STAT_COUNTERS_FULL_BYTES,
	STAT_LIVE_FULL, STAT_LIVE_FULL_BYTES,
	STAT_LOCK_GIVEN_UP,
	STAT_RING_FULL,         // a record that found no room; the stack is sent again
	STAT_COMMIT_LOST, STAT_COMMIT_LOST_BYTES,
	STAT_WALKS,             // stacks walked
	STAT_NATIVE_REUSED, STAT_PYTHON_REUSED,
	STAT_REUSED_WRONG,      // only where check_reuse is set
	STAT_COPIES,
	STATISTICS,
};
