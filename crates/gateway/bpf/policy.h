/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The decisions, in the order of docs/policy.md s.2.
 *
 * Where the kernel does not trust the processor to predict returns, a call costs about as much as a
 * look-up in a table. So what every packet of a flood goes through is inlined; what only a new
 * connection needs is not, for the sake of the stack.
 */
#ifndef EQUIC_POLICY_H
#define EQUIC_POLICY_H

#include "ledger.h"
#include "quic.h"

#define ACL_RETRIES 4

enum listed { LISTED_NOT, LISTED_DENY, LISTED_ALLOW };

/* What a trie says of a key, whose first word is its prefix length. An expired entry must not hide
 * a shorter one that still holds, so the look-up is repeated below the expired one's length. */
INLINE enum listed longest_valid(void *trie, __u32 *key, __u64 now)
{
	for (int i = 0; i <= ACL_RETRIES; i++) {
		struct equic_acl_entry *entry = bpf_map_lookup_elem(trie, key);

		if (!entry)
			return LISTED_NOT;
		if (!entry->expires_ns || entry->expires_ns > now)
			return entry->action == EQUIC_ACL_DENY ? LISTED_DENY : LISTED_ALLOW;
		if (!entry->prefixlen)
			return LISTED_NOT;
		*key = entry->prefixlen - 1;
	}
	return LISTED_NOT;
}

static __noinline enum listed look_up_acl(const struct packet *p)
{
	struct equic_acl4_key key4 = {.prefixlen = 32};
	struct equic_acl6_key key6 = {.prefixlen = 128};

	if (p->family == 4) {
		__builtin_memcpy(key4.addr, (const __u8 *)p->src + 12, sizeof(key4.addr));
		return longest_valid(&acl4, &key4.prefixlen, p->now);
	}
	__builtin_memcpy(key6.addr, p->src, sizeof(key6.addr));
	return longest_valid(&acl6, &key6.prefixlen, p->now);
}

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
	__builtin_memcpy(key->addr, p->src, sizeof(key->addr));
	key->scid = p->quic.scid;
	key->port = p->sport;
	key->service = p->service;
	key->family = p->family;
}

/* Does the packet belong to this attempt, that was let in? Learns the connection ID that the server
 * chose, once (twice after a Retry). */
INLINE bool under_way(const struct packet *p, struct equic_handshake *attempt, __u64 allowed_ns)
{
	__u32 room = p->quic.token ? EQUIC_HANDSHAKE_CIDS : EQUIC_HANDSHAKE_CIDS - 1;
	__u32 known;

	if (SINCE(p->now, attempt->started_ns) > allowed_ns)
		return false;
	/* Or whoever was let in once could send that packet as often as it likes. */
	if (attempt->packets >= EQUIC_HANDSHAKE_PACKETS)
		return false;
	known = attempt->count;
	for (__u32 i = 0; i < EQUIC_HANDSHAKE_CIDS; i++) {
		if (i < known && same_cid(&attempt->dcid[i], &p->quic.dcid)) {
			attempt->packets++;
			return true;
		}
	}
	if (known >= room || known >= EQUIC_HANDSHAKE_CIDS)
		return false;
	attempt->dcid[known] = p->quic.dcid;
	attempt->count = known + 1;
	attempt->packets++;
	return true;
}

static __noinline struct equic_handshake *find_attempt(const struct packet *p)
{
	struct equic_handshake_key key;

	handshake_key(p, &key);
	return bpf_map_lookup_elem(&handshakes, &key);
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

INLINE __u64 exact_now(struct packet *p)
{
	if (!p->exact)
		p->exact = load.test_clock ? p->now : bpf_ktime_get_ns();
	return p->exact;
}

INLINE bool within(volatile struct equic_rate *rate, __u64 *tat, __u64 units, struct packet *p)
{
	__u64 cost = rate->cost_ns, burst = rate->burst_ns;

	return !cost || charge(tat, cost, burst, units, exact_now(p));
}

#define ATTEMPT_BITS  24
#define ATTEMPT_MAX   ((1ull << ATTEMPT_BITS) - 1)
#define PERIOD_SHIFT  (2 * ATTEMPT_BITS)
#define PERIOD_MASK   0xffffull
#define ATTEMPT_TRIES 8

/* The word of attempts as it is at a time, `done` of which have become connections. */
INLINE __u64 attempts_now(__u64 word, __u64 period, __u64 done)
{
	__u64 earlier = word >> ATTEMPT_BITS & ATTEMPT_MAX, recent = word & ATTEMPT_MAX;
	__u64 then = word >> PERIOD_SHIFT;

	if (then != period) {
		earlier = ((then + 1) & PERIOD_MASK) == period ? recent : 0;
		recent = 0;
	}
	if (done < earlier) {
		earlier -= done;
	} else {
		done -= earlier;
		earlier = 0;
		recent = done < recent ? recent - done : 0;
	}
	return period << PERIOD_SHIFT | earlier << ATTEMPT_BITS | recent;
}

/* One try to change a source's word of attempts. */
struct place {
	__u64 *word;
	__u64 period;
	__u64 done;
	__u64 held;
	__u64 limit;
	__u32 reason; /* why there is no place; or REASON_NONE */
	bool back;    /* it is given back */
	bool settled;
};

/* Returns 1 to stop. */
static long try_place(__u32 index, void *arg)
{
	struct place *ask = arg;
	__u64 *word = ask->word, old, new, under_way;

	old = *(volatile __u64 *)word;
	new = attempts_now(old, ask->period, ask->done);
	under_way = (new >> ATTEMPT_BITS &ATTEMPT_MAX) + (new &ATTEMPT_MAX);
	ask->reason = EQUIC_REASON_QUOTA_UNDERWAY;
	if (ask->back) {
		new -= !!(new &ATTEMPT_MAX);
	} else if (ask->held >= ask->limit) {
		ask->reason = EQUIC_REASON_QUOTA;
	} else if (ask->held + under_way < ask->limit && (new &ATTEMPT_MAX) != ATTEMPT_MAX) {
		ask->reason = REASON_NONE;
		new ++;
	}
	if (load.explain)
		explain.under_way = under_way;
	ask->settled = __sync_val_compare_and_swap(word, old, new) == old;
	return ask->settled;
}

/* Attempts of the source that have become connections since the last look. Each is taken off by
 * one CPU only. */
INLINE __u32 newly_done(struct equic_source_state *state, __u32 opened)
{
	__u32 done = opened - __sync_lock_test_and_set(&state->opened_seen, opened);

	return done >> 31 ? 0 : done; /* a server has left, and what it counted with it */
}

/* Step 6.3 with the policy `underway`: what is under way counts as if it were open. Takes a place,
 * or says why there is none; CPUs that ask at once get each its own. Or gives one back: what a rate
 * refuses holds none. Not static: the verifier looks at it once, and not with every state that
 * leads here. */
__noinline __u32 take_place(const struct equic_source *source, struct equic_source_state *state,
			    __u32 index, __u64 now, __u32 back)
{
	volatile struct equic_service *service = &services[index & (EQUIC_MAX_SERVICES - 1)];
	__u64 period_ns = service->handshake_ns;
	struct place ask = {.limit = service->max_connections, .back = back};
	struct ledger_sum sum = {};

	if (!source || !state)
		return REASON_NONE;
	if (!back) {
		look_for(&sum.want, source, service->group, now);
		bpf_loop(EQUIC_MAX_OWNERS, add_ledger_and_opened, &sum, 0);
		ask.held = sum.count;
		ask.done = newly_done(state, sum.opened);
	}
	ask.word = &state->attempts;
	ask.period = now / (period_ns ? period_ns : 1) & PERIOD_MASK;
	bpf_loop(ATTEMPT_TRIES, try_place, &ask, 0);
	if (!ask.settled) {
		tally(EQUIC_TALLY_CONTENDED);
		return EQUIC_REASON_QUOTA_UNDERWAY;
	}
	return ask.reason;
}

/* A packet that would open a connection: step 6 of docs/policy.md s.2. */
INLINE __u32 judge_opening(struct packet *p, volatile struct equic_service *service,
			   const struct equic_source *source, struct equic_source_state *state,
			   bool exempt)
{
	__u32 limit = service->max_connections;
	__u64 allowed_ns = service->handshake_ns;
	struct equic_handshake *attempt = NULL;
	/* Without a state there is nothing to keep places in. */
	bool places = state && limit && service->policy == EQUIC_POLICY_UNDERWAY;
	__u32 refused = REASON_NONE;

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
			refused = take_place(source, state, p->service, p->now, false);
			if (refused != REASON_NONE)
				return refused;
		}
		if (state && !within(&service->new_per_source, &state->new_tat, 1, p))
			refused = EQUIC_REASON_RATE_NEW_SOURCE;
		else if (!within(&service->new_per_service,
				 &rates.new_tat[p->service & (EQUIC_MAX_SERVICES - 1)], 1, p))
			refused = EQUIC_REASON_RATE_NEW_SERVICE;
		if (refused != REASON_NONE) {
			if (places)
				take_place(source, state, p->service, p->now, true);
			return refused;
		}
	}
	let_in(p, attempt);
	if (state) {
		state->let_in_ns = p->now;
		state->let_in = 1;
	}
	return p->quic.known_version ? EQUIC_REASON_NEW : EQUIC_REASON_NEW_VERSION;
}

/* Everything but the lists: steps 3 to 6. */
INLINE __u32 judge(struct packet *p, volatile struct equic_service *service,
		   const struct equic_source *source, struct equic_source_state *state, bool exempt)
{
	__u32 limit = service->max_connections;
	__u32 reason;

	if (!exempt) {
		if (limit && service->policy == EQUIC_POLICY_STRICT &&
		    connections(source, service->group, p->now) > limit)
			return EQUIC_REASON_QUOTA_STRICT;
		if (state) {
			if (!within(&service->packets_per_source, &state->packets_tat, 1, p))
				return EQUIC_REASON_RATE_PACKETS;
			if (!within(&service->bytes_per_source, &state->bytes_tat, p->quic.len, p))
				return EQUIC_REASON_RATE_BYTES;
		}
	}
	reason = parse_quic(p->ctx, &p->quic, service->flags);
	if (reason != REASON_NONE)
		return reason;
	if (!p->quic.opening)
		return EQUIC_REASON_HANDSHAKE;
	return judge_opening(p, service, source, state, exempt);
}

#endif
