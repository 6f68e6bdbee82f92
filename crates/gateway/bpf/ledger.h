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

/* Connections in one bucket that belong to the source. */
static __noinline __u32 bucket_count(void *ledger, __u32 bucket, const struct equic_source *source,
				     __u32 tag)
{
	const __u64 *want = (const __u64 *)source->addr;
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
		if (have[0] != want[0] || have[1] != want[1] || slot->group != source->group)
			continue;
		meta = slot->meta;
		if (meta >> 32 == tag)
			return (__u32)meta;
	}
	return 0;
}

/* The sum over all ledgers whose owner is alive. */
static __noinline __u32 connections(const struct equic_source *source, __u64 now)
{
	const __u64 *addr = (const __u64 *)source->addr;
	__u64 h = mix(mix(mix(load.seed ^ addr[0]) ^ addr[1]) ^ source->group);
	__u32 tag = (__u32)(h >> 32) | 1;
	__u32 first = (__u32)h & load.ledger_mask;
	__u32 second = (first ^ (__u32)mix(tag)) & load.ledger_mask;
	__u32 owners = control.owner_mask;
	__u64 lease = control.lease_ns;
	__u32 sum = 0;

	if (second == first)
		second = first ^ 1;
	for (__u32 i = 0; i < EQUIC_MAX_OWNERS; i++) {
		volatile struct equic_ledger_header *header;
		__u32 key = i, zero = 0;
		void *ledger;
		__u64 beat;

		if (!(owners >> i))
			break;
		if (!(owners >> i & 1))
			continue;
		ledger = bpf_map_lookup_elem(&ledgers, &key);
		if (!ledger)
			continue;
		header = bpf_map_lookup_elem(ledger, &zero);
		if (!header)
			continue;
		beat = header->heartbeat_ns;
		if (now > beat && now - beat > lease) {
			tally(EQUIC_TALLY_STALE_LEDGER);
			continue;
		}
		sum += bucket_count(ledger, first, source, tag);
		sum += bucket_count(ledger, second, source, tag);
	}
	return sum;
}

#endif
