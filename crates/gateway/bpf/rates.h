/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Token buckets in one word each: the generic cell rate algorithm (docs/policy.md s.4). */
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
		/* A reservation from a slower rate, which was changed since, must not bind longer
		 * than this rate allows. */
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

/* Returns units * cost_ns >> EQUIC_RATE_SHIFT without overflow of the product. It would need more
 * than 64 bits for a datagram at less than 4 bytes a second. */
INLINE __u64 cost_of(__u64 units, __u64 cost_ns)
{
	return units * (cost_ns >> EQUIC_RATE_SHIFT) +
	       (units * (cost_ns & ((1u << EQUIC_RATE_SHIFT) - 1)) >> EQUIC_RATE_SHIFT);
}

/* Charges `units` to a token bucket (docs/policy.md s.4). Returns false if it refuses. `burst_ns`
 * and `cost_ns` are passed by value, so that both come from the same state of a live change. */
INLINE bool charge(__u64 *tat, __u64 cost_ns, __u64 burst_ns, __u64 units, __u64 now)
{
	__u64 cost = cost_of(units, cost_ns);
	enum charged charged = try_charge(tat, cost, burst_ns, now);

	if (charged == LOST_RACE)
		return charge_again(tat, cost, burst_ns, now);
	return charged == CHARGED;
}

/* The same at the time of the tick, which is never later than now. If the bucket has room then, it
 * has room now, and the exact time is not needed. False means not charged, but not refused either.
 */
INLINE bool charge_at_tick(__u64 *tat, __u64 cost, __u64 burst_ns, __u64 tick)
{
	__u64 old = *(volatile __u64 *)tat;
	__u64 ahead = old > tick ? old - tick : 0;

	if (ahead > burst_ns || ahead + cost > burst_ns)
		return false;
	return __sync_val_compare_and_swap(tat, old, tick + ahead + cost) == old;
}

INLINE bool within(volatile struct equic_rate *rate, __u64 *tat, __u64 units, struct packet *p)
{
	__u64 cost = rate->cost_ns, burst = rate->burst_ns;

	if (!cost)
		return true;
	cost = cost_of(units, cost);
	return charge_at_tick(tat, cost, burst, p->now) ||
	       charge_again(tat, cost, burst, exact_now(p));
}

#endif
