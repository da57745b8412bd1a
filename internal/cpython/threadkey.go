package cpython

// ThreadKeys is how far above the thread pointer (fs on x86-64) glibc keeps what a thread stored under its pthread keys:
// for the first 32 keys {sequence, value} of 8 bytes each, so that the value of key k is at ThreadKeys + 16*k + 8. Behind
// these comes an array of 32 pointers to blocks of as many: the value of a key from 32 on is 16*(k%32) + 8 into the block
// to which pointer k/32 points, which is null until it is needed.
//
// It is specific_1stblock of struct pthread (nptl/descr.h), here for x86-64 and measured in glibc 2.36. The array behind
// it, specific, is where libc's own _thread_db_pthread_specific says.
const ThreadKeys = 0x310
