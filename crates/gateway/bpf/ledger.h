/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How many connections does a source hold? Reads the ledgers (docs/policy.md s.6). */
#ifndef EQUIC_LEDGER_H
#define EQUIC_LEDGER_H

#include "stats.h"

INLINE __u64 mix(__u64 x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 33;
	return x;
}

struct ledger_sum {
	__u64 addr[2];
	__u64 now;
	__u32 group;
	__u32 first;
	__u32 second;
	__u32 tag;
	__u32 count;
};

/* Connections in one bucket that belong to the source. */
static __noinline __u32 bucket_count(void *ledger, __u32 bucket, const struct ledger_sum *sum)
{
	const __u64 *want = sum->addr;
	__u32 tag = sum->tag;
	volatile struct equic_ledger_bucket *b;
	__u32 key = bucket + 1;

	b = bpf_map_lookup_elem(ledger, &key);
	if (!b)
		return 0;
	for (__u32 i = 0; i < EQUIC_SLOTS; i++) {
		volatile struct equic_ledger_slot *slot = &b->slot[i];
		volatile __u64 *have = (volatile __u64 *)slot->addr;
		__u64 meta = slot->meta;

		if (meta >> 32 != tag)
			continue;
		if (have[0] != want[0] || have[1] != want[1] || slot->group != sum->group)
			continue;
		meta = slot->meta;
		if (meta >> 32 == tag)
			return (__u32)meta;
	}
	return 0;
}

/* Adds one process's count. Returns 1 to stop. */
static long add_ledger(__u32 index, void *arg)
{
	volatile struct equic_ledger_header *header;
	struct ledger_sum *sum = arg;
	__u32 owners = control.owner_mask >> (index & 31);
	__u32 key = index, zero = 0, count;
	void *ledger;
	__u64 beat;

	if (!owners)
		return 1;
	if (!(owners & 1))
		return 0;
	/* A server counts for the services it was let in for, and no other. */
	if (control.members[index & (EQUIC_MAX_OWNERS - 1)].barred >> (sum->group & 63) & 1)
		return 0;
	ledger = bpf_map_lookup_elem(&ledgers, &key);
	if (!ledger)
		return 0;
	header = bpf_map_lookup_elem(ledger, &zero);
	if (!header)
		return 0;
	beat = header->heartbeat_ns;
	if (sum->now > beat && sum->now - beat >= control.lease_ns) {
		tally(EQUIC_TALLY_STALE_LEDGER);
		return 0;
	}
	count = bucket_count(ledger, sum->first, sum);
	if (!count)
		count = bucket_count(ledger, sum->second, sum);
	sum->count += count;
	return 0;
}

/* The source's connections in the quota group: the sum over all ledgers whose owner is alive. */
static __noinline __u32 connections(const struct equic_source *source, __u32 group, __u64 now)
{
	struct ledger_sum sum = {.now = now, .group = group};
	__u64 h;

	__builtin_memcpy(sum.addr, source->addr, sizeof(sum.addr));
	h = mix(mix(mix(load.seed ^ sum.addr[0]) ^ sum.addr[1]) ^ group);
	sum.tag = (__u32)(h >> 32) | 1;
	sum.first = (__u32)h & load.ledger_mask;
	sum.second = (sum.first ^ (__u32)mix(sum.tag)) & load.ledger_mask;
	if (sum.second == sum.first)
		sum.second = sum.first ^ 1;
	/* One server is the rule: it is not worth a loop. */
	if (control.owner_mask == 1)
		add_ledger(0, &sum);
	else
		bpf_loop(EQUIC_MAX_OWNERS, add_ledger, &sum, 0);
	return sum.count;
}

#endif
