/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is told of a verdict: per-CPU counters, sampled events, explanations. */
#ifndef EQUIC_STATS_H
#define EQUIC_STATS_H

#include "rates.h"

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

/* Writes down what an event tells of a drop. */
INLINE void describe(struct equic_event *event, struct xdp_md *ctx, const struct packet *p,
		     __u32 reason, bool dropped)
{
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = p->now;
	event->ifindex = ctx->ingress_ifindex;
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
}

/* A sampled drop for whoever listens; at most control.events of them per CPU. */
static __noinline void tell_event(struct xdp_md *ctx, const struct packet *p, __u64 *tat,
				  __u32 reason, bool dropped)
{
	struct equic_event *event;

	if (!tat || !charge(tat, control.events.cost_ns, control.events.burst_ns, 1, p->now))
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		tally(EQUIC_TALLY_EVENTS_LOST);
		return;
	}
	describe(event, ctx, p, reason, dropped);
	bpf_ringbuf_submit(event, 0);
}

/* Nearly every drop of a flood finds its CPU's bucket of events empty. */
INLINE void tell(struct xdp_md *ctx, const struct packet *p, __u32 reason, bool dropped)
{
	__u64 cost = cost_of(1, control.events.cost_ns), burst_ns = control.events.burst_ns, ahead;
	__u32 zero = 0;
	__u64 *tat = bpf_map_lookup_elem(&event_rate, &zero);

	if (!tat)
		return;
	ahead = SINCE(*tat, p->now);
	if (ahead <= burst_ns && ahead + cost > burst_ns)
		return;
	tell_event(ctx, p, tat, reason, dropped);
}

INLINE void account(struct equic_source_state *state, const struct packet *p, __u32 reason,
		    bool drops)
{
	if (!state)
		return;
	__sync_fetch_and_add(&state->packets, 1);
	__sync_fetch_and_add(&state->bytes, p->quic.len);
	if (drops)
		__sync_fetch_and_add(&state->drops, 1);
	if (reason < 32 && load.counted_reasons >> (reason & 31) & 1)
		__sync_fetch_and_add(&state->refused, 1);
	state->last_ns = p->now;
	state->last_reason = reason;
}

/* What `equic gateway explain` and the tests read; pruned by the verifier otherwise. */
static __noinline void explain_verdict(const struct packet *p, const struct equic_source *source,
				       __u32 reason, bool dropped)
{
	explain.packets++;
	explain.reason = reason;
	explain.service = p->service;
	explain.dropped = dropped;
	explain.version = p->quic.version;
	explain.source = *source;
	explain.dcid = p->quic.dcid;
	explain.scid = p->quic.scid;
}

#endif
