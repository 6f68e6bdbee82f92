/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Definitions that every header of the program needs: kernel types, helpers, and struct packet. */
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

/* Hides how a value was computed from the compiler. The verifier tracks bounds by register. Without
 * this, the compiler may check one register and use another. */
#define OPAQUE(x) asm volatile("" : "+r"(x))

/* Returns the time from `then` to `now`, or 0 if `then` is later. That can happen because another
 * CPU may have stored `then` after this CPU read its clock. */
#define SINCE(now, then) ((now) > (then) ? (now) - (then) : 0)

/* Bit masks of the reasons that drop, and of the reasons that answer. */
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

/* The second word of the address ::ffff:a.b.c.d, without a.b.c.d. */
#define V4_MAPPED   0xffff0000ull
#define V6_LOOPBACK (1ull << 56) /* the upper address word of ::1 */

/* The UDP payload, and the fields of its QUIC packet. */
struct quic {
	__u32 off;   /* offset of the payload in the frame */
	__u32 len;   /* length of the payload, according to the UDP header */
	__u32 avail; /* payload bytes in this packet: less than len only in a first fragment */
	/* The token fields are valid only for an Initial. */
	__u32 token_off; /* offset of the token in the payload */
	__u32 token_len; /* 0: no token */
	/* The fields from here up to `dcid` are zero until they are parsed. */
	__u32 version; /* host order; 0 for short headers */
	__u8 first_byte;
	bool opening;	    /* the packet would open a connection */
	bool known_version; /* QUIC version 1 or 2 */
	bool handshake;	    /* begins with a Handshake packet and opens no connection */
	bool early;	    /* begins with a 0-RTT packet and opens no connection */
	bool has_dcid;
	bool has_scid;
	bool reserved;
	/* The IDs are left over from another packet unless has_dcid and has_scid are set. */
	struct equic_cid dcid;
	struct equic_cid scid;
};
_Static_assert(offsetof(struct quic, dcid) == offsetof(struct quic, version) + 12 &&
		       offsetof(struct quic, first_byte) % 8 == 0,
	       "what is zeroed is a word and a half");

/* The parsed fields of one packet. The structure is in per-CPU memory (maps.h), because the stack
 * is small. Fields keep the values of the previous packet until they are set. The XDP context is
 * not part of it, because the verifier does not track pointers that are stored in a map. */
struct packet {
	__u64 now;    /* time of the current tick (a few ms), which suffices except for rates */
	__u64 exact;  /* time in nanoseconds; 0 until a rate needs it */
	__u64 src[2]; /* full address; IPv4 mapped */
	__u64 dst[2];
	__u16 sport; /* network order */
	__u16 dport;
	__u16 service;
	__u8 family;
	bool first_fragment;
	__u32 frag_id;
	__u8 frag_protocol; /* IPv4 protocol; 0 for IPv6, whose reassembly does not depend on it */
	bool named;	    /* the service names this destination address, not a wildcard */
	bool exempt;	    /* the source is on the allow list */
	bool proved;	    /* the token is valid, so the source address is validated */
	__u32 kind;	    /* result of classify() */
	__u32 own; /* index into `overrides`; 0: the service's limits. Undefined if the service has
		      no overrides */
	__u32 l2_len; /* Ethernet header and VLAN tags; 0 if the packet begins with its IP header */
	__u32 interface; /* enum equic_interface_flags */
	__u32 segment;	 /* bytes of each datagram of a batch except the last; 0 if not a batch */
	__u32 datagrams; /* number of datagrams in a batch; 1 if not a batch */
	bool refused;	 /* the verdict on the first datagram cannot stand for all */
	__u32 whole;	 /* payload bytes of all datagrams; `quic` is the first datagram */
	struct quic quic;
	struct quic other; /* another datagram of a batch */
	__u64 head[5];	   /* buffer for a header that is not in the frame's linear part */
	/* Theoretical arrival time of this CPU's bucket of events. It does not describe the packet.
	 */
	__u64 event_tat;
};

#endif
