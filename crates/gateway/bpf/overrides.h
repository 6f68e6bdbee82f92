/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Limits that apply to one source: those of the override for its prefix, or the service's
 * (docs/policy.md s.13). */
#ifndef EQUIC_OVERRIDES_H
#define EQUIC_OVERRIDES_H

#include "rates.h"

#define OVERRIDE_MASK (EQUIC_OVERRIDES - 1)
#define SERVICE_BITS  32 /* in the tries' keys, before the address */

/* Returns the index of the override for the packet's source, or 0 if the source has none. It is a
 * global function so that the verifier checks it once, not for every caller's state. */
__noinline __u32 override_of(const struct packet *p)
{
	struct equic_override4_key key4;
	struct equic_override6_key key6;
	__u32 *index;

	if (!p)
		return 0;
	if (p->family == 4) {
		key4.prefixlen = SERVICE_BITS + 32;
		key4.service = p->service;
		__builtin_memcpy(key4.addr, (const __u8 *)p->src + 12, sizeof(key4.addr));
		index = bpf_map_lookup_elem(&overrides4, &key4);
	} else {
		key6.prefixlen = SERVICE_BITS + 128;
		key6.service = p->service;
		__builtin_memcpy(key6.addr, p->src, sizeof(key6.addr));
		index = bpf_map_lookup_elem(&overrides6, &key6);
	}
	return index ? *index & OVERRIDE_MASK : 0;
}

/* Returns the override of the packet's source if it sets this limit, else NULL. It reads the
 * service each time, because loading a value that was just stored into the packet would stall. */
INLINE volatile struct equic_override *own_limit(const struct packet *p,
						 volatile struct equic_service *service, __u8 sets)
{
	__u32 index;

	if (!service->overrides)
		return NULL;
	index = p->own;
	if (!index)
		return NULL;
	OPAQUE(index);
	index &= OVERRIDE_MASK;
	return overrides[index].sets & sets ? &overrides[index] : NULL;
}

/* Returns the maximum number of connections that the packet's source may hold. 0 means no limit. */
INLINE __u32 connections_limit(const struct packet *p, volatile struct equic_service *service)
{
	volatile struct equic_override *own = own_limit(p, service, EQUIC_OVERRIDE_MAX_CONNECTIONS);

	return own ? own->max_connections : service->max_connections;
}

/* Returns the rate that applies to the packet's source. `offset` is the position of the rate in
 * struct equic_override. */
INLINE volatile struct equic_rate *rate_for(const struct packet *p,
					    volatile struct equic_service *service,
					    volatile struct equic_rate *of_service, __u8 sets,
					    __u32 offset)
{
	volatile struct equic_override *own = own_limit(p, service, sets);

	return own ? (volatile struct equic_rate *)((volatile __u8 *)own + offset) : of_service;
}

#define RATE_FOR(p, service, sets, field)                                                          \
	rate_for(p, service, &(service)->field, sets, offsetof(struct equic_override, field))

#endif
