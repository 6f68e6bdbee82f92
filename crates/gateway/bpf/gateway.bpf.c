// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The gateway's XDP program. It decides for every packet to a protected service whether the packet
 * reaches the server. docs/policy.md specifies the decisions and their order.
 *
 *     parse.h -> classify.h (service, source) -> admit.h (calls classify) -> act.h
 *
 *     abi.h       interface to user space: constants, reasons, structures
 *     common.h    the packet that is being judged
 *     maps.h      the maps and the global data
 *     clock.h     the current time
 *     rates.h     token buckets
 *     parse.h     frame -> UDP payload
 *     local.h     finds out whether a packet is for this host
 *     batch.h     several datagrams in one packet
 *     quic.h      UDP payload -> QUIC fields that are readable without keys
 *     classify.h  service, source, kind of packet
 *     lists.h     deny and allow lists
 *     ledger.h    connections of a source
 *     proof.h     makes and checks Retry tokens and connection IDs
 *     ghash.h     the integrity tag of Retry packets
 *     ids.h       verification of connection IDs
 *     overrides.h limits of one source
 *     unproven.h  packets of sources without a connection
 *     attempts.h  the table of handshakes
 *     answer.h    answers in the server's name, and Retry
 *     negotiate.h Version Negotiation packets
 *     prefixes.h  rates of new connections by prefix
 *     reset.h     stateless resets for dead servers
 *     places.h    handshakes in progress that count towards a quota
 *     admit.h     finds the reason for the verdict
 *     stats.h     counters, events, explanations
 *     capture.h   copies of dropped packets
 *     act.h       reason -> action */
#include "act.h"

/* Resets the fields that the previous packet left behind. It is called only for packets to a
 * service, because most packets of a busy host have another destination. Connection IDs need no
 * reset, because has_dcid and has_scid are checked before each use. */
INLINE void clean(struct packet *p)
{
	p->exact = 0;
	p->exempt = p->proved = false;
	p->quic.version = 0;
	*(__u64 *)&p->quic.first_byte = 0;
}

/* Judges a later fragment, which gets the verdict of its first fragment. */
static __noinline int later_fragment(struct xdp_md *ctx, struct packet *p)
{
	volatile struct equic_service *service;
	struct equic_source_state *state;
	struct equic_source source;
	struct fragment_key key;
	struct fragment *first;
	__u32 reason = EQUIC_REASON_FRAGMENT;
	enum action action;

	fragment_key(p, &key);
	first = bpf_map_lookup_elem(&fragments, &key);
	if (!first || first->service >= EQUIC_MAX_SERVICES)
		return XDP_PASS;
	clean(p);
	p->sport = p->dport = 0;
	p->service = first->service;
	p->now = time_now();
	service = &services[first->service & (EQUIC_MAX_SERVICES - 1)];
	if (!(service->flags & EQUIC_SERVICE_ENABLED) || service->fragments == EQUIC_FRAGMENTS_PASS)
		return XDP_PASS;
	if (service->fragments == EQUIC_FRAGMENTS_DROP || first->dropped)
		reason = EQUIC_REASON_LATER_FRAGMENT;
	source_of(p, &source);
	/* This lookup of the source creates no entry, so that fragments of a denied source cannot
	 * evict other sources. */
	state = bpf_map_lookup_elem(&sources, &source);
	action = action_of(reason, service);
	record(ctx, p, &source, state, reason, action);
	return carry_out(ctx, p, action);
}

INLINE int to_service(struct xdp_md *ctx, struct packet *p, enum parsed parsed)
{
	struct equic_source source;
	struct equic_source_state *state = NULL;
	volatile struct equic_service *service;
	__u32 index = service_of(p);
	enum action action;
	__u32 reason;

	if (index >= EQUIC_MAX_SERVICES)
		return XDP_PASS;
	service = &services[index];
	if (!(service->flags & EQUIC_SERVICE_ENABLED))
		return XDP_PASS;
	clean(p);
	p->service = index;
	p->now = time_now();
	if (control.transit && !p->named && passes_through(ctx, p))
		return XDP_PASS;
	p->whole = p->quic.avail;
	p->segment = parsed == PARSED_UDP ? segment_length(ctx, p) : 0;
	if (p->segment && p->whole > p->segment && !take_apart(ctx, p))
		parsed = PARSED_BATCH;
	source_of(p, &source);
	reason = admit(ctx, p, parsed, service, &source, &state);
	if (p->datagrams > 1)
		p->quic.len = p->quic.avail = p->whole;
	if (load.explain)
		explain.count = connections_of(&source, service->group, p->now);
	action = action_of(reason, service);
	record(ctx, p, &source, state, reason, action);
	if (p->first_fragment && service->fragments != EQUIC_FRAGMENTS_PASS)
		remember_fragment(p, action != ACTION_PASS);
	return carry_out(ctx, p, action);
}

SEC("xdp.frags")
int equic_gateway(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct packet *p = bpf_map_lookup_elem(&scratch, &zero);
	enum parsed parsed;

	if (!p)
		return XDP_DROP;
	p->interface = interface_flags(ctx);
	p->datagrams = 1;
	parsed = parse(ctx, p);
	if (parsed == PARSED_DEEP) {
		tally(EQUIC_TALLY_DEEP_HEADERS);
		return load.drop_deep_headers && !control.dry_run ? XDP_DROP : XDP_PASS;
	}
	if (parsed == PARSED_OTHER)
		return XDP_PASS;
	if (parsed == PARSED_FRAGMENT)
		return later_fragment(ctx, p);
	return to_service(ctx, p, parsed);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
