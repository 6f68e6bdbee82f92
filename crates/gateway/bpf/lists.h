/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Deny and allow lists (docs/policy.md s.2, step 2). */
#ifndef EQUIC_LISTS_H
#define EQUIC_LISTS_H

#include "maps.h"

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

#endif
