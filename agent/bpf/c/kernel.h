// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The few kernel types that are read, relocated at load by BTF (CO-RE), so no vmlinux.h is needed.
#pragma once
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <asm/errno.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct mm_struct { unsigned long start_stack; };
struct thread_struct { unsigned long fsbase; };
struct task_struct {
	int tgid;
	u64 start_boottime;
	struct task_struct *real_parent, *group_leader;
	struct mm_struct *mm;
	struct thread_struct thread;
	char comm[16];
};
#pragma clang attribute pop

extern void bpf_preempt_disable(void) __ksym __weak; // kernel 6.10 on
extern void bpf_preempt_enable(void) __ksym __weak;
