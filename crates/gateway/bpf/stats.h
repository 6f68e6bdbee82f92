/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Records verdicts in per-CPU counters, sampled events, and explanations. */
#ifndef EQUIC_STATS_H
#define EQUIC_STATS_H

#include "rates.h"

INLINE void count(const struct packet *p, __u32 reason, bool dropped)
{
	__u32 key = p->service * EQUIC_REASONS_MAX + reason;
	struct equic_counter *counter = bpf_map_lookup_elem(&counters, &key);

	if (!counter)
		return;
	counter->packets += p->datagrams;
	counter->bytes += p->quic.avail;
	counter->dropped += dropped ? p->datagrams : 0;
}

/* Fills in the event for a dropped packet. */
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
	if (p->quic.has_dcid)
		event->dcid = p->quic.dcid;
}

/* Sends the event for a dropped packet to the ring buffer. Each CPU sends at most control.events of
 * them. */
static __noinline void tell_event(struct xdp_md *ctx, struct packet *p, __u32 reason, bool dropped)
{
	struct equic_event *event;

	if (!charge(&p->event_tat, control.events.cost_ns, control.events.burst_ns, 1, p->now))
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		tally(EQUIC_TALLY_EVENTS_LOST);
		return;
	}
	describe(event, ctx, p, reason, dropped);
	bpf_ringbuf_submit(event, 0);
}

/* Sends the event for a dropped packet if the rate of events allows it. In a flood, the CPU's
 * bucket of events is nearly always empty, so this is checked before the call. If the rate of
 * events is disabled, no event is sent. (Any other disabled rate means no limit. Here, a flood
 * would then send one event per packet.) */
INLINE void tell(struct xdp_md *ctx, struct packet *p, __u32 reason, bool dropped)
{
	__u64 cost = cost_of(1, control.events.cost_ns), burst_ns = control.events.burst_ns, ahead;

	ahead = SINCE(p->event_tat, p->now);
	if (!control.events.cost_ns || (ahead <= burst_ns && ahead + cost > burst_ns))
		return;
	tell_event(ctx, p, reason, dropped);
}

/* Counts `packets` packets, which must be fewer than half of EQUIC_SEEN_HALF. CPUs that count at
 * the same time see different values of the word, so exactly one of them finds that it has filled a
 * half. */
INLINE void count_packets(struct equic_seen *seen, __u32 bytes, __u32 packets)
{
	__u64 more = ((__u64)bytes << EQUIC_SEEN_BITS) + packets;
	__u64 before = __sync_fetch_and_add(&seen->recent, more);

	if ((before & (EQUIC_SEEN_HALF - 1)) + packets >= EQUIC_SEEN_HALF)
		__sync_fetch_and_add(&seen->halves, 1);
}

/* Returns true if a refusal can count towards a ban. Source addresses can be forged. So if the
 * service uses Retry, only packets with a validated address count. */
INLINE bool counts_towards_ban(const struct packet *p, __u32 reason)
{
	return reason < 32 && load.counted_reasons >> (reason & 31) & 1 &&
	       (p->proved || !services[p->service & (EQUIC_MAX_SERVICES - 1)].retry);
}

INLINE void account(struct equic_source_state *state, const struct packet *p, __u32 reason,
		    bool drops)
{
	if (!state)
		return;
	count_packets(drops ? &state->dropped : &state->passed, p->quic.avail, p->datagrams);
	if (counts_towards_ban(p, reason))
		__sync_fetch_and_add(&state->refused, 1);
	state->last_ns = p->now;
	state->last_reason = reason;
}

/* Writes the explanation for `equic gateway explain` and the tests. If load.explain is not set, the
 * verifier prunes this function. */
static __noinline void explain_verdict(const struct packet *p, const struct equic_source *source,
				       __u32 reason, bool dropped)
{
	const struct equic_cid none = {};

	explain.packets++;
	explain.reason = reason;
	explain.service = p->service;
	explain.dropped = dropped;
	explain.version = p->quic.version;
	explain.source = *source;
	explain.dcid = p->quic.has_dcid ? p->quic.dcid : none;
	explain.scid = p->quic.has_scid ? p->quic.scid : none;
}

#endif
