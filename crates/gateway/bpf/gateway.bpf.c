// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The gateway's XDP program: decides, for every packet to a protected service, whether the server
 * shall see it. What it decides and in which order is written down in docs/policy.md.
 *
 *   abi.h      what user space shares: constants, reasons, structures
 *   maps.h     the maps and the global data
 *   parse.h    frame -> UDP payload
 *   quic.h     UDP payload -> kind of QUIC packet
 *   ledger.h   connections of a source
 *   policy.h   the decisions
 *   stats.h    counters, rates, events
 */
#include "policy.h"

#define DROPS(reason)			     (1u << EQUIC_REASON_##reason)
#define DROP_BIT(name, text, drops, meaning) | ((drops) ? DROPS(name) : 0)
/* Which reasons drop, as a bit mask. */
#define DROP_MASK (0u EQUIC_REASONS(DROP_BIT))
_Static_assert(EQUIC_REASON_COUNT <= EQUIC_REASONS_MAX, "counter table too small");

/* Time to the tick. Which tick it is costs one load, its time a call, so the time is asked for once
 * a tick. The low bits of both words have to agree: another CPU may be between its two stores. */
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

/* The source is a prefix of the address. */
INLINE void source_of(const struct packet *p, struct equic_source *source)
{
	__u64 words[2];

	if (p->family == 4) {
		words[0] = 0;
		words[1] = V4_MAPPED | (p->src[1] & ((__u64)load.v4_mask << 32));
	} else {
		words[0] = p->src[0] & load.v6_mask[0];
		words[1] = p->src[1] & load.v6_mask[1];
	}
	__builtin_memcpy(source->addr, words, sizeof(words));
	source->service = p->service;
}

/* Which service is the packet to? EQUIC_NO_SERVICE: none. */
INLINE __u32 service_of(const struct packet *p)
{
	struct equic_listener key = {};
	__u32 port = bpf_ntohs(p->dport);
	struct equic_ports *table;
	__u32 zero = 0, *index;
	__u8 entry;

	/* Verifiers before Linux 6.8 take a swapped register to have any value. */
	OPAQUE(port);
	port &= 0xffff;
	table = bpf_map_lookup_elem(&ports, &zero);
	if (!table)
		return EQUIC_NO_SERVICE;
	entry = p->family == 4 ? table->any4[port] : table->any6[port];
	if (!entry)
		return EQUIC_NO_SERVICE;
	if (entry & EQUIC_PORT_EXACT) {
		key.port = p->dport;
		key.family = p->family;
		__builtin_memcpy(key.addr, p->dst, sizeof(key.addr));
		index = bpf_map_lookup_elem(&listeners, &key);
		if (index)
			return *index;
		entry &= ~EQUIC_PORT_EXACT;
	}
	return entry ? entry - 1 : EQUIC_NO_SERVICE;
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
	if (load.counted_reasons >> (reason & 31) & 1)
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

/* Counts the verdict and turns it into an action. */
INLINE int conclude(const struct packet *p, volatile struct equic_service *service,
		    const struct equic_source *source, struct equic_source_state *state,
		    __u32 reason)
{
	bool drops = DROP_MASK >> reason & 1;
	bool dry = control.dry_run || (service->flags & EQUIC_SERVICE_DRY_RUN);
	bool dropped = drops && !dry;

	count(p, reason, dropped);
	account(state, p, reason, drops);
	if (drops)
		tell(p, reason, dropped);
	if (load.explain)
		explain_verdict(p, source, reason, dropped);
	return dropped ? XDP_DROP : XDP_PASS;
}

INLINE void fragment_key(const struct packet *p, struct fragment_key *key)
{
	key->src[0] = p->src[0];
	key->src[1] = p->src[1];
	key->dst[0] = p->dst[0];
	key->dst[1] = p->dst[1];
	key->id = p->frag_id;
	key->family = p->family;
	key->protocol = p->frag_protocol;
}

static __noinline void remember_fragment(const struct packet *p, bool dropped)
{
	struct fragment value = {.service = p->service, .dropped = dropped};
	struct fragment_key key;

	fragment_key(p, &key);
	bpf_map_update_elem(&fragments, &key, &value, BPF_ANY);
}

/* A later fragment follows what was decided of its first one. */
static __noinline int later_fragment(struct packet *p)
{
	volatile struct equic_service *service;
	struct equic_source_state *state;
	struct equic_source source __attribute__((aligned(8)));
	struct fragment_key key;
	struct fragment *first;
	__u32 reason = EQUIC_REASON_FRAGMENT;

	fragment_key(p, &key);
	first = bpf_map_lookup_elem(&fragments, &key);
	if (!first || first->service >= EQUIC_MAX_SERVICES)
		return XDP_PASS;
	p->service = first->service;
	p->now = time_now();
	service = &services[first->service & (EQUIC_MAX_SERVICES - 1)];
	if (!(service->flags & EQUIC_SERVICE_ENABLED) || service->fragments == EQUIC_FRAGMENTS_PASS)
		return XDP_PASS;
	if (service->fragments == EQUIC_FRAGMENTS_DROP || first->dropped)
		reason = EQUIC_REASON_LATER_FRAGMENT;
	source_of(p, &source);
	/* No new entry: what follows a denied packet must not push others out of the table. */
	state = bpf_map_lookup_elem(&sources, &source);
	return conclude(p, service, &source, state, reason);
}

INLINE int to_service(struct packet *p, enum parsed parsed)
{
	volatile struct equic_service *service;
	struct equic_source_state *state = NULL;
	struct equic_source source __attribute__((aligned(8)));
	enum listed listed = LISTED_NOT;
	__u32 index = service_of(p);
	__u32 reason = REASON_NONE;
	int action;

	if (index >= EQUIC_MAX_SERVICES)
		return XDP_PASS;
	service = &services[index];
	if (!(service->flags & EQUIC_SERVICE_ENABLED))
		return XDP_PASS;
	p->service = index;
	p->now = time_now();
	source_of(p, &source);
	if (parsed == PARSED_BAD_UDP) {
		reason = EQUIC_REASON_BAD_UDP;
	} else if (bad_source(p)) {
		reason = EQUIC_REASON_BAD_SOURCE;
	} else if (control.acl_used) {
		listed = look_up_acl(p);
		if (listed == LISTED_DENY)
			reason = EQUIC_REASON_DENIED;
	}
	if (reason != REASON_NONE) {
		/* No new entry: such a flood must not push other sources out of the table. */
		state = bpf_map_lookup_elem(&sources, &source);
	} else {
		state = source_state(&source, p->now);
		reason = judge(p, service, &source, state, listed == LISTED_ALLOW);
		if (listed == LISTED_ALLOW && !(DROP_MASK >> (reason & 31) & 1))
			reason = EQUIC_REASON_ALLOWED;
	}
	if (load.explain)
		explain.count = connections_of(&source, service->group, p->now);
	action = conclude(p, service, &source, state, reason & 31);
	if (p->first_fragment && service->fragments != EQUIC_FRAGMENTS_PASS)
		remember_fragment(p, action == XDP_DROP);
	return action;
}

SEC("xdp.frags")
int equic_gateway(struct xdp_md *ctx)
{
	struct packet p = {.ctx = ctx};
	enum parsed parsed = parse(&p);

	if (parsed == PARSED_DEEP) {
		tally(EQUIC_TALLY_DEEP_HEADERS);
		return load.drop_deep_headers && !control.dry_run ? XDP_DROP : XDP_PASS;
	}
	if (parsed == PARSED_OTHER) {
		if (ctx->data_end - ctx->data < 64 &&
		    bpf_xdp_get_buff_len(ctx) > ctx->data_end - ctx->data)
			tally(EQUIC_TALLY_NONLINEAR);
		return XDP_PASS;
	}
	if (parsed == PARSED_FRAGMENT)
		return later_fragment(&p);
	return to_service(&p, parsed);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
