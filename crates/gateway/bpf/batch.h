/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Batches: in generic mode, several datagrams of one sender can arrive as one packet. Either the
 * kernel joined them (GRO), or a sender on this machine sent them together (GSO). Only the kernel's
 * own structures contain the length of each datagram (docs/policy.md s.1, "Batches").
 *
 * The verdict on the first datagram applies to the whole batch. So this file checks that the other
 * datagrams would get the same verdict. */
#ifndef EQUIC_BATCH_H
#define EQUIC_BATCH_H

#include <bpf/bpf_core_read.h>
#include "classify.h"
#include "ids.h"

#define GSO_DATAGRAMS ((1u << 17) | (1u << 18)) /* SKB_GSO_UDP_L4, SKB_GSO_FRAGLIST */
#define CACHE_LINE    64			/* SMP_CACHE_BYTES of x86-64 and AArch64 */

/* Fields of the kernel's structures that the program reads. CO-RE relocates them for the running
 * kernel. */
struct xdp_buff___here {
	void *data_hard_start;
	__u32 frame_sz;
} __attribute__((preserve_access_index));

struct skb_shared_info___here {
	__u16 gso_size;
	__u32 gso_type;
} __attribute__((preserve_access_index));

INLINE __u32 interface_flags(struct xdp_md *ctx)
{
	__u32 index, *flags;

	if (load.explain)
		return explain.interface;
	if (!control.flagged)
		return 0;
	index = ctx->ingress_ifindex;
	flags = bpf_map_lookup_elem(&interfaces, &index);
	return flags ? *flags : 0;
}

/* Returns the length of each datagram in a batch (the last one may be shorter), or 0 if the packet
 * is not a batch. In generic mode, the kernel stores that length at the end of the packet's socket
 * buffer, which is also the end of the XDP buffer. In native mode, that memory contains other data.
 */
INLINE __u32 segment_length(struct xdp_md *ctx, const struct packet *p)
{
	struct xdp_buff___here *buff = (void *)ctx;
	struct skb_shared_info___here *shared;
	__u32 align = CACHE_LINE - 1;

	if (!(p->interface & EQUIC_INTERFACE_GENERIC))
		return 0;
	if (load.explain)
		return explain.segment;
	if (!(load.flags & EQUIC_LOAD_READS_KERNEL))
		return 0;
	shared = BPF_CORE_READ(buff, data_hard_start) + BPF_CORE_READ(buff, frame_sz) -
		 ((bpf_core_type_size(struct skb_shared_info___here) + align) & ~align);
	return BPF_CORE_READ(shared, gso_type) & GSO_DATAGRAMS ? BPF_CORE_READ(shared, gso_size)
							       : 0;
}

INLINE bool same_attempt(const struct quic *first, const struct quic *other)
{
	const __u64 *a = (const __u64 *)&first->dcid, *b = (const __u64 *)&other->dcid;
	const __u64 *c = (const __u64 *)&first->scid, *d = (const __u64 *)&other->scid;

	return first->version == other->version && a[0] == b[0] && a[1] == b[1] && a[2] == b[2] &&
	       c[0] == d[0] && c[1] == d[1] && c[2] == d[2];
}

/* Returns true if the connection ID of another datagram is valid, given that the ID of the first
 * datagram is valid. If the first datagram opens a connection, its ID was not verified, so this
 * function verifies the other one. */
INLINE bool id_holds(const struct quic *first, const struct quic *other)
{
	const __u64 *a = (const __u64 *)&first->dcid, *b = (const __u64 *)&other->dcid;
	const struct equic_proof_id_format format = {EQUIC_ID_LEN, EQUIC_ID_SERVER};

	if (first->opening)
		return equic_proof_id_open(&ring, &format, &other->dcid, NULL) == EQUIC_PROOF_OK;
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

/* Returns true if the verdict on the first datagram of a batch can stand for the datagram in
 * p->other. */
INLINE bool stands_for(struct xdp_md *ctx, struct packet *p, volatile struct equic_service *service)
{
	struct quic *q = &p->other;
	__u32 flags = service->flags;

	/* The verdict on a packet with an unknown version cannot stand for other packets. */
	if (p->quic.opening && !p->quic.known_version)
		return false;
	if (bpf_xdp_load_bytes(ctx, q->off, &q->first_byte, 1))
		return false;
	if (q->first_byte & QUIC_LONG) {
		if (parse_long(ctx, q, flags, service->versions) != REASON_NONE)
			return false;
		if (q->opening)
			return p->quic.opening && q->known_version && same_attempt(&p->quic, q);
		if (q->early && (p->quic.opening || p->quic.early))
			return same_attempt(&p->quic, q);
	} else if (q->len < QUIC_MIN_SHORT) {
		return false;
	} else if ((flags & EQUIC_SERVICE_REQUIRE_FIXED_BIT) && !(q->first_byte & QUIC_FIXED)) {
		return false;
	}
	if (!(flags & EQUIC_SERVICE_CHECK_IDS))
		return true;
	if (!(q->first_byte & QUIC_LONG) && !read_short_id(ctx, q))
		return false;
	return !q->early && id_holds(&p->quic, q);
}

struct batch_walk {
	struct xdp_md *ctx;
	struct packet *p;
};

/* Checks the next datagram of a batch. Returns 1 to end the loop. */
static long walk_batch(__u32 index, void *arg)
{
	struct batch_walk *w = arg;
	struct packet *p = w->p;
	struct quic *q = &p->other;
	__u32 left = p->whole - p->segment * (index + 1);

	if (p->segment * (index + 1) >= p->whole)
		return 1;
	q->off = p->quic.off + p->segment * (index + 1);
	q->len = q->avail = left < p->segment ? left : p->segment;
	q->version = 0;
	*(__u64 *)&q->first_byte = 0;
	p->refused = !stands_for(w->ctx, p, &services[p->service & (EQUIC_MAX_SERVICES - 1)]);
	return p->refused;
}

/* Reduces the packet to its first datagram, and sets the number of datagrams that are charged.
 * Returns false if there are too many datagrams, or if the verdict on the first one cannot stand
 * for all. */
static __noinline bool take_apart(struct xdp_md *ctx, struct packet *p)
{
	volatile struct equic_service *service = &services[p->service & (EQUIC_MAX_SERVICES - 1)];
	struct batch_walk w = {.ctx = ctx, .p = p};

	p->datagrams = (p->whole + p->segment - 1) / p->segment;
	if (p->datagrams > EQUIC_BATCH || p->quic.avail < p->quic.len)
		return false;
	p->quic.len = p->quic.avail = p->segment;
	p->kind = classify(ctx, &p->quic, service);
	/* If the first datagram is malformed, the whole batch is dropped. */
	if (p->kind != REASON_NONE && p->kind != EQUIC_REASON_ESTABLISHED)
		return true;
	if (p->kind == EQUIC_REASON_ESTABLISHED && service->flags & EQUIC_SERVICE_CHECK_IDS &&
	    !read_short_id(ctx, &p->quic))
		return false;
	p->refused = false;
	bpf_loop(EQUIC_BATCH - 1, walk_batch, &w, 0);
	return !p->refused;
}

#endif
