/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the current time. The time of the kernel's last tick is cheap to read. Rates need the exact
 * time in nanoseconds. */
#ifndef EQUIC_CLOCK_H
#define EQUIC_CLOCK_H

#include "maps.h"

/* Returns the time of the current tick. Reading the tick's number is a load, but reading the time
 * is a call, so the time is read once per tick. The low bits of both words must agree, because
 * another CPU may be between its two stores. */
INLINE __u64 time_now(void)
{
	__u64 tick, now;

	if (load.test_clock)
		return control.clock_ns;
	tick = bpf_jiffies64();
	now = clock.now;
	if (clock.tick == tick && (now & CLOCK_TAG) == (tick & CLOCK_TAG))
		return now;
	now = (bpf_ktime_get_coarse_ns() & ~CLOCK_TAG) | (tick & CLOCK_TAG);
	clock.now = now;
	clock.tick = tick;
	return now;
}

INLINE __u64 exact_now(struct packet *p)
{
	if (!p->exact)
		p->exact = load.test_clock ? p->now : bpf_ktime_get_ns();
	return p->exact;
}

#endif
