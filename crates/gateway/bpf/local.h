/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds out whether a packet is for this host (docs/policy.md s.1, "Packets that pass through", and
 * s.8, "When it answers"). User space stores the host's addresses, and the time until which they
 * are valid. */
#ifndef EQUIC_LOCAL_H
#define EQUIC_LOCAL_H

#include "parse.h"

#define LOOPBACK_IFINDEX 1 /* the same in every network namespace */
#define AF_INET_NUMBER	 2
#define AF_INET6_NUMBER	 10

INLINE bool on_loopback(struct xdp_md *ctx)
{
	return load.explain ? load.flags & EQUIC_LOAD_LOOPBACK
			    : ctx->ingress_ifindex == LOOPBACK_IFINDEX;
}

/* Returns the kind of the packet's source or destination address on this host: an enum
 * equic_local_kind, or 0 if this host does not have the address. */
static __noinline __u32 kind_of(const struct packet *p, bool source)
{
	struct equic_local_key key = {.prefixlen = 8 * (sizeof(key) - sizeof(key.prefixlen))};
	__u32 *kind;

	key.family = p->family;
	__builtin_memcpy(key.addr, source ? p->src : p->dst, sizeof(key.addr));
	kind = bpf_map_lookup_elem(&local_addrs, &key);
	return kind ? *kind : 0;
}

INLINE bool is_group_mac(const __u8 *mac)
{
	return mac[0] & 1;
}

INLINE bool is_our_mac(const __u8 *mac)
{
	__u64 key = 0;

	__builtin_memcpy(&key, mac, ETH_ALEN);
	return bpf_map_lookup_elem(&local_macs, &key);
}

/* Returns true if the destination is a multicast address or the limited broadcast address. */
INLINE bool to_group(const struct packet *p)
{
	return p->family == 4 ? (__u8)(p->dst[1] >> 32) >= 0xe0 : (__u8)p->dst[0] == 0xff;
}

/* Returns true for a packet to a loopback address that did not arrive on the loopback interface.
 * Linux drops such packets. */
INLINE bool to_loopback_from_elsewhere(struct xdp_md *ctx, const struct packet *p)
{
	bool loopback = p->family == 4 ? (__u8)(p->dst[1] >> 32) == IN_LOOPBACKNET
				       : !p->dst[0] && p->dst[1] == V6_LOOPBACK;

	return loopback && !on_loopback(ctx);
}

INLINE bool knows_addresses(const struct packet *p)
{
	return p->now < control.local_until_ns;
}

/* Returns true if this host forwards the packet. To be forwarded, the destination must be known not
 * to be an address of this host. In addition, the frame must be for another host, or the kernel
 * must have a route for the packet. It is a global function so that the verifier checks it once,
 * not for every caller's state. */
__noinline __u32 passes_through(struct xdp_md *ctx, struct packet *p)
{
	struct bpf_fib_lookup route = {};
	struct ethhdr *eth;
	long found;

	if (!p || to_group(p) || !knows_addresses(p) || kind_of(p, false))
		return false;
	eth = at(ctx, 0, sizeof(*eth));
	if (p->l2_len && eth && !is_group_mac(eth->h_dest) && !is_our_mac(eth->h_dest))
		return true;
	route.ifindex = ctx->ingress_ifindex;
	route.l4_protocol = IPPROTO_UDP;
	route.sport = p->sport;
	route.dport = p->dport;
	if (p->family == 4) {
		route.family = AF_INET_NUMBER;
		route.ipv4_src = p->src[1] >> 32;
		route.ipv4_dst = p->dst[1] >> 32;
	} else {
		route.family = AF_INET6_NUMBER;
		__builtin_memcpy(route.ipv6_src, p->src, sizeof(route.ipv6_src));
		__builtin_memcpy(route.ipv6_dst, p->dst, sizeof(route.ipv6_dst));
	}
	found = bpf_fib_lookup(ctx, &route, sizeof(route), 0);
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       found == BPF_FIB_LKUP_RET_UNSUPP_LWT || found == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/* Returns true if the gateway can answer the packet's sender in the server's name. It can if the
 * packet would reach a server on this host, or a server behind this host whose address a service
 * names. It is a global function so that the verifier checks it once, not for every caller's state.
 */
__noinline __u32 can_answer(struct xdp_md *ctx, struct packet *p)
{
	struct ethhdr *eth;
	__u32 kind;

	/* A batch is not answered, because the kernel would send the answer as a batch, too. */
	if (!p || p->datagrams > 1 || p->interface & EQUIC_INTERFACE_NO_ANSWERS)
		return false;
	if (p->first_fragment || to_group(p) || to_loopback_from_elsewhere(ctx, p))
		return false;
	eth = at(ctx, 0, sizeof(*eth));
	if (!eth)
		return false;
	if (p->l2_len && (is_group_mac(eth->h_dest) || is_group_mac(eth->h_source)))
		return false;
	if (!knows_addresses(p))
		return true;
	/* Linux drops packets from a network if their source is one of the host's addresses. */
	if (kind_of(p, true) && !on_loopback(ctx))
		return false;
	kind = kind_of(p, false);
	if (kind == EQUIC_LOCAL_BROADCAST)
		return false;
	if (kind != EQUIC_LOCAL_HOST)
		return p->named;
	return !p->l2_len || is_our_mac(eth->h_dest);
}

#endif
