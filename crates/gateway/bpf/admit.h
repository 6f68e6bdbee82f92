/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The third stage: a reason for what becomes of the packet, in the order of docs/policy.md s.2.
 *
 * Where the kernel does not trust the processor to predict returns, a call costs about as much as a
 * look-up in a table. So what every packet of a flood goes through is inlined; what only a new
 * connection needs is not, for the sake of the stack.
 */
#ifndef EQUIC_ADMIT_H
#define EQUIC_ADMIT_H

#include "answer.h"
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
	/* An attempt may have been let in before the entry was evicted. */
	struct equic_source_state fresh = {.first_ns = now, .last_ns = now, .let_in_ns = now};

	if (!bpf_map_update_elem(&sources, key, &fresh, BPF_NOEXIST))
		tally(EQUIC_TALLY_SOURCES_CREATED);
	return bpf_map_lookup_elem(&sources, key);
}

INLINE struct equic_source_state *source_state(const struct equic_source *key, __u64 now)
{
	struct equic_source_state *state = bpf_map_lookup_elem(&sources, key);

	return state ? state : new_source(key, now);
}

INLINE bool same_cid(const struct equic_cid *a, const struct equic_cid *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

INLINE void handshake_key(const struct packet *p, struct equic_handshake_key *key)
{
	equic_word *words = (equic_word *)key;

	words[0] = p->src[0];
	words[1] = p->src[1];
	key->scid = p->quic.scid;
	/* Port, service and family in one store: they are compared as one word. */
	words[5] = p->sport | (__u32)p->service << 16 | (__u64)p->family << 32;
}

_Static_assert(offsetof(struct equic_handshake_key, port) == 40 &&
		       offsetof(struct equic_handshake_key, service) == 42 &&
		       offsetof(struct equic_handshake_key, family) == 44,
	       "the last word of a key");

/* Number of the packet's connection ID in an attempt that was let in and may be under way; or of
 * the free place for it: for the ID that the server chose there is one, after a Retry two. Else
 * EQUIC_HANDSHAKE_CIDS. */
INLINE __u32 place_in(const struct packet *p, const struct equic_handshake *attempt,
		      __u64 allowed_ns)
{
	__u32 room = p->quic.token_len ? EQUIC_HANDSHAKE_CIDS : EQUIC_HANDSHAKE_CIDS - 1;
	__u32 known;

	if (SINCE(p->now, attempt->started_ns) > allowed_ns)
		return EQUIC_HANDSHAKE_CIDS;
	/* Or whoever was let in once could send that packet as often as it likes. */
	if (attempt->packets >= EQUIC_HANDSHAKE_PACKETS)
		return EQUIC_HANDSHAKE_CIDS;
	known = attempt->count;
	for (__u32 i = 0; i < EQUIC_HANDSHAKE_CIDS; i++) {
		if (i < known && same_cid(&attempt->dcid[i], &p->quic.dcid))
			return i;
	}
	return known < room ? known : EQUIC_HANDSHAKE_CIDS;
}

/* Does the packet belong to this attempt? Learns its connection ID, where there is room. */
INLINE bool under_way(const struct packet *p, struct equic_handshake *attempt, __u64 allowed_ns)
{
	__u32 place = place_in(p, attempt, allowed_ns);

	if (place >= EQUIC_HANDSHAKE_CIDS)
		return false;
	if (place >= attempt->count) {
		attempt->dcid[place] = p->quic.dcid;
		attempt->count = place + 1;
	}
	attempt->packets++;
	return true;
}

static __noinline struct equic_handshake *find_attempt(const struct packet *p)
{
	struct equic_handshake_key key;

	handshake_key(p, &key);
	return bpf_map_lookup_elem(&handshakes, &key);
}

/* A 0-RTT packet goes to the client's own choice, which proves nothing: EQUIC_REASON_FORGED_ID,
 * unless its client is in the middle of an attempt. */
static __noinline __u32 check_early(const struct packet *p, volatile struct equic_service *service)
{
	struct equic_handshake *attempt = find_attempt(p);

	if (attempt && SINCE(p->now, attempt->started_ns) <= service->handshake_ns)
		return REASON_NONE;
	return EQUIC_REASON_FORGED_ID;
}

/* Remembers an attempt; in the entry of an older one with the same key, where there is one. */
static __noinline void let_in(const struct packet *p, struct equic_handshake *older)
{
	struct equic_handshake_key key;
	struct equic_handshake attempt;

	if (older) {
		older->count = 1;
		older->packets = 1;
		older->dcid[0] = p->quic.dcid;
		older->started_ns = p->now;
		return;
	}
	handshake_key(p, &key);
	__builtin_memset(&attempt, 0, sizeof(attempt));
	attempt.started_ns = p->now;
	attempt.count = 1;
	attempt.packets = 1;
	attempt.dcid[0] = p->quic.dcid;
	if (!bpf_map_update_elem(&handshakes, &key, &attempt, BPF_NOEXIST))
		tally(EQUIC_TALLY_HANDSHAKES_CREATED);
	else
		bpf_map_update_elem(&handshakes, &key, &attempt, BPF_ANY);
}

/* A packet that would open a connection: step 6 of docs/policy.md s.2. A global function: the
 * verifier reads it once, and not once for each way that leads here, which is most of its work. */
__noinline __u32 judge_opening(struct packet *p, const struct equic_source *source,
			       struct equic_source_state *state, __u32 exempt)
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
	/* Without a state there is nothing to keep places in. */
	places = state && limit && service->policy == EQUIC_POLICY_UNDERWAY;
	/* A source without an attempt that can still be under way needs no look: this is what a
	 * flood over the quota comes down to. */
	if (!state || SINCE(p->now, state->let_in_ns) <= allowed_ns)
		attempt = find_attempt(p);
	if (attempt && under_way(p, attempt, allowed_ns))
		return EQUIC_REASON_UNDERWAY;
	/* Too short for a client's own choice, but a server may choose so: where the table may have
	 * forgotten an attempt of the source, this can be its second flight. */
	if (p->quic.known_version && p->quic.dcid.len < QUIC_MIN_DCID &&
	    !(state && state->let_in && SINCE(p->now, state->let_in_ns) <= allowed_ns))
		return EQUIC_REASON_SHORT_DCID;
	if (!exempt) {
		if (limit && service->policy == EQUIC_POLICY_NEW &&
		    connections(source, service->group, p->now) >= limit)
			return EQUIC_REASON_QUOTA;
		if (places) {
			refused = take_place(source, state, p->service, p->now, limit);
			if (refused != REASON_NONE)
				return refused;
		}
		if (state && !within(RATE_FOR(p, service, EQUIC_OVERRIDE_NEW, new_per_source),
				     &state->new_tat, 1, p))
			refused = EQUIC_REASON_RATE_NEW_SOURCE;
		else if (service->prefix_levels && !within_prefixes(p))
			refused = EQUIC_REASON_RATE_NEW_PREFIX;
		else if (!within(&service->new_per_service,
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
	if (p->proved)
		return EQUIC_REASON_PROVED;
	return p->quic.known_version ? EQUIC_REASON_NEW : EQUIC_REASON_NEW_VERSION;
}

/* Everything but the lists: steps 3 to 6. */
INLINE __u32 judge(struct xdp_md *ctx, struct packet *p, volatile struct equic_service *service,
		   const struct equic_source *source, struct equic_source_state *state, bool exempt)
{
	__u32 limit = connections_limit(p, service);
	__u32 reason;

	if (!exempt) {
		if (limit && service->policy == EQUIC_POLICY_STRICT &&
		    connections(source, service->group, p->now) > limit)
			return EQUIC_REASON_QUOTA_STRICT;
		if (state) {
			if (!within(RATE_FOR(p, service, EQUIC_OVERRIDE_PACKETS,
					     packets_per_source),
				    &state->packets_tat, 1, p))
				return EQUIC_REASON_RATE_PACKETS;
			if (!within(RATE_FOR(p, service, EQUIC_OVERRIDE_BYTES, bytes_per_source),
				    &state->bytes_tat, p->quic.len, p))
				return EQUIC_REASON_RATE_BYTES;
		}
	}
	reason = p->classified ? p->kind : classify(ctx, &p->quic, service);
	if (reason == EQUIC_REASON_ESTABLISHED && service->flags & EQUIC_SERVICE_STATELESS_RESET)
		return reset_for_the_dead(ctx, p);
	if (reason != REASON_NONE)
		return reason;
	if (!p->quic.opening)
		return EQUIC_REASON_HANDSHAKE;
	return judge_opening(p, source, state, exempt);
}

/* What step 1 or 2 says of a packet; REASON_NONE if it goes on. */
INLINE __u32 refused_at_sight(struct xdp_md *ctx, const struct packet *p, enum parsed parsed,
			      bool *exempt)
{
	enum listed listed;

	if (parsed == PARSED_BAD_UDP)
		return EQUIC_REASON_BAD_UDP;
	if (bad_source(ctx, p))
		return EQUIC_REASON_BAD_SOURCE;
	/* Tries without entries are not asked. */
	if (!(control.acl_used & (p->family == 4 ? ACL4_USED : ACL6_USED)))
		return REASON_NONE;
	listed = look_up_acl(p);
	*exempt = listed == LISTED_ALLOW;
	return listed == LISTED_DENY ? EQUIC_REASON_DENIED : REASON_NONE;
}

/* Charges for an Initial without proof to a service with adaptive Retry (docs/policy.md s.8): true
 * if the service asks for proof, from this packet on or since before. */
static __noinline bool asks_now(struct packet *p)
{
	__u32 index = p->service & (EQUIC_MAX_SERVICES - 1);
	volatile struct equic_service *service = &services[index];
	struct equic_adaptive *state = &rates.adaptive[index];
	__u64 until = *(volatile __u64 *)&state->until_ns, next;
	bool asks = p->now < until;

	/* At twice the price it is calm again at half the rate: it does not sway. */
	if (within(&service->retry_above, &state->tat, asks ? 2 : 1, p))
		return asks;
	next = p->now + service->retry_hold_ns;
	if (asks && next == until)
		return true;
	/* Of CPUs that find the bucket empty at once, one moves the time. */
	if (__sync_val_compare_and_swap(&state->until_ns, until, next) == until && !asks) {
		state->since_ns = p->now;
		__sync_fetch_and_add(&state->began, 1);
	}
	return true;
}

/* Is the packet of an attempt that was let in, and may be under way? */
INLINE bool of_attempt(const struct packet *p, volatile struct equic_service *service)
{
	struct equic_handshake *attempt = find_attempt(p);

	return attempt && place_in(p, attempt, service->handshake_ns) < EQUIC_HANDSHAKE_CIDS;
}

/* An Initial to a service that wants proof of addresses (docs/policy.md s.8): REASON_NONE if it has
 * brought some, or belongs to an attempt that has. What has not is charged to no source. A token is
 * looked at first: where it holds, whether there is an attempt is asked once, when the opening is
 * judged. */
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
	/* A client that has a Retry's token takes no second Retry (RFC 9000 s.17.2.5.2). A token
	 * that is none of ours may be of a NEW_TOKEN frame. */
	if (proof != EQUIC_PROOF_NEW_TOKEN && proof != EQUIC_PROOF_MALFORMED)
		return EQUIC_REASON_BAD_TOKEN;
	if (service->retry == EQUIC_RETRY_ADAPTIVE && !asks_now(p))
		return REASON_NONE;
	if (short_dcid)
		return EQUIC_REASON_SHORT_DCID;
	if (!can_answer(ctx, p))
		return EQUIC_REASON_UNPROVED;
	if (!within(&service->answers_per_service,
		    &rates.retries_tat[p->service & (EQUIC_MAX_SERVICES - 1)], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_retry(p) ? EQUIC_REASON_RETRY_SENT : EQUIC_REASON_UNPROVED;
}

/* An opening of a version that the service does not take (docs/policy.md s.9). It is charged to no
 * source. */
static __noinline __u32 negotiate(struct xdp_md *ctx, struct packet *p)
{
	__u32 index = p->service & (EQUIC_MAX_SERVICES - 1);
	volatile struct equic_service *service = &services[index];

	if (!can_answer(ctx, p))
		return EQUIC_REASON_UNKNOWN_VERSION;
	if (!within(&service->answers_per_service, &rates.negotiations_tat[index], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_negotiation(ctx, p, service->versions) ? EQUIC_REASON_VERSION_NEGOTIATION_SENT
							   : EQUIC_REASON_UNKNOWN_VERSION;
}

/* Does the service have any of the checks that ask_for_more() is about? Most services have none of
 * them, so this is one branch. */
INLINE bool asks_for_more(volatile struct equic_service *service)
{
	return (service->flags & (EQUIC_SERVICE_CHECK_IDS | EQUIC_SERVICE_VERSION_NEGOTIATION)) |
	       service->retry | service->unproven_per_service.cost_ns;
}

/* What step 2 of docs/policy.md s.2 says behind the lists: connection IDs, unknown senders, Version
 * Negotiation and proof of addresses. REASON_NONE if the packet goes on. */
INLINE __u32 ask_for_more(struct xdp_md *ctx, struct packet *p,
			  volatile struct equic_service *service, const struct equic_source *source,
			  bool exempt)
{
	bool asks = service->retry && !exempt;
	bool checks = service->flags & EQUIC_SERVICE_CHECK_IDS && !exempt;
	bool negotiates = service->flags & EQUIC_SERVICE_VERSION_NEGOTIATION;
	bool shares = service->unproven_per_service.cost_ns && !exempt && !checks;
	__u32 reason = REASON_NONE;

	p->kind = classify(ctx, &p->quic, service);
	p->classified = true;
	if (checks)
		reason = p->kind == REASON_NONE && p->quic.early
				 ? check_early(p, service)
				 : check_id(ctx, p, source, service->group);
	else if (shares && opens_nothing(p))
		reason = charge_unproven(p, source);
	if (reason == REASON_NONE && p->kind == REASON_NONE && p->quic.opening) {
		if (!p->quic.known_version)
			reason = negotiates ? negotiate(ctx, p) : REASON_NONE;
		else if (asks)
			reason = ask_for_proof(ctx, p, service);
	}
	return reason;
}

/* The reason for what becomes of a packet to a service; `*found` is its source's entry, if it has
 * one. */
INLINE __u32 admit(struct xdp_md *ctx, struct packet *p, enum parsed parsed,
		   volatile struct equic_service *service, const struct equic_source *source,
		   struct equic_source_state **found)
{
	bool exempt = false;
	__u32 reason = refused_at_sight(ctx, p, parsed, &exempt);

	if (reason != REASON_NONE) {
		/* No new entry: such a flood must not push other sources out of the table. */
		*found = bpf_map_lookup_elem(&sources, source);
		return reason;
	}
	if (asks_for_more(service)) {
		reason = ask_for_more(ctx, p, service, source, exempt);
		if (reason != REASON_NONE)
			return reason;
	}
	if (service->overrides)
		p->own = exempt ? 0 : override_of(p);
	*found = source_state(source, p->now);
	reason = judge(ctx, p, service, source, *found, exempt) & 63;
	if (drops(reason) || answers_it(reason))
		return reason;
	if (exempt)
		return EQUIC_REASON_ALLOWED;
	return within(&service->packets_per_service,
		      &rates.packets_tat[p->service & (EQUIC_MAX_SERVICES - 1)], 1, p)
		       ? reason
		       : EQUIC_REASON_RATE_PACKETS_SERVICE;
}

#endif
