/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Tests the token buckets of rates.h, compiled for the host. An exchange of a bucket's word fails
 * as often as the test demands, as if another CPU had changed the word. Real hardware cannot be
 * made to do this reliably. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "abi.h"

/* Replacements for the parts of clock.h and maps.h that rates.h needs. */
#define EQUIC_CLOCK_H
#define INLINE	   static inline
#define __noinline __attribute__((noinline))
struct packet {
	__u64 now, exact;
};
static int counters;
static struct equic_counter tallies[EQUIC_TALLY_BASE + 64];

static void *bpf_map_lookup_elem(void *map, const __u32 *key)
{
	assert(map == &counters && *key < sizeof tallies / sizeof *tallies);
	return &tallies[*key];
}

static __u64 exact_now(struct packet *p)
{
	return p->exact;
}

static int losses;    /* exchanges that must still be lost */
static int exchanges; /* number of exchanges that were tried */

static __u64 exchange(__u64 *word, __u64 old, __u64 next)
{
	exchanges++;
	if (losses) {
		losses--;
		(*word)++; /* stored by another CPU */
	}
	if (*word != old)
		return *word;
	*word = next;
	return old;
}
#define __sync_val_compare_and_swap exchange

#include "rates.h"

#define NOW   1000000000ull
#define COST  1000ull
#define BURST 1000000ull

static bool ends(const char *what, int lost, bool expected, int tries, __u64 tallied, __u64 charged)
{
	struct equic_rate rate = {
		.cost_ns = COST << EQUIC_RATE_SHIFT,
		.burst_ns = BURST,
	};
	struct packet packet = {.now = NOW, .exact = NOW};
	__u64 tat = NOW, before = tallies[EQUIC_TALLY_BASE + EQUIC_TALLY_CONTENDED].packets;
	bool passed;

	losses = lost;
	exchanges = 0;
	passed = rate_allows(&rate, &tat, 1, &packet);
	before = tallies[EQUIC_TALLY_BASE + EQUIC_TALLY_CONTENDED].packets - before;
	/* Each lost exchange means that another CPU has added 1 to the word. */
	tat -= NOW + (__u64)(lost - losses);
	if (passed == expected && exchanges == tries && before == tallied && tat == charged)
		return true;
	printf("%s: passed %d, %d exchanges, %llu tallied, charged %llu\n", what, passed, exchanges,
	       before, tat);
	return false;
}

int main(void)
{
	bool good = true;

	good &= ends("nobody else", 0, true, 1, 0, COST);
	good &= ends("lost once, to the one at the tick", 1, true, 2, 0, COST);
	good &= ends("lost but for the last time", RATE_ATTEMPTS - 1, true, RATE_ATTEMPTS, 0, COST);
	good &= ends("lost each time", RATE_ATTEMPTS, false, RATE_ATTEMPTS, 1, 0);
	good &= ends("lost for ever", 1000, false, RATE_ATTEMPTS, 1, 0);
	return good ? 0 : 1;
}
