/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Verifies that a server of the service issued the packet's Destination Connection ID
 * (docs/policy.md s.10). */
#ifndef EQUIC_IDS_H
#define EQUIC_IDS_H

#include "ledger.h"
#include "proof.h"
#include "quic.h"

#define ROTATION_OF(first_byte) ((first_byte) >> 5)

/* Reads the connection ID of a short header, whose length the packet does not contain. Returns
 * false if the payload is too short for an ID. */
INLINE bool read_short_id(struct xdp_md *ctx, struct quic *q)
{
	__u64 *words = (__u64 *)&q->dcid;
	__u8 *id;

	_Static_assert(EQUIC_ID_LEN == 12, "a word and a half");
	if (1 + EQUIC_ID_LEN > q->avail)
		return false;
	id = at(ctx, q->off + 1, EQUIC_ID_LEN);
	words[2] = (__u64)EQUIC_ID_LEN << 32;
	q->has_dcid = true;
	if (!id) {
		words[1] = 0;
		return !bpf_xdp_load_bytes(ctx, q->off + 1, q->dcid.bytes, EQUIC_ID_LEN);
	}
	words[0] = *(__u64 *)id;
	words[1] = *(__u32 *)(id + 8);
	return true;
}

/* Checks the connection ID of a packet whose ID must have been issued by a server. Returns
 * EQUIC_REASON_FORGED_ID if the ID is not valid. Returns REASON_NONE for a valid ID and for all
 * other packets. */
INLINE __u32 check_id(struct xdp_md *ctx, struct packet *p, const struct equic_source *source,
		      __u32 group)
{
	const struct equic_proof_id_format format = {EQUIC_ID_LEN, EQUIC_ID_SERVER};
	enum equic_proof proof;

	if (p->kind == EQUIC_REASON_ESTABLISHED) {
		if (!read_short_id(ctx, &p->quic))
			return EQUIC_REASON_FORGED_ID;
	} else if (p->kind != REASON_NONE || !p->quic.handshake) {
		return REASON_NONE;
	}
	proof = equic_proof_id_open(&ring, &format, &p->quic.dcid, NULL);
	if (proof == EQUIC_PROOF_OK)
		return REASON_NONE;
	/* For some time after the key ring was created, the ID may belong to a connection that is
	 * older than the ring. So a packet with an unknown rotation passes if its source holds a
	 * connection. */
	if (proof == EQUIC_PROOF_UNKNOWN_EPOCH && p->now < control.older_ids_until_ns &&
	    ROTATION_OF(p->quic.dcid.bytes[0]) < EQUIC_PROOF_EPOCHS &&
	    connections_of(source, group, p->now))
		return REASON_NONE;
	return EQUIC_REASON_FORGED_ID;
}

#endif
