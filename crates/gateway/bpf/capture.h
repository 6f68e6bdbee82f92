/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Copies dropped packets for a process that captures them (`equic gateway capture`). */
#ifndef EQUIC_CAPTURE_H
#define EQUIC_CAPTURE_H

#include "stats.h"

/* Per-CPU memory for captures. The program builds the copy here, because the stack is too small and
 * a reservation in the ring buffer needs a constant size. */
struct capture_room {
	__u64 tat; /* theoretical arrival time of the CPU's bucket */
	struct equic_captured packet;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_room);
} capture_room SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} captured SEC(".maps");

volatile struct equic_capture capture SEC(".data.capture");

INLINE bool is_wanted(const struct packet *p, __u32 reason)
{
	return capture.until_ns > p->now && capture.reasons >> (reason & 63) & 1 &&
	       !((p->src[0] ^ capture.addr[0]) & capture.mask[0]) &&
	       !((p->src[1] ^ capture.addr[1]) & capture.mask[1]);
}

/* Copies a packet into the ring buffer if it matches the filter. Each CPU copies at most
 * capture.rate packets. The filter is applied before the rate limit, so that a flood of other
 * packets does not use up the rate. */
static __noinline void capture_packet(struct xdp_md *ctx, const struct packet *p, __u32 reason,
				      bool dropped)
{
	__u64 cost_ns = capture.rate.cost_ns, burst_ns = capture.rate.burst_ns;
	__u32 zero = 0, snap = capture.snap, len = bpf_xdp_get_buff_len(ctx);
	struct capture_room *room;

	if (!cost_ns || !is_wanted(p, reason))
		return;
	room = bpf_map_lookup_elem(&capture_room, &zero);
	if (!room || !charge(&room->tat, cost_ns, burst_ns, 1, p->now))
		return;
	describe(&room->packet.event, ctx, p, reason, dropped);
	room->packet.frame_len = len;
	/* Verifiers before Linux 6.13 do not infer from `len != 0` that len is at least 1. They do
	 * infer that for `x + 1`. */
	len = (len < snap ? len : snap) - 1;
	OPAQUE(len);
	len = (len & (EQUIC_CAPTURE_MAX - 1)) + 1;
	room->packet.bytes_len = len;
	if (bpf_xdp_load_bytes(ctx, 0, room->packet.bytes, len))
		return;
	if (bpf_ringbuf_output(&captured, &room->packet,
			       offsetof(struct equic_captured, bytes) + len, 0))
		__sync_fetch_and_add(&capture.lost, 1);
}

#endif
