// Package attach puts uprobes on functions of a shared library: on the right inode and on the cheapest instruction.
//
// NewPlan is pure: it reads an ELF file and decides, for every wanted function, which instruction to probe. The kernel
// emulates a few instructions and single-steps the rest through a debug exception, which costs ten times as much in a
// virtual machine; so the probe goes on the first emulated instruction of the function's straight-line prologue as long as
// arguments, callee-saved registers and the stack are still what they were at the call.
//
// Attach acts: it attaches programs at planned sites of one open file, for all processes, present and future. Whoever calls
// it opens the file through a process that maps it, and keeps one Attachment per inode. Preflight tells which capability or
// setting is missing before anything else fails for lack of it.
package attach
