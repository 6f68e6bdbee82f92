/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Version Negotiation packets (docs/policy.md s.9). Versions that this program does not know may
 * have connection IDs of up to 255 bytes (RFC 8999 s.5.1). The answer repeats both IDs completely.
 */
#ifndef EQUIC_NEGOTIATE_H
#define EQUIC_NEGOTIATE_H

#include "answer.h"

/* Length of the first byte and the version, which precede the length of the first ID. */
#define NEGOTIATION_IDS	 5
#define RESERVED_PATTERN 0x0a0a0a0a /* RFC 9000 s.15 */
#define RESERVED_FREE	 0xf0f0f0f0

/* Copies a connection ID and its length byte from offset `off` of the packet to offset `to` of the
 * answer. Returns the length of the ID, or a negative number on failure. */
static __noinline int copy_id(struct xdp_md *ctx, struct answer *a, __u32 off, __u32 to)
{
	__u32 len;
	__u8 byte;

	if (!a || bpf_xdp_load_bytes(ctx, off, &byte, 1))
		return -1;
	/* Verifiers before Linux 6.8 do not infer from `len != 0` that len is at least 1. So the
	 * length byte is copied together with the ID, which makes the number of bytes at least 1.
	 */
	len = byte;
	OPAQUE(len);
	len = (len & 255) + 1;
	OPAQUE(to);
	to &= 511;
	return bpf_xdp_load_bytes(ctx, off, a->bytes + to, len) ? -1 : (int)(len - 1);
}

/* Appends a version in network order. Returns the offset after it. */
INLINE __u32 put_version(struct answer *a, __u32 off, __u32 version)
{
	OPAQUE(off);
	off &= ANSWER_LONGEST - 1;
	*(__be32 *)(a->bytes + off) = bpf_htonl(version);
	return off + sizeof(version);
}

/* Returns a reserved version that differs from the version of the packet. A client discards a
 * Version Negotiation packet that lists the client's own version (RFC 9000 s.6.2). */
INLINE __u32 reserved_version(const struct packet *p)
{
	__u32 version = bpf_ntohl(*(const __be32 *)p->quic.dcid.bytes);

	version = (version & RESERVED_FREE) | RESERVED_PATTERN;
	return version == p->quic.version ? version ^ RESERVED_FREE : version;
}

/* Builds a Version Negotiation packet (RFC 9000 s.17.2.1) that lists the versions which the service
 * accepts. Returns false if the packet that is answered cannot be read. */
static __noinline bool make_negotiation(struct xdp_md *ctx, const struct packet *p, __u32 versions)
{
	struct answer *a = this_answer();
	__u32 ids = p->quic.off + NEGOTIATION_IDS, off = ANSWER_QUIC + NEGOTIATION_IDS;
	int dcid_len, scid_len;
	__u8 byte;

	if (!a || bpf_xdp_load_bytes(ctx, ids, &byte, 1))
		return false;
	/* The answer has the two connection IDs in the opposite order. */
	scid_len = copy_id(ctx, a, ids + 1 + byte, off);
	if (scid_len < 0)
		return false;
	off += 1 + scid_len;
	dcid_len = copy_id(ctx, a, ids, off);
	if (dcid_len < 0)
		return false;
	off += 1 + dcid_len;
	a->bytes[ANSWER_QUIC] = QUIC_LONG | QUIC_FIXED;
	*(__be32 *)(a->bytes + ANSWER_QUIC + 1) = 0;
	if (versions != EQUIC_VERSIONS_2)
		off = put_version(a, off, QUIC_V1);
	if (versions != EQUIC_VERSIONS_1)
		off = put_version(a, off, QUIC_V2);
	off = put_version(a, off, reserved_version(p));
	/* The checksum is computed over whole words, so the bytes after the answer must be zero. */
	put_version(a, off, 0);
	put_headers(p, a, off - ANSWER_QUIC);
	return true;
}

#endif
