/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the ledgers to find the number of connections of a source (docs/policy.md s.6). */
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

/* A source, and its position in a ledger. */
struct wanted {
	__u64 addr[2];
	__u64 now;
	__u32 group;
	__u32 tag;
	__u32 first;
};

/* Returns the number of connections that one bucket has for the source. */
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

/* Returns the number of connections ever opened by the source, and by the other sources that share
 * its counter (docs/policy.md s.7). */
INLINE __u32 bucket_opened(void *ledger, const struct wanted *want)
{
	volatile struct equic_ledger_bucket *b;
	__u32 key = want->first + 1;

	b = bpf_map_lookup_elem(ledger, &key);
	return b ? b->slot[want->tag >> 1 & (EQUIC_SLOTS - 1)].opened : 0;
}

/* Returns the number of the source's connections in one ledger, or 0 if the ledger's process is not
 * alive. Adds the number of connections ever opened to `*opened`, unless that is NULL. */
INLINE __u32 ledger_count(__u32 index, const struct wanted *want, __u32 *opened)
{
	volatile struct equic_ledger_header *header;
	__u32 key = index, zero = 0, count, second;
	void *ledger;
	__u64 beat;

	/* A server's counts are valid only for the services for which the gateway admitted the
	 * server. */
	if (control.members[index & (EQUIC_MAX_OWNERS - 1)].barred >> (want->group & 63) & 1)
		return 0;
	ledger = bpf_map_lookup_elem(&ledgers, &key);
	if (!ledger)
		return 0;
	header = bpf_map_lookup_elem(ledger, &zero);
	if (!header)
		return 0;
	beat = header->heartbeat_ns;
	/* The server writes the heartbeat, and could write anything. A heartbeat far in the future
	 * is as invalid as an old one. */
	if ((want->now > beat ? want->now - beat : beat - want->now) >= control.lease_ns) {
		tally(EQUIC_TALLY_STALE_LEDGER);
		return 0;
	}
	/* The number of opened connections is read before the count. So a handshake that completes
	 * in between counts twice for a moment, but is never missed. */
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

/* Adds two counts and saturates. Servers write the counts, so without saturation two servers could
 * make the sum wrap to 0. */
INLINE __u32 add_counts(__u32 sum, __u32 more)
{
	return sum + more < sum ? ~0u : sum + more;
}

/* Adds the count of the ledger in slot `index`. Returns 1 to end the loop. */
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

/* Adds the numbers of open connections and of connections ever opened in the ledger of slot
 * `index`. Returns 1 to end the loop. */
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

/* Returns the keyed hash of an address. `scope` is a quota group or the index of a service. */
INLINE __u64 hash_of(const __u64 addr[2], __u32 scope)
{
	__u64 h = load.seed ^ scope * GROUP_FACTOR;

	/* An IPv4 address needs one mixing round, and an IPv6 address needs two. Each round waits
	 * for the previous one, so skipping one saves its whole latency. */
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

/* Returns the number of the source's connections in the quota group, summed over the ledgers of all
 * living servers. */
INLINE __u32 connections(const struct equic_source *source, __u32 group, __u64 now)
{
	struct wanted want = {};

	look_for(&want, source, group, now);
	/* A single server is the common case. It needs no loop. */
	return control.owner_mask == 1 ? ledger_count(0, &want, NULL) : all_ledgers(&want);
}

/* Does the same as connections(), for callers on a slow path. It is a global function so that the
 * verifier checks it once, not for every caller's state. */
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
