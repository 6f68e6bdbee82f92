/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What syscalls.bpf.c and src/measure/syscalls.rs share. */
#ifndef EQUIC_LAB_SYSCALLS_H
#define EQUIC_LAB_SYSCALLS_H

#include <linux/types.h>

/* Calls with this number and above are counted as this number. */
#define SYSCALLS_MAX 511
/* Threads of the process that can be inside a call at a time. */
#define SYSCALLS_THREADS 4096

/* The process that is watched, as its PID namespace numbers it. */
struct syscalls_watched {
	__u64 device;
	__u64 inode;
	__u32 process;
	__u32 padding;
};

/* One system call, by number. */
struct syscalls_count {
	__u64 calls;
	__u64 errors;
	/* Between entry and return, less the time the thread was off the CPU. */
	__u64 cpu_ns;
	/* Between entry and return, off the CPU. */
	__u64 off_ns;
};

#endif
