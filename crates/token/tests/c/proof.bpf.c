// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* A BPF program that uses everything in proof.h. A test compiles it. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "proof.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct equic_proof_ring);
} ring_map SEC(".maps");

/* The format of a service's IDs. User space sets it, so the compiler must not know its value. */
struct equic_proof_id_format format = {};

SEC("xdp")
int seal(struct xdp_md *ctx)
{
	struct equic_proof_client client = {.port = ctx->ingress_ifindex, .family = 6};
	struct equic_proof_token token;
	struct equic_cid original = {}, retry = {};
	struct equic_proof_ring *ring;
	__u64 nonce[2] = {bpf_get_prandom_u32()};
	__u32 zero = 0;

	ring = bpf_map_lookup_elem(&ring_map, &zero);
	if (!ring || bpf_xdp_load_bytes(ctx, 14, original.bytes, EQUIC_CID_MAX))
		return XDP_PASS;
	original.len = EQUIC_CID_MAX;
	if (equic_proof_id_seal(ring, &format, 1, nonce, &retry) != EQUIC_PROOF_OK ||
	    equic_proof_seal(ring, bpf_ktime_get_ns() / 1000000, &client, &original, &retry,
			     &token) != EQUIC_PROOF_OK)
		return XDP_PASS;
	if (bpf_xdp_store_bytes(ctx, 14, &token, sizeof(token)))
		return XDP_DROP;
	return bpf_xdp_store_bytes(ctx, 94, retry.bytes, 8) ? XDP_DROP : XDP_TX;
}

SEC("xdp")
int open(struct xdp_md *ctx)
{
	struct equic_proof_client client = {.port = ctx->ingress_ifindex, .family = 6};
	struct equic_proof_token token;
	struct equic_cid dcid = {}, original;
	struct equic_proof_ring *ring;
	__u32 zero = 0;

	ring = bpf_map_lookup_elem(&ring_map, &zero);
	if (!ring || bpf_xdp_load_bytes(ctx, 14, &token, sizeof(token)) ||
	    bpf_xdp_load_bytes(ctx, 94, dcid.bytes, 8))
		return XDP_PASS;
	dcid.len = 8;
	if (equic_proof_open(ring, bpf_ktime_get_ns() / 1000000, &client, &dcid, &token,
			     &original) != EQUIC_PROOF_OK)
		return XDP_DROP;
	return original.len;
}

SEC("xdp")
int check_id(struct xdp_md *ctx)
{
	struct equic_cid id = {};
	struct equic_proof_ring *ring;
	__u32 zero = 0;
	__u64 server;

	ring = bpf_map_lookup_elem(&ring_map, &zero);
	if (!ring || bpf_xdp_load_bytes(ctx, 43, id.bytes, 12))
		return XDP_PASS;
	id.len = 12;
	if (equic_proof_id_open(ring, &format, &id, &server) != EQUIC_PROOF_OK)
		return XDP_DROP;
	return server == 1 ? XDP_PASS : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
