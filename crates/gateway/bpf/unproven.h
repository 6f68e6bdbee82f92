/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Charges packets from unknown sources (without connection or attempt) that do not open a
 * connection (docs/policy.md s.11). */
#ifndef EQUIC_UNPROVEN_H
#define EQUIC_UNPROVEN_H

#include "classify.h"
#include "ledger.h"

/* Returns true if a classified packet is well-formed and does not open a connection. */
INLINE bool opens_nothing(const struct packet *p)
{
	return p->kind == EQUIC_REASON_ESTABLISHED || (p->kind == REASON_NONE && !p->quic.opening);
}

/* Returns the buckets that a source without an entry shares with other sources. */
INLINE struct equic_stranger *stranger_of(const struct equic_source *source, __u32 index)
{
	struct equic_strangers *all;
	__u64 addr[2];

	index &= EQUIC_MAX_SERVICES - 1;
	all = bpf_map_lookup_elem(&strangers, &index);
	if (!all)
		return NULL;
	__builtin_memcpy(addr, source->addr, sizeof(addr));
	return &all->of[hash_of(addr, index) & (EQUIC_STRANGERS - 1)];
}

/* Charges a packet of an unknown source to the bucket that all such packets share. Returns
 * EQUIC_REASON_RATE_UNPROVEN, or REASON_NONE if the packet must be judged further. Creates no
 * entry for the source. */
static __noinline __u32 charge_unproven(struct packet *p, const struct equic_source *source)
{
	__u32 index = p->service & (EQUIC_MAX_SERVICES - 1);
	volatile struct equic_service *service = &services[index];
	struct equic_source_state *state = bpf_map_lookup_elem(&sources, source);

	if (state && state->let_in && SINCE(p->now, state->let_in_ns) <= service->handshake_ns)
		return REASON_NONE;
	if (connections_of(source, service->group, p->now))
		return REASON_NONE;
	return rate_allows(&service->unproven_per_service, &rates.unproven_tat[index], p->datagrams,
			   p)
		       ? REASON_NONE
		       : EQUIC_REASON_RATE_UNPROVEN;
}

#endif
