// Package bpf is the kernel half and its loader: the programs behind every probe, which unwind stacks and keep the
// accounts, and typed access to what they share with user space.
//
// c/ holds the programs; c/layout.h is the one description of what crosses, and the Go structs are generated from it.
// Frames cross once, when a stack is first seen (Records); after that a call only moves counters, which Counters reads.
// What the programs need to know of a process, its mappings, unwind rows and Python, is put in by SetImage and LoadRows.
//
// It needs Linux 5.17 (bpf_loop) and CAP_BPF and CAP_PERFMON.
package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target amd64 -no-global-types -type call_row -type stack_id -type counter -type counter_key -type account -type mapping -type python -type image -type process_record -type native_frame -type stack_record -type copy_record -type python_frame -type python_record -type code_record -type commit_record -type live_key -type live -type stack_key -type code_key -type process -type record_kind -type stop -type python_entry -type statistic vramprof c/vramprof.bpf.c -- -I/usr/include/x86_64-linux-gnu -mcpu=v3 -Wall -Werror
