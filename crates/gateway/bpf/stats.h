/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Everything that is counted and told: per-CPU counters, tallies, sampled events, explanations. */
#ifndef EQUIC_STATS_H
#define EQUIC_STATS_H

#include "maps.h"

#define RATE_ATTEMPTS 8

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
		/* A slower rate, since changed, must not bind longer than this one would. */
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

/* units * cost_ns >> EQUIC_RATE_SHIFT, where the product would have over 64 bits: a datagram at
 * less than 4 bytes a second. */
INLINE __u64 cost_of(__u64 units, __u64 cost_ns)
{
	return units * (cost_ns >> EQUIC_RATE_SHIFT) +
	       (units * (cost_ns & ((1u << EQUIC_RATE_SHIFT) - 1)) >> EQUIC_RATE_SHIFT);
}

/* Charges `units` to a token bucket (docs/policy.md s.4); false: refused. `burst_ns` and `cost_ns`
 * are passed by value, so that a live change between two reads can't split them. */
INLINE bool charge(__u64 *tat, __u64 cost_ns, __u64 burst_ns, __u64 units, __u64 now)
{
	__u64 cost = cost_of(units, cost_ns);
	enum charged charged = try_charge(tat, cost, burst_ns, now);

	if (charged == LOST_RACE)
		return charge_again(tat, cost, burst_ns, now);
	return charged == CHARGED;
}

INLINE void count(const struct packet *p, __u32 reason, bool dropped)
{
	__u32 key = p->service * EQUIC_REASONS_MAX + reason;
	struct equic_counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (!counter)
		return;
	counter->packets++;
	counter->bytes += p->quic.len;
	counter->dropped += dropped;
}

/* A sampled drop for whoever listens; at most control.events of them per CPU. */
static __noinline void tell_event(const struct packet *p, __u64 *tat, __u32 reason, bool dropped)
{
	struct equic_event *event;

	if (!tat || !charge(tat, control.events.cost_ns, control.events.burst_ns, 1, p->now))
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		tally(EQUIC_TALLY_EVENTS_LOST);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = p->now;
	event->ifindex = p->ctx->ingress_ifindex;
	event->version = p->quic.version;
	__builtin_memcpy(event->src, p->src, sizeof(event->src));
	__builtin_memcpy(event->dst, p->dst, sizeof(event->dst));
	event->sport = p->sport;
	event->dport = p->dport;
	event->service = p->service;
	event->length = p->quic.len;
	event->family = p->family;
	event->reason = reason;
	event->dropped = dropped;
	event->first_byte = p->quic.first_byte;
	event->dcid = p->quic.dcid;
	bpf_ringbuf_submit(event, 0);
}

/* Nearly every drop of a flood finds its CPU's bucket of events empty. */
INLINE void tell(const struct packet *p, __u32 reason, bool dropped)
{
	__u64 cost = cost_of(1, control.events.cost_ns), burst_ns = control.events.burst_ns, ahead;
	__u32 zero = 0;
	__u64 *tat = bpf_map_lookup_elem(&event_rate, &zero);

	if (!tat)
		return;
	ahead = SINCE(*tat, p->now);
	if (ahead <= burst_ns && ahead + cost > burst_ns)
		return;
	tell_event(p, tat, reason, dropped);
}

#endif
