/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every header of the program needs: kernel types, helpers, and the packet being judged. */
#ifndef EQUIC_COMMON_H
#define EQUIC_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "abi.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ledger's hash and the address words are laid out for little-endian machines"
#endif

#define INLINE static __always_inline

/* Hides a value's history from the compiler, so that a bound checked before is checked in the
 * register that is used after: the verifier follows registers. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

/* Another CPU may have stored `then` after this one read its clock. */
#define SINCE(now, then) ((now) > (then) ? (now) - (then) : 0)

/* A bit for each reason that drops, and for each that is answered. */
#define DOES_BIT(name, what, does)	      | ((does) == (what) ? 1ull << EQUIC_REASON_##name : 0)
#define DROP_BIT(name, text, does, meaning)   DOES_BIT(name, EQUIC_DOES_DROP, does)
#define ANSWER_BIT(name, text, does, meaning) DOES_BIT(name, EQUIC_DOES_ANSWER, does)
#define DROP_MASK			      (0ull EQUIC_REASONS(DROP_BIT))
#define ANSWER_MASK_OF_REASONS		      (0ull EQUIC_REASONS(ANSWER_BIT))
_Static_assert(EQUIC_REASON_COUNT <= EQUIC_REASONS_MAX, "counter table too small");

INLINE bool drops(__u32 reason)
{
	return DROP_MASK >> (reason & 63) & 1;
}

INLINE bool answers_it(__u32 reason)
{
	return ANSWER_MASK_OF_REASONS >> (reason & 63) & 1;
}

/* The upper address word of ::ffff:a.b.c.d, without the address. */
#define V4_MAPPED   0xffff0000ull
#define V6_LOOPBACK (1ull << 56) /* the upper address word of ::1 */

/* The UDP payload, and what QUIC it holds. */
struct quic {
	__u32 off;   /* of the payload in the frame */
	__u32 len;   /* of the payload, by the UDP header */
	__u32 avail; /* what of it is in this packet: less than len in a first fragment only */
	/* Of an Initial only. */
	__u32 token_off; /* of its token in the payload */
	__u32 token_len; /* 0: none */
	/* From here to `dcid` it is zero until it is read. */
	__u32 version; /* host order; 0 for short headers */
	__u8 first_byte;
	bool opening;	    /* it would open a connection */
	bool known_version; /* 1 or 2 */
	bool handshake;	    /* it is a Handshake packet, or begins with one, and opens nothing */
	bool early;	    /* the same of 0-RTT packets */
	bool has_dcid;
	bool has_scid;
	bool reserved;
	/* Another packet's, unless has_dcid and has_scid say that they have been read. */
	struct equic_cid dcid;
	struct equic_cid scid;
};
_Static_assert(offsetof(struct quic, dcid) == offsetof(struct quic, version) + 12 &&
		       offsetof(struct quic, first_byte) % 8 == 0,
	       "what is zeroed is a word and a half");

/* One packet, as far as it is known. It is in memory of the CPU's own (maps.h), for the stack is
 * small; what another packet has left there is not cleaned away before somebody looks at it. The
 * context is not in it: the verifier forgets what is in a map. */
struct packet {
	__u64 now;    /* to the tick, a few milliseconds: enough for all but rates, and cheap */
	__u64 exact;  /* to the nanosecond; 0 until a rate asks for it */
	__u64 src[2]; /* full address; IPv4 mapped */
	__u64 dst[2];
	__u16 sport; /* network order */
	__u16 dport;
	__u16 service;
	__u8 family;
	bool first_fragment;
	__u32 frag_id;
	__u8 frag_protocol; /* of IPv4; 0 of IPv6, where reassembly does not depend on it */
	bool named;	    /* the service names the destination address, which is no wildcard */
	bool exempt;	    /* the source is on the allow list */
	bool proved;	    /* its token holds: somebody receives at the source address */
	__u32 kind;	    /* what classify() said */
	__u32 own;	    /* element of `overrides` whose limits the source has; 0: the service's.
			     * Nothing, while the service has none */
	__u32 l2_len; /* Ethernet header and VLAN tags; 0 if the packet begins with its IP header */
	__u32 interface; /* enum equic_interface_flags */
	__u32 segment;	 /* bytes of each datagram of a batch but the last; else 0 */
	__u32 datagrams; /* in a batch; else 1 */
	bool refused;	 /* the verdict on the first datagram cannot stand for another one */
	__u32 whole;	 /* bytes of their payloads, of which `quic` is the first */
	struct quic quic;
	struct quic other; /* of another datagram of a batch */
	__u64 head[5];	   /* room for a header that is not in the frame's linear part */
	/* Not the packet's, but its CPU's, like all of this: theoretical arrival time of the bucket
	 * of events. */
	__u64 event_tat;
};

#endif
