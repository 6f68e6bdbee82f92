/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reserves connections of a source's quota for handshakes in progress (docs/policy.md s.7). */
#ifndef EQUIC_PLACES_H
#define EQUIC_PLACES_H

#include "classify.h"
#include "ledger.h"

#define ATTEMPT_BITS  24
#define ATTEMPT_MAX   ((1ull << ATTEMPT_BITS) - 1)
#define PERIOD_SHIFT  (2 * ATTEMPT_BITS)
#define PERIOD_MASK   0xffffull
#define ATTEMPT_TRIES 8
#define GIVE_BACK     0 /* passed instead of a limit: returns a reservation */

/* Moves a source's word of attempts to the current period, and subtracts the `done` attempts that
 * have become connections. Returns the new word. */
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

/* The input and the result of changing the word that counts a source's attempts in progress. */
struct place {
	__u64 *word;
	__u64 period;
	__u64 done;
	__u64 held;
	__u64 limit;
	__u32 reason; /* REASON_NONE, or the reason that nothing was reserved */
	bool back;    /* a reservation is returned */
	bool settled; /* the word was changed */
};

/* Tries once to change a source's word of attempts. Returns 1 to end the loop. */
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

/* Returns the number of the source's attempts that have become connections since the last call.
 * Each attempt is subtracted by one CPU only. */
INLINE __u32 newly_done(struct equic_source_state *state, __u32 opened)
{
	__u32 done = opened - __sync_lock_test_and_set(&state->opened_seen, opened);

	return done >> 31 ? 0 : done; /* negative: a server has left, so its counts are missing */
}

/* Reserves one of `limit` connections (step 18 of docs/policy.md s.2, with the policy `underway`,
 * which counts handshakes in progress like connections). Returns REASON_NONE, or the reason that no
 * connection is available. CPUs that reserve at the same time get different reservations.
 *
 * With GIVE_BACK as the limit, it returns a reservation instead, because a connection attempt that
 * a rate has refused must not hold one. It is a global function so that the verifier checks it
 * once, not for every caller's state. */
__noinline __u32 take_place(const struct equic_source *source, struct equic_source_state *state,
			    __u32 index, __u64 now, __u32 limit)
{
	volatile struct equic_service *service = &services[index & (EQUIC_MAX_SERVICES - 1)];
	__u64 period_ns = service->handshake_ns;
	struct place ask = {.limit = limit, .back = limit == GIVE_BACK};
	struct ledger_sum sum = {};

	if (!source || !state)
		return REASON_NONE;
	if (!ask.back) {
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

#endif
