/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looks up sources in the deny and allow lists (docs/policy.md s.2, step 4). */
#ifndef EQUIC_LISTS_H
#define EQUIC_LISTS_H

#include "maps.h"

#define ACL_RETRIES 4

/* Bits of control.acl_used, which says for which address families the lists have had entries. */
#define ACL4_USED 1u
#define ACL6_USED 2u

enum listed { LISTED_NOT, LISTED_DENY, LISTED_ALLOW };

INLINE enum listed list_entry_verdict(const struct equic_acl_entry *entry)
{
	return entry->action == EQUIC_ACL_DENY ? LISTED_DENY : LISTED_ALLOW;
}

/* Returns the list entry for a key. The key's first word is its prefix length. An expired entry
 * must not hide a shorter prefix that is still valid, so the lookup is repeated with a shorter
 * prefix. */
INLINE enum listed longest_valid(void *trie, __u32 *key, __u64 now)
{
	for (int i = 0; i <= ACL_RETRIES; i++) {
		struct equic_acl_entry *entry = bpf_map_lookup_elem(trie, key);

		if (!entry)
			return LISTED_NOT;
		if (!entry->expires_ns || entry->expires_ns > now)
			return list_entry_verdict(entry);
		if (!entry->prefixlen)
			return LISTED_NOT;
		*key = entry->prefixlen - 1;
	}
	return LISTED_NOT;
}

static __noinline enum listed look_up_acl6(const struct packet *p)
{
	struct equic_acl6_key key = {.prefixlen = 128};

	__builtin_memcpy(key.addr, p->src, sizeof(key.addr));
	return longest_valid(&acl6, &key.prefixlen, p->now);
}

/* Searches for a shorter prefix if the longest one of the source has expired. */
static __noinline enum listed look_further_acl4(const struct packet *p)
{
	struct equic_acl4_key key = {.prefixlen = 32};

	__builtin_memcpy(key.addr, (const __u8 *)p->src + 12, sizeof(key.addr));
	return longest_valid(&acl4, &key.prefixlen, p->now);
}

/* Looks up the packet's source in the lists. For a flood over IPv4, this makes no function call. */
INLINE enum listed look_up_acl(const struct packet *p)
{
	struct equic_acl4_key key = {.prefixlen = 32};
	struct equic_acl_entry *entry;

	if (p->family != 4)
		return look_up_acl6(p);
	__builtin_memcpy(key.addr, (const __u8 *)p->src + 12, sizeof(key.addr));
	entry = bpf_map_lookup_elem(&acl4, &key);
	if (!entry)
		return LISTED_NOT;
	if (!entry->expires_ns || entry->expires_ns > p->now)
		return list_entry_verdict(entry);
	return look_further_acl4(p);
}

#endif
