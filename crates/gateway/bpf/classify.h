/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Second stage of the XDP program: finds the packet's service, its source, and the kind of QUIC
 * packet (docs/policy.md s.1 to s.3). admit.h calls classify(). quic.h parses QUIC. */
#ifndef EQUIC_CLASSIFY_H
#define EQUIC_CLASSIFY_H

#include "local.h"
#include "quic.h"

/* Returns the index of the packet's service, or EQUIC_NO_SERVICE. */
INLINE __u32 service_of(struct packet *p)
{
	struct equic_listener key __attribute__((aligned(8))) = {};
	equic_word *addr = (equic_word *)key.addr;
	__u32 port = bpf_ntohs(p->dport);
	struct equic_ports *table;
	__u32 zero = 0, *index;
	__u8 entry;

	/* Verifiers before Linux 6.8 do not track the range of a byte-swapped register, so the port
	 * is masked. */
	OPAQUE(port);
	port &= 0xffff;
	p->named = false;
	table = bpf_map_lookup_elem(&ports, &zero);
	if (!table)
		return EQUIC_NO_SERVICE;
	entry = p->family == 4 ? table->any4[port] : table->any6[port];
	if (!entry)
		return EQUIC_NO_SERVICE;
	if (entry & EQUIC_PORT_EXACT) {
		key.port = p->dport;
		key.family = p->family;
		addr[0] = p->dst[0];
		addr[1] = p->dst[1];
		index = bpf_map_lookup_elem(&listeners, &key);
		if (index) {
			p->named = true;
			return *index;
		}
		entry &= ~EQUIC_PORT_EXACT;
	}
	return entry ? entry - 1 : EQUIC_NO_SERVICE;
}

/* The first eight bytes of the prefixes 64:ff9b::/96, 64:ff9b:1::/48 and fe80::/64. */
#define NAT64		 0x000000009bff6400ull
#define NAT64_LOCAL	 0x000001009bff6400ull
#define NAT64_LOCAL_MASK 0x0000ffffffffffffull
#define LINK_LOCAL	 0x00000000000080feull

/* Part of an IPv6 address that identifies a client (docs/policy.md s.2). Usually it is the prefix.
 * After the well-known prefix of NAT64, it is the IPv4 address at the end. If all clients share one
 * prefix, it is the whole address. */
enum span { SPAN_PREFIX, SPAN_IPV4, SPAN_WHOLE };

INLINE enum span span_of(const struct packet *p)
{
	if (p->src[0] == NAT64 && !(__u32)p->src[1])
		return SPAN_IPV4;
	if (p->src[0] == LINK_LOCAL || (p->src[0] & NAT64_LOCAL_MASK) == NAT64_LOCAL)
		return SPAN_WHOLE;
	return SPAN_PREFIX;
}

/* Computes the source key of a packet from its source address and service. */
INLINE void source_of(const struct packet *p, struct equic_source *source)
{
	equic_word *words = (equic_word *)source;
	__u64 last = p->src[1];
	enum span span;

	if (p->family == 4) {
		words[0] = 0;
		words[1] = V4_MAPPED | (last & ((__u64)load.v4_mask << 32));
	} else if ((span = span_of(p)) != SPAN_PREFIX) {
		words[0] = p->src[0];
		words[1] = span == SPAN_WHOLE ? last : last & ((__u64)load.v4_mask << 32);
	} else {
		words[0] = p->src[0] & load.v6_mask[0];
		words[1] = p->src[1] & load.v6_mask[1];
	}
	/* This store also sets the reserved bytes of the key, because keys are compared word by
	 * word. */
	words[2] = p->service;
}

/* Returns true if no host can legitimately send from the packet's source address (RFC 6890).
 * Packets on the loopback interface may come from loopback addresses.
 *
 * IPv6 sources of the form ::ffff:a.b.c.d are refused, too. The server would see the same address
 * as for a.b.c.d, but other lists and counts would apply. */
INLINE bool bad_source(struct xdp_md *ctx, const struct packet *p)
{
	if (p->family == 4) {
		__u32 addr = p->src[1] >> 32; /* the first byte of the address is the low one */
		__u8 first = addr;

		if (first != IN_LOOPBACKNET)
			return !first || (first & 0xf0) == 0xe0 || addr == 0xffffffff;
	} else {
		if ((__u8)p->src[0] == 0xff)
			return true;
		if (p->src[0])
			return false;
		if (!p->src[1] || (__u32)p->src[1] == V4_MAPPED)
			return true;
		if (p->src[1] != V6_LOOPBACK)
			return false;
	}
	return !on_loopback(ctx);
}

/* Finds the kind of QUIC packet. Returns a final reason, or REASON_NONE for long headers that the
 * policy must judge. */
INLINE __u32 classify(struct xdp_md *ctx, struct quic *q, volatile struct equic_service *service)
{
	__u32 flags = service->flags;
	__u8 *first;

	if (!q->len)
		return EQUIC_REASON_EMPTY;
	if (!q->avail)
		return EQUIC_REASON_TRUNCATED;
	first = at(ctx, q->off, 1);
	if (first)
		q->first_byte = *first;
	else if (bpf_xdp_load_bytes(ctx, q->off, &q->first_byte, 1))
		return EQUIC_REASON_TRUNCATED;
	if (q->first_byte & QUIC_LONG)
		return parse_long(ctx, q, flags, service->versions);
	if ((flags & EQUIC_SERVICE_REQUIRE_FIXED_BIT) && !(q->first_byte & QUIC_FIXED))
		return EQUIC_REASON_FIXED_BIT;
	return q->len < QUIC_MIN_SHORT ? EQUIC_REASON_TINY_SHORT : EQUIC_REASON_ESTABLISHED;
}

#endif
