// Package gpuapi is the table of the GPU drivers' functions that allocate and free memory: for each its symbol, where
// its size and its pointer are, what kind of memory it gives, and in which key space its pointer is looked up when it
// is freed. The kernel half is one generic program per role and is told by the probe's cookie which row it serves, so a
// new driver function is a new row here and a test.
//
// Only the lowest layer is in the table: every path through a runtime library ends there, and no byte counts twice.
//
// The kernel half knows the rules by number (agent/bpf/c/size.h mirrors SizeKind, PointerKind and Role), so every number
// here is explicit and is never given to something else.
package gpuapi
