/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Definitions shared by syscalls.bpf.c and src/measure/syscalls.rs. */
#ifndef EQUIC_LAB_SYSCALLS_H
#define EQUIC_LAB_SYSCALLS_H

#include <linux/types.h>

/* System calls with this number or a larger one are counted together under this number. */
#define SYSCALLS_MAX 511
/* Maximum number of threads of the process that can be inside a call at a time. */
#define SYSCALLS_THREADS 4096

/* Identifies the watched process by its PID in the given PID namespace. */
struct syscalls_watched {
	__u64 device;
	__u64 inode;
	__u32 process;
	__u32 padding;
};

/* Counters of the calls with one system call number. */
struct syscalls_count {
	__u64 calls;
	__u64 errors;
	/* Nanoseconds on a CPU, between entry into the calls and return. */
	__u64 cpu_ns;
	/* Nanoseconds off the CPU, between entry into the calls and return. */
	__u64 off_ns;
};

#endif
