/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many connections does a source hold? Reads the ledgers (docs/policy.md s.6). */
#ifndef EQUIC_LEDGER_H
#define EQUIC_LEDGER_H

#include "rates.h"

#define GROUP_FACTOR 0x9e3779b97f4a7c15ull

INLINE __u64 mix(__u64 x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

/* A source, and where it would be. */
struct wanted {
	__u64 addr[2];
	__u64 now;
	__u32 group;
	__u32 tag;
	__u32 first;
};

/* Connections in one bucket that belong to the source. */
INLINE __u32 bucket_count(void *ledger, __u32 bucket, const struct wanted *want)
{
	volatile struct equic_ledger_bucket *b;
	__u32 key = bucket + 1;

	b = bpf_map_lookup_elem(ledger, &key);
	if (!b)
		return 0;
	for (__u32 i = 0; i < EQUIC_SLOTS; i++) {
		volatile struct equic_ledger_slot *slot = &b->slot[i];
		volatile __u64 *have = (volatile __u64 *)slot->addr;
		__u64 meta = b->meta[i];

		if (meta >> 32 != want->tag)
			continue;
		if (have[0] != want->addr[0] || have[1] != want->addr[1] ||
		    slot->group != want->group)
			continue;
		meta = b->meta[i];
		if (meta >> 32 == want->tag)
			return (__u32)meta;
	}
	return 0;
}

/* Connections that were ever opened by the source and by those that share its cell
 * (docs/policy.md s.7). */
INLINE __u32 bucket_opened(void *ledger, const struct wanted *want)
{
	volatile struct equic_ledger_bucket *b;
	__u32 key = want->first + 1;

	b = bpf_map_lookup_elem(ledger, &key);
	return b ? b->slot[want->tag >> 1 & (EQUIC_SLOTS - 1)].opened : 0;
}

/* What one process counts, if it is alive; in `opened`, if it is not NULL, what was ever opened. */
INLINE __u32 ledger_count(__u32 index, const struct wanted *want, __u32 *opened)
{
	volatile struct equic_ledger_header *header;
	__u32 key = index, zero = 0, count, second;
	void *ledger;
	__u64 beat;

	/* A server counts for the services it was let in for, and no other. */
	if (control.members[index & (EQUIC_MAX_OWNERS - 1)].barred >> (want->group & 63) & 1)
		return 0;
	ledger = bpf_map_lookup_elem(&ledgers, &key);
	if (!ledger)
		return 0;
	header = bpf_map_lookup_elem(ledger, &zero);
	if (!header)
		return 0;
	beat = header->heartbeat_ns;
	/* The server writes it: one far in the future is no sign of life either. */
	if ((want->now > beat ? want->now - beat : beat - want->now) >= control.lease_ns) {
		tally(EQUIC_TALLY_STALE_LEDGER);
		return 0;
	}
	/* Before the count: who completes in between counts twice for a moment, never not at all.
	 */
	if (opened)
		*opened += bucket_opened(ledger, want);
	count = bucket_count(ledger, want->first, want);
	if (count)
		return count;
	second = (want->first ^ (__u32)mix(want->tag)) & load.ledger_mask;
	if (second == want->first)
		second = want->first ^ 1;
	return bucket_count(ledger, second, want);
}

struct ledger_sum {
	struct wanted want;
	__u32 count;
	__u32 opened;
};

/* Servers write the counts: a sum of them stays at its greatest value, or two could make it 0. */
INLINE __u32 add_counts(__u32 sum, __u32 more)
{
	return sum + more < sum ? ~0u : sum + more;
}

/* Returns 1 to stop. */
static long add_ledger(__u32 index, void *arg)
{
	struct ledger_sum *sum = arg;
	__u32 owners = control.owner_mask >> (index & 31);

	if (!owners)
		return 1;
	if (owners & 1)
		sum->count = add_counts(sum->count, ledger_count(index, &sum->want, NULL));
	return 0;
}

/* Returns 1 to stop. */
static long add_ledger_and_opened(__u32 index, void *arg)
{
	struct ledger_sum *sum = arg;
	__u32 owners = control.owner_mask >> (index & 31);

	if (!owners)
		return 1;
	if (owners & 1)
		sum->count = add_counts(sum->count, ledger_count(index, &sum->want, &sum->opened));
	return 0;
}

static __noinline __u32 all_ledgers(const struct wanted *want)
{
	struct ledger_sum sum = {.want = *want};

	bpf_loop(EQUIC_MAX_OWNERS, add_ledger, &sum, 0);
	return sum.count;
}

/* Keyed hash of an address in a quota group, or as a service sees it. */
INLINE __u64 hash_of(const __u64 addr[2], __u32 scope)
{
	__u64 h = load.seed ^ scope * GROUP_FACTOR;

	/* One round for IPv4, two for IPv6: they wait for each other. */
	if (addr[0])
		h = mix(h ^ addr[0]);
	return mix(h ^ addr[1]);
}

INLINE void look_for(struct wanted *want, const struct equic_source *source, __u32 group, __u64 now)
{
	__u64 h;

	want->now = now;
	want->group = group;
	__builtin_memcpy(want->addr, source->addr, sizeof(want->addr));
	h = hash_of(want->addr, group);
	want->tag = (__u32)(h >> 32) | 1;
	want->first = (__u32)h & load.ledger_mask;
}

/* The source's connections in the quota group: the sum over all ledgers whose owner is alive. */
INLINE __u32 connections(const struct equic_source *source, __u32 group, __u64 now)
{
	struct wanted want = {};

	look_for(&want, source, group, now);
	/* One server is the rule: it is not worth a loop. */
	return control.owner_mask == 1 ? ledger_count(0, &want, NULL) : all_ledgers(&want);
}

/* The same, where its cost does not matter. Not static: the verifier looks at it once, and not with
 * every state that leads here. */
__noinline __u32 connections_of(const struct equic_source *source, __u32 group, __u64 now)
{
	struct ledger_sum sum = {};

	if (!source)
		return 0;
	look_for(&sum.want, source, group, now);
	bpf_loop(EQUIC_MAX_OWNERS, add_ledger, &sum, 0);
	return sum.count;
}

#endif
