/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parses the parts of QUIC packets that are readable without keys: RFC 8999, RFC 9000 s.17, RFC
 * 9369 s.3 (docs/policy.md s.3). */
#ifndef EQUIC_QUIC_H
#define EQUIC_QUIC_H

#include "parse.h"

#define QUIC_V1		   0x00000001
#define QUIC_V2		   0x6b3343cf
#define QUIC_LONG	   0x80
#define QUIC_FIXED	   0x40
#define QUIC_MIN_DATAGRAM  1200 /* RFC 9000 s.14.1 */
#define QUIC_MIN_DCID	   8	/* RFC 9000 s.7.2 */
#define QUIC_MIN_SHORT	   21	/* RFC 9000 s.10.3 */
#define QUIC_MIN_PROTECTED 20	/* packet number and sample: RFC 9001 s.5.4.2 */
#define QUIC_COALESCED	   3	/* maximum number of packets that are parsed after the first */
#define REASON_NONE	   EQUIC_REASON_COUNT

enum quic_type { QUIC_INITIAL, QUIC_ZERO_RTT, QUIC_HANDSHAKE, QUIC_RETRY };

struct long_header {
	__u32 version;
	__u32 next; /* offset of the next packet, from the start of the payload */
	__u8 first_byte;
	__u8 type; /* enum quic_type, only for versions 1 and 2 */
	bool known_version;
	bool has_dcid;
	bool has_scid;
	__u32 token_off;
	__u32 token_len;
	__u32 length; /* value of the Length field */
};

/* Masks that keep the first `len` of 24 bytes. Three loads of a mask replace a loop with branches,
 * each of which the verifier would follow. */
#define MASK(len, word)                                                                            \
	((len) >= 8 * (word) + 8 ? ~0ull                                                           \
	 : (len) <= 8 * (word)	 ? 0ull                                                            \
				 : (1ull << (8 * ((len) & 7))) - 1)
#define MASKS(len) {MASK(len, 0), MASK(len, 1), MASK(len, 2)}

/* The table is in its own section, because `load` must be the only variable in .rodata, which user
 * space sets. */
const __u64 cid_masks[32][3] SEC(".rodata.masks") = {
	MASKS(0),  MASKS(1),  MASKS(2),	 MASKS(3),  MASKS(4),  MASKS(5),  MASKS(6),
	MASKS(7),  MASKS(8),  MASKS(9),	 MASKS(10), MASKS(11), MASKS(12), MASKS(13),
	MASKS(14), MASKS(15), MASKS(16), MASKS(17), MASKS(18), MASKS(19), MASKS(20),
};

INLINE void take_cid(struct equic_cid *cid, const __u64 *from, __u32 len)
{
	__u64 *words = (__u64 *)cid;

	/* The compiler knows that len is small and would remove the mask, which verifiers before
	 * Linux 6.8 need. */
	OPAQUE(len);
	len &= 31;
	words[0] = from[0] & cid_masks[len][0];
	words[1] = from[1] & cid_masks[len][1];
	/* The bytes and the length are written in one store. Both are later loaded as one word,
	 * which would stall after two stores. */
	words[2] = (from[2] & cid_masks[len][2]) | (__u64)len << 32;
}

/* Reads a connection ID whose length byte is at offset `off` of the payload. An ID of more than 20
 * bytes is cut to 20. Returns the offset after the ID, or 0 if the payload is too short. */
INLINE __u32 read_cid(struct xdp_md *ctx, const struct quic *q, __u32 off, struct equic_cid *cid,
		      bool *too_long)
{
	__u8 *direct = at(ctx, q->off + off, 1 + 24);
	__u32 len, n;

	if (off + 1 > q->avail)
		return 0;
	if (direct) {
		len = *direct;
	} else {
		__u8 byte;

		if (bpf_xdp_load_bytes(ctx, q->off + off, &byte, 1))
			return 0;
		len = byte;
	}
	if (off + 1 + len > q->avail)
		return 0;
	n = len;
	if (len > EQUIC_CID_MAX) {
		*too_long = true;
		n = EQUIC_CID_MAX;
	}
	if (direct) {
		take_cid(cid, (const __u64 *)(direct + 1), n);
	} else {
		__builtin_memset(cid, 0, sizeof(*cid));
		cid->len = n;
		/* Verifiers before Linux 6.8 do not infer from `n != 0` that n is at least 1. They
		 * do infer that for `n + 1`. */
		n--;
		OPAQUE(n);
		if (n < EQUIC_CID_MAX &&
		    bpf_xdp_load_bytes(ctx, q->off + off + 1, cid->bytes, n + 1))
			return 0;
	}
	return off + 1 + len;
}

/* Reads a variable-length integer (RFC 9000 s.16). Returns the offset after it, or 0 if the payload
 * is too short. */
INLINE __u32 read_varint(struct xdp_md *ctx, const struct quic *q, __u32 off, __u64 *value)
{
	__u8 *direct = at(ctx, q->off + off, 8);
	__u64 word, copy = 0;
	__u32 n;

	if (off + 1 > q->avail)
		return 0;
	if (direct) {
		word = *(__u64 *)direct;
	} else {
		if (bpf_xdp_load_bytes(ctx, q->off + off, &copy, 1))
			return 0;
		word = copy;
	}
	n = (1u << (word >> 6 & 3)) - 1;
	OPAQUE(n);
	n = (n & 7) + 1;
	if (off + n > q->avail)
		return 0;
	if (!direct) {
		if (bpf_xdp_load_bytes(ctx, q->off + off, &copy, n))
			return 0;
		word = copy;
	}
	/* Removes the two bits that encode the length of the integer. */
	*value = bpf_be64_to_cpu(word) << 2 >> (66 - 8 * n);
	return off + n;
}

/* Returns the packet type of a long header: RFC 9000 s.17.2, table 5; RFC 9369 s.3.2. */
INLINE __u8 long_type(__u8 first_byte, __u32 version)
{
	__u8 bits = first_byte >> 4 & 3;

	return version == QUIC_V2 ? (bits - 1) & 3 : bits;
}

/* Parses and checks the part of a long header that is the same in all versions (RFC 8999 s.5.1).
 * Stores the offset after it in h->next. Returns a drop reason or REASON_NONE. */
INLINE __u32 parse_invariant(struct xdp_md *ctx, const struct quic *q, __u32 off,
			     struct long_header *h, struct equic_cid *dcid, struct equic_cid *scid)
{
	bool too_long = false;
	__u64 *direct = at(ctx, q->off + off, sizeof(*direct)), head = 0;

	if (off + 7 > q->avail)
		return EQUIC_REASON_TRUNCATED;
	if (direct)
		head = *direct;
	else if (bpf_xdp_load_bytes(ctx, q->off + off, &head, 5))
		return EQUIC_REASON_TRUNCATED;
	h->first_byte = head;
	h->version = bpf_ntohl((__be32)(head >> 8));
	h->known_version = h->version == QUIC_V1 || h->version == QUIC_V2;
	off = read_cid(ctx, q, off + 5, dcid, &too_long);
	if (!off)
		return EQUIC_REASON_TRUNCATED;
	h->has_dcid = true;
	off = read_cid(ctx, q, off, scid, &too_long);
	if (!off)
		return EQUIC_REASON_TRUNCATED;
	h->has_scid = true;
	h->next = off;
	if (!h->known_version)
		return REASON_NONE;
	h->type = long_type(h->first_byte, h->version);
	return too_long ? EQUIC_REASON_LONG_CID : REASON_NONE;
}

/* Parses the fields Token and Length of an Initial, 0-RTT or Handshake packet of version 1 or 2.
 * Returns a drop reason or REASON_NONE. */
INLINE __u32 parse_lengths(struct xdp_md *ctx, const struct quic *q, struct long_header *h)
{
	__u32 off = h->next;
	__u64 value;

	if (h->type == QUIC_INITIAL) {
		off = read_varint(ctx, q, off, &value);
		if (!off)
			return EQUIC_REASON_TRUNCATED;
		if (value > q->len || off + value > q->len)
			return EQUIC_REASON_BAD_LENGTH;
		h->token_off = off;
		h->token_len = value;
		off += value;
	}
	off = read_varint(ctx, q, off, &value);
	if (!off)
		return EQUIC_REASON_TRUNCATED;
	if (value > q->len || off + value > q->len)
		return EQUIC_REASON_BAD_LENGTH;
	h->length = value;
	h->next = off + value;
	return REASON_NONE;
}

/* Results of the loop over the packets of a datagram. They are stored in long_header.next, which
 * the loop no longer needs at its end. */
#define FOUND	  (~0u)
#define NO_CLIENT (~0u - 1)

struct coalesced {
	struct xdp_md *ctx;
	const struct quic *q;
	struct long_header h;
	struct equic_cid dcid;
	struct equic_cid scid;
};

/* Parses the next packet of the datagram. Returns 1 to end the loop. */
static long walk_coalesced(__u32 index, void *arg)
{
	struct coalesced *walk = arg;
	const struct quic *q = walk->q;
	struct xdp_md *ctx = walk->ctx;
	struct long_header *h = &walk->h;
	__u32 off = h->next, reason;
	__u8 byte;

	if (off + 1 > q->avail || bpf_xdp_load_bytes(ctx, q->off + off, &byte, 1))
		return 1;
	if (!(byte & QUIC_LONG))
		return 1;
	reason = parse_invariant(ctx, q, off, h, &walk->dcid, &walk->scid);
	if (reason == EQUIC_REASON_TRUNCATED)
		return 1;
	if (!h->known_version || index >= QUIC_COALESCED) {
		h->next = NO_CLIENT;
		return 1;
	}
	if (h->type == QUIC_RETRY || parse_lengths(ctx, q, h) != REASON_NONE)
		return 1;
	/* Continues with the next packet if this one is not a usable Initial. A receiver also
	 * discards a malformed or too short packet and continues. */
	if (h->type != QUIC_INITIAL || reason != REASON_NONE || h->length < QUIC_MIN_PROTECTED)
		return 0;
	h->next = FOUND;
	return 1;
}

/* Searches for an Initial after the first packet of a datagram (RFC 9000 s.12.2). The first packet
 * ends at `next`. If there is an Initial, the datagram is judged by that Initial. Returns a drop
 * reason or REASON_NONE. */
static __noinline __u32 look_behind(struct xdp_md *ctx, struct quic *q, __u32 next)
{
	struct coalesced walk = {.ctx = ctx, .q = q, .h = {.next = next}};

	bpf_loop(QUIC_COALESCED + 1, walk_coalesced, &walk, 0);
	if (walk.h.next == NO_CLIENT)
		return EQUIC_REASON_COALESCED;
	if (walk.h.next != FOUND)
		return REASON_NONE;
	q->version = walk.h.version;
	q->handshake = q->early = false;
	q->opening = true;
	q->dcid = walk.dcid;
	q->scid = walk.scid;
	q->token_off = walk.h.token_off;
	q->token_len = walk.h.token_len;
	return REASON_NONE;
}

/* Returns true if the service accepts the version of this header. `versions` is the service's enum
 * equic_versions. */
INLINE bool is_taken(const struct long_header *h, __u32 versions)
{
	if (h->version == QUIC_V1)
		return versions != EQUIC_VERSIONS_2;
	return h->known_version && versions != EQUIC_VERSIONS_1;
}

/* Parses a datagram that begins with a long header. Returns a drop reason, or REASON_NONE with
 * q->opening, the version and the IDs set. It is a global function so that the verifier checks it
 * once, for any payload, not for every caller's state. */
__noinline __u32 parse_long(struct xdp_md *ctx, struct quic *q, __u32 flags, __u32 versions)
{
	struct long_header h = {};
	__u32 reason;

	if (!q)
		return EQUIC_REASON_TRUNCATED;
	reason = parse_invariant(ctx, q, 0, &h, &q->dcid, &q->scid);
	q->version = h.version;
	q->has_dcid = h.has_dcid;
	q->has_scid = h.has_scid;
	q->token_len = 0;
	if (reason == EQUIC_REASON_TRUNCATED)
		return reason;
	if (!h.version)
		return flags & EQUIC_SERVICE_ALSO_CLIENT ? REASON_NONE
							 : EQUIC_REASON_VERSION_NEGOTIATION;
	if (!is_taken(&h, versions)) {
		if ((flags & EQUIC_SERVICE_REFUSE_UNKNOWN_VERSIONS) &&
		    !(flags & EQUIC_SERVICE_VERSION_NEGOTIATION))
			return EQUIC_REASON_UNKNOWN_VERSION;
		if (q->len < QUIC_MIN_DATAGRAM)
			return EQUIC_REASON_SMALL_VERSION;
		q->opening = true;
		return REASON_NONE;
	}
	if ((flags & EQUIC_SERVICE_REQUIRE_FIXED_BIT) && !(h.first_byte & QUIC_FIXED))
		return EQUIC_REASON_FIXED_BIT;
	if (reason != REASON_NONE)
		return reason;
	q->known_version = true;
	if (h.type == QUIC_RETRY)
		return flags & EQUIC_SERVICE_ALSO_CLIENT ? REASON_NONE : EQUIC_REASON_RETRY;
	if (h.type == QUIC_INITIAL && q->len < QUIC_MIN_DATAGRAM)
		return EQUIC_REASON_SMALL_INITIAL;
	reason = parse_lengths(ctx, q, &h);
	if (reason != REASON_NONE)
		return reason;
	if (h.length < QUIC_MIN_PROTECTED)
		return EQUIC_REASON_BAD_LENGTH;
	if (h.type != QUIC_INITIAL) {
		q->handshake = h.type == QUIC_HANDSHAKE;
		q->early = !q->handshake;
		return q->len < QUIC_MIN_DATAGRAM ? REASON_NONE : look_behind(ctx, q, h.next);
	}
	q->opening = true;
	q->token_off = h.token_off;
	q->token_len = h.token_len;
	return REASON_NONE;
}

#endif
