// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Measures the minimum cost of an XDP filter by source address: parse the packet up to UDP, look up
 * the source, drop. The gateway's costs are given as multiples of the program `reference`.
 *
 * On kernels with mitigations against return predictor attacks, calls that return are expensive.
 * Two variants measure this cost. `no_calls` finds the source in an array, whose look-up the kernel
 * inlines. `more_calls` is `reference` with CALLS additional calls of a function that does nothing.
 */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Number of entries in each table. It is the gateway's default number of sources. */
#define SOURCES 65536
/* Number of additional calls in `more_calls`; benches/gateway/reference.rs divides by it. */
#define CALLS 16

/* A source address: IPv6, or IPv4 in the last word. Network byte order. */
struct source {
	__u32 word[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SOURCES);
	__type(key, struct source);
	__type(value, __u64);
} sources SEC(".maps");

/* Sources, at indices that are computed from their addresses. The function place() here and the one
 * in benches/gateway/reference.rs must agree. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SOURCES);
	__type(key, __u32);
	__type(value, struct source);
} places SEC(".maps");

static __always_inline __u32 place(const struct source *source)
{
	__u32 mixed = (source->word[0] ^ source->word[1] ^ source->word[2] ^ source->word[3]) *
		      0x9e3779b1U;
	return mixed >> 16;
}

/* Reads the source address of a UDP datagram. Returns false if the packet is not UDP. */
static __always_inline bool parse(struct xdp_md *ctx, struct source *source)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct udphdr *udp;
	if ((void *)(ethernet + 1) > end)
		return false;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end || ip->protocol != IPPROTO_UDP || ip->ihl != 5)
			return false;
		source->word[0] = source->word[1] = source->word[2] = 0;
		source->word[3] = ip->saddr;
		udp = (void *)(ip + 1);
	} else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);
		if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
			return false;
		__builtin_memcpy(source, &ip->saddr, sizeof(*source));
		udp = (void *)(ip + 1);
	} else {
		return false;
	}
	return (void *)(udp + 1) <= end;
}

SEC("xdp")
int reference(struct xdp_md *ctx)
{
	struct source source;
	if (!parse(ctx, &source))
		return XDP_PASS;
	return bpf_map_lookup_elem(&sources, &source) ? XDP_DROP : XDP_PASS;
}

SEC("xdp")
int no_calls(struct xdp_md *ctx)
{
	struct source source;
	if (!parse(ctx, &source))
		return XDP_PASS;
	__u32 index = place(&source);
	struct source *found = bpf_map_lookup_elem(&places, &index);
	if (!found)
		return XDP_PASS;
	__u32 differs = 0;
#pragma unroll
	for (int i = 0; i < 4; i++)
		differs |= found->word[i] ^ source.word[i];
	return differs ? XDP_PASS : XDP_DROP;
}

/* A function that does nothing. The empty asm statement keeps the compiler from optimising the call
 * away. */
static __noinline int nothing(int value)
{
	asm volatile("" : "+r"(value));
	return value;
}

SEC("xdp")
int more_calls(struct xdp_md *ctx)
{
	struct source source;
	if (!parse(ctx, &source))
		return XDP_PASS;
	int verdict = bpf_map_lookup_elem(&sources, &source) ? XDP_DROP : XDP_PASS;
#pragma unroll
	for (int i = 0; i < CALLS; i++)
		verdict = nothing(verdict);
	return verdict == XDP_DROP ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
