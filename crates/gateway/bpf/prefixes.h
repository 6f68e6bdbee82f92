/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits the rates of new connections for each prefix of their source (docs/policy.md s.12). */
#ifndef EQUIC_PREFIXES_H
#define EQUIC_PREFIXES_H

#include "classify.h"
#include "rates.h"

/* Number of prefix lengths in each family. */
#define PREFIX_LEVELS_V6  4
#define PREFIX_LEVELS_V4  2
#define PREFIX_LEVEL_MASK 7u

_Static_assert(EQUIC_PREFIX_V6_64 == PREFIX_LEVELS_V4, "IPv4 comes first");
_Static_assert(EQUIC_PREFIX_LEVELS == PREFIX_LEVELS_V4 + PREFIX_LEVELS_V6, "two families");

/* Returns the number of bits that prefix level `level` of an address family cuts off an address
 * word: 0, 8, 16, or 32. */
INLINE __u32 bits_cut(__u32 level)
{
	return level == 3 ? 32 : 8 * level;
}

/* Returns the word of a prefix's bucket. If the prefix has no bucket, creates a full one. Returns
 * NULL if the map has no room. */
INLINE __u64 *prefix_bucket(const struct equic_prefix *key)
{
	__u64 *tat = bpf_map_lookup_elem(&prefixes, key), full = 0;

	if (tat)
		return tat;
	if (!bpf_map_update_elem(&prefixes, key, &full, BPF_NOEXIST))
		tally(EQUIC_TALLY_PREFIXES_CREATED);
	return bpf_map_lookup_elem(&prefixes, key);
}

/* Charges a new connection attempt to every prefix of its source for which the service has a rate.
 * Returns 0 as soon as one bucket refuses. It is a global function so that the verifier checks it
 * once, not for every caller's state. */
__noinline __u32 within_prefixes(struct packet *p)
{
	volatile struct equic_service *service;
	struct equic_prefix key __attribute__((aligned(8))) = {};
	__u32 first, count;
	enum span span;

	if (!p)
		return 0;
	service = &services[p->service & (EQUIC_MAX_SERVICES - 1)];
	span = p->family == 4 ? SPAN_IPV4 : span_of(p);
	first = span == SPAN_IPV4 ? EQUIC_PREFIX_V4_32 : EQUIC_PREFIX_V6_64;
	count = span == SPAN_IPV4 ? PREFIX_LEVELS_V4 : PREFIX_LEVELS_V6;
	/* A client that is identified by its whole address uses only the bucket of a /64. */
	if (span == SPAN_WHOLE)
		count = 1;
	key.service = p->service;
	for (__u32 i = 0; i < PREFIX_LEVELS_V6; i++) {
		__u32 level = (first + i) & PREFIX_LEVEL_MASK;
		__u64 words[2], *tat;

		if (i >= count)
			break;
		if (!(service->prefix_levels >> level & 1))
			continue;
		/* The first bytes of an address are in the low bits of its words. */
		words[0] = p->family == 4 ? 0 : p->src[0];
		words[1] = p->src[1] & ~0ull >> bits_cut(i);
		key.length = 128 - bits_cut(i);
		if (span == SPAN_PREFIX) {
			words[0] &= ~0ull >> bits_cut(i);
			words[1] = 0;
			key.length = 64 - bits_cut(i);
		}
		__builtin_memcpy(key.addr, words, sizeof(key.addr));
		tat = prefix_bucket(&key);
		if (!tat) {
			tally(EQUIC_TALLY_CONTENDED);
			return 0;
		}
		if (!rate_allows(&service->new_per_prefix[level], tat, 1, p))
			return 0;
	}
	return 1;
}

#endif
