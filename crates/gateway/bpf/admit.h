/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Third stage of the XDP program: finds the reason for the verdict on a packet, in the order of
 * docs/policy.md s.2.
 *
 * If the kernel mitigates attacks on return prediction, a call costs about as much as a map lookup.
 * Therefore the functions on the path of flood packets are inlined. The functions on the path of
 * new connections are not, to save stack. */
#ifndef EQUIC_ADMIT_H
#define EQUIC_ADMIT_H

#include "answer.h"
#include "attempts.h"
#include "ids.h"
#include "lists.h"
#include "negotiate.h"
#include "overrides.h"
#include "places.h"
#include "prefixes.h"
#include "unproven.h"
#include "reset.h"

static __noinline struct equic_source_state *new_source(const struct equic_source *key, __u64 now)
{
	/* This source may have had an entry that was evicted, and an attempt in progress. So the
	 * new entry starts as if an attempt had been admitted just now. */
	struct equic_source_state fresh = {.first_ns = now, .last_ns = now, .let_in_ns = now};

	if (!bpf_map_update_elem(&sources, key, &fresh, BPF_NOEXIST))
		tally(EQUIC_TALLY_SOURCES_CREATED);
	return bpf_map_lookup_elem(&sources, key);
}

/* Returns true if the service treats known and unknown sources differently (docs/policy.md s.11).
 * In such a service, a packet of an unknown source creates no entry, unless it opens a connection.
 */
INLINE bool knows_sources(volatile struct equic_service *service)
{
	return (service->flags & EQUIC_SERVICE_CHECK_IDS) | service->retry |
	       service->unproven_per_service.cost_ns;
}

/* Returns the source's entry, and creates it if necessary. Returns NULL if the source is unknown
 * and must not get an entry. */
INLINE struct equic_source_state *source_state(const struct packet *p,
					       volatile struct equic_service *service,
					       const struct equic_source *key)
{
	struct equic_source_state *state = bpf_map_lookup_elem(&sources, key);

	if (state)
		return state;
	if (knows_sources(service) && !(p->kind == REASON_NONE && p->quic.opening) &&
	    !connections_of(key, service->group, p->now))
		return NULL;
	return new_source(key, p->now);
}

/* Charges a packet of a source without an entry to the buckets that unknown sources share (steps 11
 * and 12 of docs/policy.md s.2). It is a global function so that the verifier checks it once, not
 * for every caller's state. */
__noinline __u32 charge_stranger(struct packet *p, const struct equic_source *source)
{
	volatile struct equic_service *service;
	struct equic_stranger *stranger;

	if (!p || !source)
		return EQUIC_REASON_RATE_PACKETS;
	service = &services[p->service & (EQUIC_MAX_SERVICES - 1)];
	stranger = stranger_of(source, p->service);
	if (!stranger)
		return EQUIC_REASON_RATE_PACKETS;
	if (!rate_allows(RATE_FOR(p, service, EQUIC_OVERRIDE_PACKETS, packets_per_source),
			 &stranger->packets_tat, p->datagrams, p))
		return EQUIC_REASON_RATE_PACKETS;
	if (!rate_allows(RATE_FOR(p, service, EQUIC_OVERRIDE_BYTES, bytes_per_source),
			 &stranger->bytes_tat, p->whole, p))
		return EQUIC_REASON_RATE_BYTES;
	return REASON_NONE;
}

/* Judges a packet that would open a connection (steps 16 to 22 of docs/policy.md s.2). It is a
 * global function so that the verifier checks it once. Checking it for every caller's state would
 * be most of the verifier's work. */
__noinline __u32 judge_opening(struct packet *p, const struct equic_source *source,
			       struct equic_source_state *state)
{
	volatile struct equic_service *service;
	struct equic_handshake *attempt = NULL;
	__u64 allowed_ns;
	__u32 limit;
	__u32 refused = REASON_NONE;
	bool places;

	if (!p || !source)
		return EQUIC_REASON_TRUNCATED;
	service = &services[p->service & (EQUIC_MAX_SERVICES - 1)];
	limit = connections_limit(p, service);
	allowed_ns = service->handshake_ns;
	/* Reservations are stored in the source's entry, so a source without an entry cannot have
	 * any. */
	places = state && limit && service->policy == EQUIC_POLICY_UNDERWAY;
	/* The attempt is not looked up if the source cannot have an attempt in progress. That is
	 * the common path of a flood over the quota. */
	if (!state || SINCE(p->now, state->let_in_ns) <= allowed_ns)
		attempt = find_attempt(p);
	if (attempt && under_way(p, attempt, service))
		return EQUIC_REASON_UNDERWAY;
	/* A client must not choose such a short ID, but a server may. So the packet may be the
	 * second flight of an attempt that was evicted from the table. */
	if (p->quic.dcid.len < QUIC_MIN_DCID &&
	    !(state && state->let_in && SINCE(p->now, state->let_in_ns) <= allowed_ns))
		return EQUIC_REASON_SHORT_DCID;
	if (!p->exempt) {
		if (limit && service->policy == EQUIC_POLICY_NEW &&
		    connections(source, service->group, p->now) >= limit)
			return EQUIC_REASON_QUOTA;
		if (places) {
			refused = take_place(source, state, p->service, p->now, limit);
			if (refused != REASON_NONE)
				return refused;
		}
		if (state && !rate_allows(RATE_FOR(p, service, EQUIC_OVERRIDE_NEW, new_per_source),
					  &state->new_tat, 1, p))
			refused = EQUIC_REASON_RATE_NEW_SOURCE;
		else if (service->prefix_levels && !within_prefixes(p))
			refused = EQUIC_REASON_RATE_NEW_PREFIX;
		else if (!rate_allows(&service->new_per_service,
				      &rates.new_tat[p->service & (EQUIC_MAX_SERVICES - 1)], 1, p))
			refused = EQUIC_REASON_RATE_NEW_SERVICE;
		if (refused != REASON_NONE) {
			if (places)
				take_place(source, state, p->service, p->now, GIVE_BACK);
			return refused;
		}
	}
	let_in(p, attempt);
	if (state) {
		state->let_in_ns = p->now;
		state->let_in = 1;
	}
	return p->proved ? EQUIC_REASON_PROVED : EQUIC_REASON_NEW;
}

/* Judges a packet that the lists did not refuse (steps 10 to 22 of docs/policy.md s.2). */
INLINE __u32 judge(struct xdp_md *ctx, struct packet *p, volatile struct equic_service *service,
		   const struct equic_source *source, struct equic_source_state *state)
{
	__u32 limit = connections_limit(p, service);
	__u32 reason = REASON_NONE;

	if (!p->exempt) {
		if (limit && service->policy == EQUIC_POLICY_STRICT &&
		    connections(source, service->group, p->now) > limit)
			return EQUIC_REASON_QUOTA_STRICT;
		if (!state) {
			reason = charge_stranger(p, source);
			if (reason != REASON_NONE)
				return reason;
		} else {
			if (!rate_allows(RATE_FOR(p, service, EQUIC_OVERRIDE_PACKETS,
						  packets_per_source),
					 &state->packets_tat, p->datagrams, p))
				return EQUIC_REASON_RATE_PACKETS;
			if (!rate_allows(
				    RATE_FOR(p, service, EQUIC_OVERRIDE_BYTES, bytes_per_source),
				    &state->bytes_tat, p->whole, p))
				return EQUIC_REASON_RATE_BYTES;
		}
	}
	reason = p->kind;
	if (reason == EQUIC_REASON_ESTABLISHED && service->flags & EQUIC_SERVICE_STATELESS_RESET)
		return reset_for_the_dead(ctx, p);
	if (reason != REASON_NONE)
		return reason;
	if (!p->quic.opening)
		return EQUIC_REASON_HANDSHAKE;
	return judge_opening(p, source, state);
}

/* Makes the checks that need no state of the source (steps 1 to 4 of docs/policy.md s.2). Returns
 * REASON_NONE if the packet must be judged further. */
INLINE __u32 refused_at_sight(struct xdp_md *ctx, struct packet *p, enum parsed parsed)
{
	enum listed listed;

	if (parsed == PARSED_BAD_UDP)
		return EQUIC_REASON_BAD_UDP;
	if (parsed == PARSED_BATCH)
		return EQUIC_REASON_BATCH;
	if (bad_source(ctx, p))
		return EQUIC_REASON_BAD_SOURCE;
	/* A list that never had entries is not searched, to save time. */
	if (!(control.acl_used & (p->family == 4 ? ACL4_USED : ACL6_USED)))
		return REASON_NONE;
	listed = look_up_acl(p);
	p->exempt = listed == LISTED_ALLOW;
	return listed == LISTED_DENY ? EQUIC_REASON_DENIED : REASON_NONE;
}

/* Charges an Initial without a valid token to its service, which has adaptive Retry (docs/policy.md
 * s.8). Returns true if the service requires tokens now, because of this packet or of earlier ones.
 */
static __noinline bool asks_now(struct packet *p)
{
	__u32 index = p->service & (EQUIC_MAX_SERVICES - 1);
	volatile struct equic_service *service = &services[index];
	struct equic_adaptive *state = &rates.adaptive[index];
	__u64 until = *(volatile __u64 *)&state->until_ns, next;
	bool asks = p->now < until;

	/* While Retry is on, each connection attempt costs twice as much. So Retry goes off at half
	 * the rate that turned it on. This hysteresis avoids oscillation. */
	if (rate_allows(&service->retry_above, &state->tat, asks ? 2 : 1, p))
		return asks;
	next = p->now + service->retry_hold_ns;
	if (asks && next == until)
		return true;
	/* If several CPUs find the bucket of `retry_above` empty at once, only one of them changes
	 * `until_ns`. */
	if (__sync_val_compare_and_swap(&state->until_ns, until, next) == until && !asks) {
		state->since_ns = p->now;
		__sync_fetch_and_add(&state->began, 1);
	}
	return true;
}

/* Judges an Initial to a service that requires tokens (docs/policy.md s.8). Returns REASON_NONE if
 * the Initial has a valid token, belongs to an admitted attempt, or arrives while adaptive Retry is
 * off. Other Initials are not charged to any source.
 *
 * The token is checked first. If it is valid, the attempt needs to be looked up only once, when the
 * Initial is judged as a new attempt. */
INLINE __u32 ask_for_proof(struct xdp_md *ctx, struct packet *p,
			   volatile struct equic_service *service)
{
	bool short_dcid = p->quic.dcid.len < QUIC_MIN_DCID;
	enum equic_proof proof = EQUIC_PROOF_MALFORMED;

	if (p->quic.token_len && !short_dcid) {
		proof = check_token(ctx, p);
		p->proved = proof == EQUIC_PROOF_OK;
		if (p->proved)
			return REASON_NONE;
	}
	if (of_attempt(p, service))
		return REASON_NONE;
	/* An Initial with an invalid Retry token is dropped. A client that has received a Retry
	 * ignores any other (RFC 9000 s.17.2.5.2), so a second Retry would be useless. But a token
	 * in another format may come from a NEW_TOKEN frame, so it is treated like no token. */
	if (proof != EQUIC_PROOF_NEW_TOKEN && proof != EQUIC_PROOF_MALFORMED)
		return EQUIC_REASON_BAD_TOKEN;
	if (service->retry == EQUIC_RETRY_ADAPTIVE && !asks_now(p))
		return REASON_NONE;
	if (short_dcid)
		return EQUIC_REASON_SHORT_DCID;
	if (!can_answer(ctx, p))
		return EQUIC_REASON_UNPROVED;
	if (!rate_allows(&service->answers_per_service,
			 &rates.retries_tat[p->service & (EQUIC_MAX_SERVICES - 1)], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_retry(p) ? EQUIC_REASON_RETRY_SENT : EQUIC_REASON_UNPROVED;
}

/* Answers a packet that would open a connection with a version that the service does not accept
 * (docs/policy.md s.9). */
INLINE __u32 negotiate(struct xdp_md *ctx, struct packet *p, volatile struct equic_service *service)
{
	__u32 index = p->service & (EQUIC_MAX_SERVICES - 1);

	if (!can_answer(ctx, p))
		return EQUIC_REASON_UNKNOWN_VERSION;
	if (!rate_allows(&service->answers_per_service, &rates.negotiations_tat[index], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_negotiation(ctx, p, service->versions) ? EQUIC_REASON_VERSION_NEGOTIATION_SENT
							   : EQUIC_REASON_UNKNOWN_VERSION;
}

/* Returns true if the packet has a version that the service does not accept. */
INLINE bool of_unknown_version(const struct packet *p)
{
	return p->kind == EQUIC_REASON_UNKNOWN_VERSION || p->kind == EQUIC_REASON_SMALL_VERSION ||
	       (p->kind == REASON_NONE && p->quic.opening && !p->quic.known_version);
}

/* Judges a packet with a version that the service does not accept (docs/policy.md s.9). Its source
 * address is not validated, so it is charged to the service, never to the source. It is a global
 * function so that the verifier checks it once, not for every caller's state. */
__noinline __u32 judge_unknown_version(struct xdp_md *ctx, struct packet *p,
				       const struct equic_source *source)
{
	volatile struct equic_service *service;
	struct equic_stranger *stranger;
	__u32 index, limit, held;

	if (!p || !source)
		return EQUIC_REASON_TRUNCATED;
	if (p->kind != REASON_NONE)
		return p->kind;
	index = p->service & (EQUIC_MAX_SERVICES - 1);
	service = &services[index];
	if (service->flags & EQUIC_SERVICE_VERSION_NEGOTIATION || (service->retry && !p->exempt))
		return negotiate(ctx, p, service);
	if (p->exempt)
		return EQUIC_REASON_ALLOWED;
	limit = connections_limit(p, service);
	if (limit) {
		held = connections_of(source, service->group, p->now);
		if (service->policy == EQUIC_POLICY_STRICT ? held > limit : held >= limit)
			return service->policy == EQUIC_POLICY_STRICT ? EQUIC_REASON_QUOTA_STRICT
								      : EQUIC_REASON_QUOTA;
	}
	stranger = stranger_of(source, index);
	if (!stranger || !rate_allows(RATE_FOR(p, service, EQUIC_OVERRIDE_NEW, new_per_source),
				      &stranger->versions_tat, p->datagrams, p))
		return EQUIC_REASON_RATE_NEW_SOURCE;
	if (!rate_allows(&service->new_per_service, &rates.versions_tat[index], p->datagrams, p))
		return EQUIC_REASON_RATE_NEW_SERVICE;
	return rate_allows(&service->packets_per_service, &rates.packets_tat[index], p->datagrams,
			   p)
		       ? EQUIC_REASON_NEW_VERSION
		       : EQUIC_REASON_RATE_PACKETS_SERVICE;
}

/* Checks connection IDs, unknown sources, and the validation of addresses (steps 7 to 9 of
 * docs/policy.md s.2). Returns REASON_NONE if the packet must be judged further. */
INLINE __u32 ask_for_more(struct xdp_md *ctx, struct packet *p,
			  volatile struct equic_service *service, const struct equic_source *source)
{
	__u32 reason = REASON_NONE;

	if (service->flags & EQUIC_SERVICE_CHECK_IDS)
		reason = p->kind == REASON_NONE && p->quic.early
				 ? check_early(p, service)
				 : check_id(ctx, p, source, service->group);
	if (reason != REASON_NONE)
		return reason;
	if (opens_nothing(p))
		return service->unproven_per_service.cost_ns ? charge_unproven(p, source)
							     : REASON_NONE;
	return p->kind == REASON_NONE && service->retry ? ask_for_proof(ctx, p, service)
							: REASON_NONE;
}

/* Returns the reason for the verdict on a packet to a service. Sets `*found` to the entry of the
 * packet's source, or to NULL if the source has none. */
INLINE __u32 admit(struct xdp_md *ctx, struct packet *p, enum parsed parsed,
		   volatile struct equic_service *service, const struct equic_source *source,
		   struct equic_source_state **found)
{
	__u32 reason = refused_at_sight(ctx, p, parsed);

	if (reason != REASON_NONE) {
		/* This lookup of the source creates no entry, so that a flood of such packets
		 * cannot evict other sources. */
		*found = bpf_map_lookup_elem(&sources, source);
		return reason;
	}
	p->kind = classify(ctx, &p->quic, service);
	/* A fragmented datagram with a long header is dropped, because the program sees only its
	 * first part, and no QUIC client sends one. Later fragments can arrive before the first
	 * one. So the fragment policy `drop` must drop the first fragment, too. */
	if (p->first_fragment &&
	    (service->fragments == EQUIC_FRAGMENTS_DROP || p->quic.first_byte & QUIC_LONG))
		return EQUIC_REASON_FIRST_FRAGMENT;
	if (service->overrides)
		p->own = p->exempt ? 0 : override_of(p);
	if (of_unknown_version(p))
		return judge_unknown_version(ctx, p, source) & 63;
	if (!p->exempt && knows_sources(service)) {
		reason = ask_for_more(ctx, p, service, source);
		if (reason != REASON_NONE)
			return reason;
	}
	*found = source_state(p, service, source);
	reason = judge(ctx, p, service, source, *found) & 63;
	if (drops(reason) || answers_it(reason))
		return reason;
	if (p->exempt)
		return EQUIC_REASON_ALLOWED;
	return rate_allows(&service->packets_per_service,
			   &rates.packets_tat[p->service & (EQUIC_MAX_SERVICES - 1)], p->datagrams,
			   p)
		       ? reason
		       : EQUIC_REASON_RATE_PACKETS_SERVICE;
}

#endif
