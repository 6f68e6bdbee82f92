// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Counts the system calls of one process, by number: all calls, failed calls, and time on and off a
 * CPU. In contrast to ptrace(2), this neither stops the process nor copies data. It costs three
 * tracepoints and a few stores per call. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "syscalls.h"

#define MAX_ERRNO 4095

/* Fields of the kernel's task_struct that this program reads. libbpf relocates their offsets. */
struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

/* A system call in progress. */
struct call {
	__u64 entered_ns;
	/* Time at which the thread left the CPU, or 0 if it is on a CPU. */
	__u64 left_ns;
	__u64 off_ns;
	__u64 number;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct syscalls_watched);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYSCALLS_MAX + 1);
	__type(key, __u32);
	__type(value, struct syscalls_count);
} counts SEC(".maps");

/* System calls in progress, by the kernel's thread ID. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SYSCALLS_THREADS);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

SEC("raw_tracepoint/sys_enter")
int entered(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 zero = 0, thread = (__u32)bpf_get_current_pid_tgid();
	struct syscalls_watched *process = bpf_map_lookup_elem(&watched, &zero);
	struct bpf_pidns_info here = {};
	if (!process ||
	    bpf_get_ns_current_pid_tgid(process->device, process->inode, &here, sizeof(here)))
		return 0;
	if (here.tgid != process->process)
		return 0;
	struct call call = {.entered_ns = bpf_ktime_get_ns(), .number = ctx->args[1]};
	bpf_map_update_elem(&calls, &thread, &call, BPF_ANY);
	return 0;
}

SEC("raw_tracepoint/sys_exit")
int returned(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&calls, &thread);
	if (!call)
		return 0;
	__u64 whole = bpf_ktime_get_ns() - call->entered_ns, off = call->off_ns;
	__u32 number = call->number < SYSCALLS_MAX ? call->number : SYSCALLS_MAX;
	__s64 result = ctx->args[1];
	bpf_map_delete_elem(&calls, &thread);
	struct syscalls_count *count = bpf_map_lookup_elem(&counts, &number);
	if (!count)
		return 0;
	__sync_fetch_and_add(&count->calls, 1);
	if (result < 0 && result >= -MAX_ERRNO)
		__sync_fetch_and_add(&count->errors, 1);
	__sync_fetch_and_add(&count->cpu_ns, whole > off ? whole - off : 0);
	__sync_fetch_and_add(&count->off_ns, off);
	return 0;
}

SEC("raw_tracepoint/sched_switch")
int switched(struct bpf_raw_tracepoint_args *ctx)
{
	/* The arguments of the tracepoint sched_switch: whether the previous task was preempted,
	 * the previous task, the next task. */
	struct task_struct *next = (struct task_struct *)ctx->args[2];
	__u32 leaves = (__u32)bpf_get_current_pid_tgid(), comes = BPF_CORE_READ(next, pid);
	struct call *call = bpf_map_lookup_elem(&calls, &leaves);
	if (call)
		call->left_ns = bpf_ktime_get_ns();
	call = bpf_map_lookup_elem(&calls, &comes);
	if (call && call->left_ns) {
		call->off_ns += bpf_ktime_get_ns() - call->left_ns;
		call->left_ns = 0;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
