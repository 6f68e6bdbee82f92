/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers in the server's name (docs/policy.md s.8). The program builds an answer in per-CPU memory
 * while it judges the packet. After the verdict, the answer replaces the packet. The Ethernet
 * header with its VLAN tags stays, with its addresses swapped, and everything after it is new. An
 * answer is shorter than any packet that is answered.
 *
 * This file writes the headers below QUIC, and Retry packets. negotiate.h has Version Negotiation,
 * and reset.h has stateless resets. */
#ifndef EQUIC_ANSWER_H
#define EQUIC_ANSWER_H

#include "classify.h"
#include "ghash.h"
#include "proof.h"

#define ANSWER_TTL	 64
#define IP_DONT_FRAGMENT 0x4000
#define NS_PER_MS	 1000000ull
#define RETRY_ID_LEN	 8
#define RETRY_TAG_LEN	 16
/* Length of a Retry packet without the client's ID and the tag: the first byte, the version, both
 * length bytes, the ID that the gateway chooses, and the token. */
#define RETRY_LEN (1 + 4 + 1 + 1 + RETRY_ID_LEN + EQUIC_PROOF_TOKEN_LEN)
/* Prefix of the hash input for the ID of a Retry packet. It separates this hash from those of
 * tokens and of other connection IDs, which have no such prefix. */
#define RETRY_ID_LABEL 0x44492079525445ull

/* Offset of the QUIC packet in struct answer. Before it, there is room for the IP and UDP headers.
 * After it, there is room for the longest Retry packet. */
#define ANSWER_QUIC 64
#define ANSWER_UDP  (ANSWER_QUIC - sizeof(struct udphdr))
#define ANSWER_IP4  (ANSWER_UDP - sizeof(struct iphdr))
#define ANSWER_IP6  (ANSWER_UDP - sizeof(struct ipv6hdr))
#define ANSWER_MASK 127u
/* Upper bound for the offset in bytes at which a Retry packet ends in struct answer. */
#define ANSWER_RETRY 256
/* Upper bound for the length of an answer in bytes. It is a power of two because the verifier needs
 * a mask. */
#define ANSWER_LONGEST 1024
/* Number of bytes of an answer that are summed first. The kernel's helper accepts up to 512 bytes
 * per call. */
#define ANSWER_SUM 256

struct answer {
	__u8 bytes[ANSWER_QUIC + ANSWER_LONGEST];
	__u32 start; /* offset of the IP header in `bytes` */
	__u32 len;   /* length of the packet from the IP header on */
	struct equic_proof_token token;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

INLINE struct answer *this_answer(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&answers, &zero);
}

/* Returns a pointer to a variable offset in the answer. The mask keeps the offset below ANSWER_QUIC
 * + ANSWER_MASK. */
INLINE __u8 *into(struct answer *a, __u32 off)
{
	OPAQUE(off);
	return a->bytes + ANSWER_QUIC - 32 + (off & ANSWER_MASK);
}

#define FROM_QUIC(off) ((off) + 32)

INLINE void put_cid(struct answer *a, __u32 off, const struct equic_cid *cid)
{
	const __u64 *from = (const __u64 *)cid;
	__u64 *to = (__u64 *)into(a, off);

	/* Copies the whole structure of a connection ID, which has 24 bytes. The bytes after the ID
	 * are overwritten later. */
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
}

INLINE void client_of(const struct packet *p, struct equic_proof_client *client)
{
	client->addr[0] = p->src[0];
	client->addr[1] = p->src[1];
	client->port = p->sport;
	client->family = p->family;
}

INLINE __u64 now_ms(const struct packet *p)
{
	return p->now / NS_PER_MS;
}

/* Chooses the Source Connection ID of a Retry packet. It is a keyed hash, so it cannot be guessed,
 * and the same packet always gets the same ID. */
INLINE bool choose_id(const struct packet *p, struct equic_cid *id)
{
	const __u64 *dcid = (const __u64 *)&p->quic.dcid, *scid = (const __u64 *)&p->quic.scid;
	const struct equic_proof_ring *keys = &ring;
	__u64 *words = (__u64 *)id;
	struct equic_sip s;

	if (!equic_proof_key(keys, keys->current, &s))
		return false;
	equic_sip_word(&s, RETRY_ID_LABEL);
	equic_sip_word(&s, p->src[0]);
	equic_sip_word(&s, p->src[1]);
	equic_sip_word(&s, (__u64)p->family << 16 | p->sport);
	equic_sip_word(&s, dcid[0]);
	equic_sip_word(&s, dcid[1]);
	equic_sip_word(&s, dcid[2]);
	equic_sip_word(&s, scid[0]);
	equic_sip_word(&s, scid[1]);
	equic_sip_word(&s, scid[2]);
	words[0] = equic_sip_finish(&s, 80);
	words[1] = 0;
	words[2] = (__u64)RETRY_ID_LEN << 32;
	return true;
}

static __noinline bool seal_token(const struct packet *p, struct answer *a, struct equic_cid *id)
{
	struct equic_proof_client client;

	if (!choose_id(p, id))
		return false;
	client_of(p, &client);
	return equic_proof_seal(&ring, now_ms(p), &client, &p->quic.dcid, id, &a->token) ==
	       EQUIC_PROOF_OK;
}

/* Folds a checksum of 32 bits into 16 (RFC 1071). */
INLINE __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Adds the whole words of a buffer of up to 764 bytes to a checksum. */
INLINE __u32 bytes_summed(const void *from, __u32 len, __u32 sum)
{
	OPAQUE(len);
	len &= 0x3fc;
	if (len < ANSWER_SUM)
		return bpf_csum_diff(NULL, 0, (__be32 *)from, len, sum);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)from, ANSWER_SUM, sum);
	len -= ANSWER_SUM;
	OPAQUE(len);
	return bpf_csum_diff(NULL, 0, (__be32 *)(from + ANSWER_SUM), len & 0x1fc, sum);
}

/* Returns the sum of the UDP pseudo-header, which is the same in both directions. */
INLINE __u32 pseudo_summed(const struct packet *p, __u32 udp_len)
{
	/* The ::ffff before an IPv4 address adds zero to a checksum, so both families need the same
	 * code.
	 */
	return bpf_csum_diff(NULL, 0, (__be32 *)p->src, sizeof(p->src) + sizeof(p->dst),
			     bpf_htons(udp_len) + bpf_htons(IPPROTO_UDP));
}

/* Writes the IP and UDP headers for `len` bytes of QUIC, with both checksums. */
static __noinline void put_headers(const struct packet *p, struct answer *a, __u32 len)
{
	struct udphdr *udp = (struct udphdr *)(a->bytes + ANSWER_UDP);
	__u32 udp_len = sizeof(*udp) + len, sum;

	udp->source = p->dport;
	udp->dest = p->sport;
	udp->len = bpf_htons(udp_len);
	udp->check = 0;
	sum = pseudo_summed(p, udp_len);
	/* The length is rounded up to a whole word, because the bytes after the packet are zero. */
	sum = bytes_summed(udp, udp_len + 3, sum);
	udp->check = folded(sum);
	if (!udp->check)
		udp->check = 0xffff;
	if (p->family == 4) {
		struct iphdr *ip = (struct iphdr *)(a->bytes + ANSWER_IP4);

		__builtin_memset(ip, 0, sizeof(*ip));
		ip->version = 4;
		ip->ihl = sizeof(*ip) / 4;
		ip->tot_len = bpf_htons(sizeof(*ip) + udp_len);
		ip->frag_off = bpf_htons(IP_DONT_FRAGMENT);
		ip->ttl = ANSWER_TTL;
		ip->protocol = IPPROTO_UDP;
		ip->saddr = p->dst[1] >> 32;
		ip->daddr = p->src[1] >> 32;
		ip->check = folded(bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0));
		a->start = ANSWER_IP4;
		a->len = sizeof(*ip) + udp_len;
	} else {
		struct ipv6hdr *ip = (struct ipv6hdr *)(a->bytes + ANSWER_IP6);

		__builtin_memset(ip, 0, sizeof(*ip));
		ip->version = 6;
		ip->payload_len = bpf_htons(udp_len);
		ip->nexthdr = IPPROTO_UDP;
		ip->hop_limit = ANSWER_TTL;
		__builtin_memcpy(&ip->saddr, p->dst, sizeof(ip->saddr));
		__builtin_memcpy(&ip->daddr, p->src, sizeof(ip->daddr));
		a->start = ANSWER_IP6;
		a->len = sizeof(*ip) + udp_len;
	}
}

/* Builds a Retry packet (RFC 9000 s.17.2.5) with a token for the packet's source. Returns false if
 * the ring has no key, or if the length of the packet's connection ID does not allow a Retry. */
static __noinline bool make_retry(const struct packet *p)
{
	bool version2 = p->quic.version == QUIC_V2;
	__u32 scid_len = p->quic.scid.len & 31, dcid_len = p->quic.dcid.len & 31;
	struct answer *a = this_answer();
	struct equic_cid id;
	__u32 off, pseudo;
	__u64 *token;

	if (!a || scid_len > EQUIC_CID_MAX || dcid_len > EQUIC_CID_MAX || !seal_token(p, a, &id))
		return false;
	__builtin_memset(a->bytes, 0, ANSWER_RETRY);
	/* The Retry Integrity Tag also covers the client's first Destination Connection ID (RFC
	 * 9001 s.5.8). */
	pseudo = FROM_QUIC(0) - 1 - dcid_len;
	put_cid(a, pseudo + 1, &p->quic.dcid);
	*into(a, pseudo) = dcid_len;
	put_cid(a, FROM_QUIC(6), &p->quic.scid);
	a->bytes[ANSWER_QUIC] = QUIC_LONG | QUIC_FIXED | (version2 ? 0 : QUIC_RETRY) << 4;
	*(__be32 *)(a->bytes + ANSWER_QUIC + 1) = bpf_htonl(p->quic.version);
	a->bytes[ANSWER_QUIC + 5] = scid_len;
	off = FROM_QUIC(6) + scid_len;
	*into(a, off) = RETRY_ID_LEN;
	*(__u64 *)into(a, off + 1) = *(__u64 *)&id;
	token = (__u64 *)into(a, off + 1 + RETRY_ID_LEN);
#pragma unroll
	for (int i = 0; i < EQUIC_PROOF_TOKEN_LEN / 8; i++)
		token[i] = a->token.words[i];
	integrity_tag((__u64 *)into(a, pseudo), 1 + dcid_len + RETRY_LEN + scid_len, version2,
		      token + EQUIC_PROOF_TOKEN_LEN / 8);
	put_headers(p, a, RETRY_LEN + scid_len + RETRY_TAG_LEN);
	return true;
}

/* Adapts the answer's checksum to a received packet with an incomplete checksum (CHECKSUM_PARTIAL).
 * In generic mode, the checksum field of a packet from a sender on this machine may contain only
 * the sum of the pseudo-header. The kernel or the hardware completes it later. The kernel completes
 * the answer's checksum at the same offset, so the field must contain the sum of the answer's
 * pseudo-header. Returns false if the answer's UDP header is at another offset. */
INLINE bool leave_checksum(struct xdp_md *ctx, const struct packet *p, struct answer *a)
{
	__u32 ifindex = ctx->ingress_ifindex, *flags, ip_len;
	struct udphdr *udp = (struct udphdr *)(a->bytes + ANSWER_UDP);
	__u16 check;

	flags = bpf_map_lookup_elem(&interfaces, &ifindex);
	if (!flags || !(*flags & EQUIC_INTERFACE_GENERIC))
		return true;
	if (bpf_xdp_load_bytes(ctx, p->quic.off - sizeof(check), &check, sizeof(check)))
		return false;
	/* One in 65,536 complete checksums happens to equal the sum of the pseudo-header. In that
	 * case the answer is lost, and the client gets one when it retransmits. */
	if (check != (__u16)~folded(pseudo_summed(p, sizeof(*udp) + p->quic.len)))
		return true;
	ip_len = p->family == 4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	if (p->quic.off != p->l2_len + ip_len + sizeof(*udp))
		return false;
	udp->check = ~folded(pseudo_summed(p, bpf_ntohs(udp->len)));
	return true;
}

INLINE bool swap_macs(struct xdp_md *ctx)
{
	struct ethhdr *eth = at(ctx, 0, sizeof(*eth));
	__u8 dest[ETH_ALEN];

	if (!eth)
		return false;
	__builtin_memcpy(dest, eth->h_dest, sizeof(dest));
	__builtin_memcpy(eth->h_dest, eth->h_source, sizeof(eth->h_dest));
	__builtin_memcpy(eth->h_source, dest, sizeof(eth->h_source));
	return true;
}

/* Replaces the packet with the answer. Returns XDP_TX, or XDP_DROP on failure. */
static __noinline int send_answer(struct xdp_md *ctx, const struct packet *p)
{
	struct answer *a = this_answer();
	__u32 start, len;
	int less;

	if (!a || !leave_checksum(ctx, p, a))
		return XDP_DROP;
	start = a->start & 63;
	/* Verifiers before Linux 6.13 do not infer from `len != 0` that len is at least 1. They do
	 * infer that for `x + 1`. */
	len = a->len - 1;
	OPAQUE(len);
	len = (len & (ANSWER_LONGEST - 1)) + 1;
	less = p->l2_len + len - bpf_xdp_get_buff_len(ctx);
	if (less > 0 || bpf_xdp_adjust_tail(ctx, less))
		return XDP_DROP;
	if (p->l2_len && !swap_macs(ctx))
		return XDP_DROP;
	return bpf_xdp_store_bytes(ctx, p->l2_len, a->bytes + start, len) ? XDP_DROP : XDP_TX;
}

/* Checks the token of an Initial against its source and its connection ID. */
static __noinline enum equic_proof check_token(struct xdp_md *ctx, const struct packet *p)
{
	const struct equic_proof_token *token;
	struct equic_proof_client client;

	if (p->quic.token_len != EQUIC_PROOF_TOKEN_LEN)
		return EQUIC_PROOF_MALFORMED;
	token = at(ctx, p->quic.off + p->quic.token_off, sizeof(*token));
	if (!token) {
		struct answer *a = this_answer();

		if (!a || bpf_xdp_load_bytes(ctx, p->quic.off + p->quic.token_off, &a->token,
					     sizeof(a->token)))
			return EQUIC_PROOF_MALFORMED;
		token = &a->token;
	}
	client_of(p, &client);
	return equic_proof_open(&ring, now_ms(p), &client, &p->quic.dcid, token, NULL);
}

#endif
