/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets that consist of one word each, with the generic cell rate algorithm (docs/policy.md
 * s.4). */
#ifndef EQUIC_RATES_H
#define EQUIC_RATES_H

#include "clock.h"

#define RATE_ATTEMPTS 8

/* Counts an event that is not a verdict. */
INLINE void tally(__u32 which)
{
	__u32 key = EQUIC_TALLY_BASE + which;
	struct equic_counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		counter->packets++;
}

enum charged { CHARGED, REFUSED, LOST_RACE };

INLINE enum charged try_charge(__u64 *tat, __u64 cost, __u64 burst_ns, __u64 now)
{
	__u64 old = *(volatile __u64 *)tat;
	__u64 ahead = old > now ? old - now : 0;

	if (ahead > burst_ns) {
		/* The stored time comes from a slower rate that has since been replaced. It must
		 * not block the source for longer than the current rate would. */
		__sync_val_compare_and_swap(tat, old, now + burst_ns);
		ahead = burst_ns;
		if (cost)
			return REFUSED;
	}
	if (ahead + cost > burst_ns)
		return REFUSED;
	return __sync_val_compare_and_swap(tat, old, now + ahead + cost) == old ? CHARGED
										: LOST_RACE;
}

static __noinline bool charge_again(__u64 *tat, __u64 cost, __u64 burst_ns, __u64 now)
{
	if (!tat)
		return true;
	for (int i = 1; i < RATE_ATTEMPTS; i++) {
		enum charged charged = try_charge(tat, cost, burst_ns, now);

		if (charged != LOST_RACE)
			return charged == CHARGED;
	}
	tally(EQUIC_TALLY_CONTENDED);
	return false;
}

/* Returns units * cost_ns >> EQUIC_RATE_SHIFT, computed so that the product does not overflow. At
 * less than 4 bytes per second, the product for a datagram would need more than 64 bits. */
INLINE __u64 cost_of(__u64 units, __u64 cost_ns)
{
	return units * (cost_ns >> EQUIC_RATE_SHIFT) +
	       (units * (cost_ns & ((1u << EQUIC_RATE_SHIFT) - 1)) >> EQUIC_RATE_SHIFT);
}

/* Charges `units` to a token bucket (docs/policy.md s.4). Returns false if the bucket refuses.
 * `burst_ns` and `cost_ns` are passed by value, so that both stay the same if user space changes
 * the rate during the call. */
INLINE bool charge(__u64 *tat, __u64 cost_ns, __u64 burst_ns, __u64 units, __u64 now)
{
	__u64 cost = cost_of(units, cost_ns);
	enum charged charged = try_charge(tat, cost, burst_ns, now);

	if (charged == LOST_RACE)
		return charge_again(tat, cost, burst_ns, now);
	return charged == CHARGED;
}

/* Charges `cost` to a token bucket at the time of the current tick, which is never later than now.
 * If the bucket has room at that time, it has room now, so the exact time is not needed. If it
 * returns false, nothing was charged, and the caller must try again with the exact time. */
INLINE bool charge_at_tick(__u64 *tat, __u64 cost, __u64 burst_ns, __u64 tick)
{
	__u64 old = *(volatile __u64 *)tat;
	__u64 ahead = old > tick ? old - tick : 0;

	if (ahead > burst_ns || ahead + cost > burst_ns)
		return false;
	return __sync_val_compare_and_swap(tat, old, tick + ahead + cost) == old;
}

INLINE bool rate_allows(volatile struct equic_rate *rate, __u64 *tat, __u64 units, struct packet *p)
{
	__u64 cost = rate->cost_ns, burst = rate->burst_ns;

	if (!cost)
		return true;
	cost = cost_of(units, cost);
	return charge_at_tick(tat, cost, burst, p->now) ||
	       charge_again(tat, cost, burst, exact_now(p));
}

#endif
