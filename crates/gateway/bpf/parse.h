/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* First stage of the XDP program: parses the frame up to the UDP payload: Ethernet, VLAN, IPv4,
 * IPv6, UDP (docs/policy.md s.1). On some interfaces, packets begin with their IP header. Each step
 * takes an offset, checks its bounds and returns where the next step starts. */
#ifndef EQUIC_PARSE_H
#define EQUIC_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include "maps.h"

#define VLAN_TAGS	   2
#define VLAN_LEN	   4
#define IP_MORE_FRAGMENTS  0x2000
#define IP_FRAGMENT_OFFSET 0x1fff
#define V6_FRAGMENT_OFFSET 0xfff8
#define V6_MORE_FRAGMENTS  0x0001
#define EXTENSION_HEADERS  16
#define UDP_PORTS_LEN	   4
#define MAX_OFFSET	   0xff00 /* close to the largest offset that verifiers accept */

enum parsed {
	PARSED_OTHER,	 /* not UDP, or malformed below UDP: for no service */
	PARSED_UDP,	 /* has ports, and a payload that fits the lengths */
	PARSED_BAD_UDP,	 /* has ports, but the lengths contradict each other */
	PARSED_BATCH,	 /* has ports, and is a batch that cannot be split */
	PARSED_FRAGMENT, /* a later fragment: has addresses, but no ports */
	PARSED_DEEP,	 /* has headers that the host may parse, but the program cannot */
};

/* Returns a pointer to `n` bytes at offset `off`, or NULL if they are not in the frame's linear
 * part. */
INLINE void *at(struct xdp_md *ctx, __u32 off, __u32 n)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if (off > MAX_OFFSET)
		return NULL;
	OPAQUE(off);
	if (off > MAX_OFFSET)
		return NULL;
	data += off;
	if (data + n > end)
		return NULL;
	return data;
}

/* Returns true if the frame has at least `end` bytes. Only a jumbo frame can be longer than its
 * linear part, so the helper is called only if that part is too short. */
INLINE bool holds(struct xdp_md *ctx, __u32 end)
{
	return end <= ctx->data_end - ctx->data || end <= bpf_xdp_get_buff_len(ctx);
}

/* Like at(), but also reads from the other parts of the frame. It copies those bytes, and the copy
 * is valid until the next call. */
INLINE void *reach(struct xdp_md *ctx, struct packet *p, __u32 off, __u32 n)
{
	void *direct = at(ctx, off, n);

	if (direct)
		return direct;
	if (off > MAX_OFFSET || n > sizeof(p->head) || bpf_xdp_load_bytes(ctx, off, p->head, n))
		return NULL;
	return p->head;
}

struct extension_walk {
	struct xdp_md *ctx;
	__u32 off;
	__u32 end;
	__u32 frag_id;
	__u8 next;
	bool first_fragment;
	bool later_fragment;
	bool done;
	bool broken;
};

/* Parses one IPv6 extension header (RFC 8200 s.4). Returns 1 to end the loop. */
static long walk_extension(__u32 index, void *arg)
{
	struct extension_walk *w = arg;
	__u8 head[8];
	__u32 off = w->off;
	__u8 next = w->next;
	__u32 len;

	if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_FRAGMENT &&
	    next != IPPROTO_AH && next != IPPROTO_DSTOPTS && next != IPPROTO_MH) {
		w->done = true;
		return 1;
	}
	if (index >= EXTENSION_HEADERS)
		return 1;
	if (off > MAX_OFFSET || off + sizeof(head) > w->end ||
	    bpf_xdp_load_bytes(w->ctx, off, head, sizeof(head))) {
		w->broken = true;
		return 1;
	}
	w->next = head[0];
	if (next == IPPROTO_FRAGMENT) {
		__u16 field = (__u16)head[2] << 8 | head[3];

		len = 8;
		if (field & (V6_FRAGMENT_OFFSET | V6_MORE_FRAGMENTS))
			w->frag_id = (__u32)head[4] << 24 | (__u32)head[5] << 16 |
				     (__u32)head[6] << 8 | head[7];
		if (field & V6_FRAGMENT_OFFSET) {
			w->later_fragment = true;
			w->off = off + len;
			w->done = true;
			return 1;
		}
		if (field & V6_MORE_FRAGMENTS)
			w->first_fragment = true;
	} else if (next == IPPROTO_AH) {
		len = (head[1] + 2) * 4;
	} else {
		len = (head[1] + 1) * 8;
	}
	w->off = off + len;
	w->broken = w->off > w->end;
	return w->broken;
}

/* Parses IPv4 (RFC 791). With PARSED_UDP, `*l4` is the offset of the UDP header, and `*l4_len` is
 * the number of bytes from the UDP header to the end of the IP packet. */
INLINE enum parsed parse_ipv4(struct xdp_md *ctx, struct packet *p, __u32 off, __u32 *l4,
			      __u32 *l4_len)
{
	struct iphdr *ip = reach(ctx, p, off, sizeof(*ip));
	__u32 header, total;
	__u16 fragment;

	if (!ip || ip->version != 4)
		return PARSED_OTHER;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	if (header < sizeof(*ip) || total < header || !holds(ctx, off + total))
		return PARSED_OTHER;
	if (ip->protocol != IPPROTO_UDP)
		return PARSED_OTHER;
	p->family = 4;
	p->src[0] = p->dst[0] = 0;
	p->src[1] = V4_MAPPED | (__u64)ip->saddr << 32;
	p->dst[1] = V4_MAPPED | (__u64)ip->daddr << 32;
	p->frag_id = bpf_ntohs(ip->id);
	p->frag_protocol = ip->protocol;
	*l4 = off + header;
	*l4_len = total - header;
	fragment = bpf_ntohs(ip->frag_off);
	if (fragment & IP_FRAGMENT_OFFSET)
		return PARSED_FRAGMENT;
	p->first_fragment = fragment & IP_MORE_FRAGMENTS;
	return PARSED_UDP;
}

/* Parses IPv6 (RFC 8200) and its extension headers. If the packet has no upper-layer header, the
 * result depends on the host. It is PARSED_OTHER if the host drops the packet, too. It is
 * PARSED_DEEP if the host may find that header: after reassembly, or behind more extension headers
 * than this function parses. */
INLINE enum parsed parse_ipv6(struct xdp_md *ctx, struct packet *p, __u32 off, __u32 *l4,
			      __u32 *l4_len)
{
	struct ipv6hdr *ip = reach(ctx, p, off, sizeof(*ip));
	struct extension_walk walk = {.ctx = ctx};
	__u32 payload;
	bool jumbo;

	if (!ip || ip->version != 6)
		return PARSED_OTHER;
	payload = bpf_ntohs(ip->payload_len);
	if (!holds(ctx, off + sizeof(*ip) + payload))
		return PARSED_OTHER;
	/* This is a jumbogram (RFC 2675), or a packet that looks like one. Linux uses the frame's
	 * length for both. TCP segments that the GRO of this host joined (BIG TCP) also look like
	 * this. */
	jumbo = !payload && ip->nexthdr == IPPROTO_HOPOPTS;
	if (jumbo)
		payload = bpf_xdp_get_buff_len(ctx) - off - sizeof(*ip);
	p->family = 6;
	__builtin_memcpy(p->src, &ip->saddr, sizeof(p->src));
	__builtin_memcpy(p->dst, &ip->daddr, sizeof(p->dst));
	walk.off = off + sizeof(*ip);
	walk.end = walk.off + payload;
	walk.next = ip->nexthdr;
	if (walk.next != IPPROTO_UDP) {
		bpf_loop(EXTENSION_HEADERS + 1, walk_extension, &walk, 0);
		if (walk.broken)
			return jumbo || walk.first_fragment ? PARSED_DEEP : PARSED_OTHER;
		if (!walk.done)
			return PARSED_DEEP;
	}
	if (jumbo && (walk.later_fragment || walk.next == IPPROTO_UDP))
		return PARSED_DEEP;
	p->frag_id = walk.frag_id;
	/* Receivers ignore the Next Header of later fragments (RFC 8200 s.4.5). */
	p->frag_protocol = 0;
	p->first_fragment = walk.first_fragment;
	*l4 = walk.off;
	*l4_len = walk.end - walk.off;
	if (walk.later_fragment)
		return PARSED_FRAGMENT;
	return walk.next == IPPROTO_UDP ? PARSED_UDP : PARSED_OTHER;
}

INLINE enum parsed parse_udp(struct xdp_md *ctx, struct packet *p, __u32 off, __u32 left)
{
	struct udphdr *linear = at(ctx, off, sizeof(*linear));
	__u64 word;
	__u32 len;

	if (left < UDP_PORTS_LEN)
		return p->first_fragment ? PARSED_DEEP : PARSED_OTHER;
	/* Long extension headers can push the UDP header out of the linear part of a jumbo frame.
	 */
	if (linear) {
		word = *(__u64 *)linear;
	} else {
		__u64 copy = 0;

		if (bpf_xdp_load_bytes(ctx, off, &copy, UDP_PORTS_LEN) ||
		    (left >= sizeof(copy) && bpf_xdp_load_bytes(ctx, off, &copy, sizeof(copy))))
			return PARSED_OTHER;
		word = copy;
	}
	p->sport = word;
	p->dport = word >> 16;
	p->quic.len = p->quic.avail = left;
	if (left < sizeof(*linear))
		return PARSED_BAD_UDP;
	len = bpf_ntohs((__u16)(word >> 32));
	if (len < sizeof(*linear) || (len > left && !p->first_fragment))
		return PARSED_BAD_UDP;
	p->quic.off = off + sizeof(*linear);
	p->quic.len = len - sizeof(*linear);
	p->quic.avail = (len < left ? len : left) - sizeof(*linear);
	return PARSED_UDP;
}

/* Skips the Ethernet header and VLAN tags. Returns the EtherType after them, or 0 if the frame is
 * too short. */
INLINE __be16 parse_ethernet(struct xdp_md *ctx, struct packet *p, __u32 *start)
{
	struct ethhdr *eth = at(ctx, 0, sizeof(*eth));
	__u32 off = sizeof(*eth);
	__be16 type;

	if (!eth)
		return 0;
	/* Reads the EtherType through a pointer. The structure is packed, so the compiler would
	 * load the member byte by byte. */
	type = *(__be16 *)((__u8 *)eth + offsetof(struct ethhdr, h_proto));
#pragma unroll
	for (int i = 0; i < VLAN_TAGS; i++) {
		__be16 *tag;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = reach(ctx, p, off, VLAN_LEN);
		if (!tag)
			return 0;
		type = tag[1];
		off += VLAN_LEN;
	}
	*start = off;
	return type;
}

/* Returns the EtherType of a packet that begins with its IP header, or 0 if its version is unknown.
 */
INLINE __be16 type_of_version(struct xdp_md *ctx)
{
	__u8 *first = at(ctx, 0, 1);
	__u8 version = first ? *first >> 4 : 0;

	if (version == 4)
		return bpf_htons(ETH_P_IP);
	return version == 6 ? bpf_htons(ETH_P_IPV6) : 0;
}

/* Parses a packet, and stores its addresses, ports and the bounds of its payload. */
INLINE enum parsed parse(struct xdp_md *ctx, struct packet *p)
{
	__u32 off = 0, l4 = 0, l4_len = 0;
	enum parsed result;
	__be16 type;

	if (p->interface & EQUIC_INTERFACE_NO_ETHERNET)
		type = type_of_version(ctx);
	else
		type = parse_ethernet(ctx, p, &off);
	/* The packet has more tags than the program parses. Linux removes any number of them: those
	 * with VLAN 0 always, and others if there is a VLAN interface for them. */
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
		return PARSED_DEEP;
	p->l2_len = off;
	if (type == bpf_htons(ETH_P_IP))
		result = parse_ipv4(ctx, p, off, &l4, &l4_len);
	else if (type == bpf_htons(ETH_P_IPV6))
		result = parse_ipv6(ctx, p, off, &l4, &l4_len);
	else
		return PARSED_OTHER;
	if (result == PARSED_FRAGMENT)
		p->quic.len = p->quic.avail = l4_len;
	if (result != PARSED_UDP)
		return result;
	return parse_udp(ctx, p, l4, l4_len);
}

#endif
