/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The table of connection attempts (handshakes in progress). It says which attempts were admitted,
 * and which packets belong to them (docs/policy.md s.2, step 16). */
#ifndef EQUIC_ATTEMPTS_H
#define EQUIC_ATTEMPTS_H

#include "classify.h"
#include "rates.h"

INLINE bool same_cid(const struct equic_cid *a, const struct equic_cid *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

INLINE void handshake_key(const struct packet *p, struct equic_handshake_key *key)
{
	equic_word *words = (equic_word *)key;

	words[0] = p->src[0];
	words[1] = p->src[1];
	words[2] = p->dst[0];
	words[3] = p->dst[1];
	key->scid = p->quic.scid;
	/* Ports, service and family are written in one store, because they are later loaded as one
	 * word.
	 */
	words[7] =
		p->sport | (__u64)p->dport << 16 | (__u64)p->service << 32 | (__u64)p->family << 48;
}

_Static_assert(offsetof(struct equic_handshake_key, port) == 56 &&
		       offsetof(struct equic_handshake_key, dport) == 58 &&
		       offsetof(struct equic_handshake_key, service) == 60 &&
		       offsetof(struct equic_handshake_key, family) == 62,
	       "the last word of a key");

static __noinline struct equic_handshake *find_attempt(const struct packet *p)
{
	struct equic_handshake_key key;

	handshake_key(p, &key);
	return bpf_map_lookup_elem(&handshakes, &key);
}

/* Returns the maximum number of datagrams with an Initial in the attempt. Without this limit, an
 * admitted client could repeat its Initial without end. */
INLINE __u32 packets_of(const struct packet *p, const struct equic_handshake *attempt,
			volatile struct equic_service *service)
{
	__u8 retry = service->retry;

	if (attempt->proved || p->exempt || retry == EQUIC_RETRY_NEVER)
		return EQUIC_HANDSHAKE_PACKETS;
	return retry == EQUIC_RETRY_ADAPTIVE ? EQUIC_HANDSHAKE_UNPROVED : 0;
}

/* Returns the index of the packet's connection ID in the attempt, or the index of the free slot for
 * this ID. An attempt has one slot for the ID that the server chose, or two after the server's own
 * Retry. Returns EQUIC_HANDSHAKE_CIDS if the packet does not belong to the attempt, or if the
 * attempt has expired. */
INLINE __u32 place_in(const struct packet *p, const struct equic_handshake *attempt,
		      volatile struct equic_service *service)
{
	__u32 room = p->quic.token_len && !attempt->proved ? EQUIC_HANDSHAKE_CIDS
							   : EQUIC_HANDSHAKE_CIDS - 1;
	__u32 known;

	if (SINCE(p->now, attempt->started_ns) > service->handshake_ns)
		return EQUIC_HANDSHAKE_CIDS;
	if (attempt->packets >= packets_of(p, attempt, service))
		return EQUIC_HANDSHAKE_CIDS;
	known = attempt->count;
	for (__u32 i = 0; i < EQUIC_HANDSHAKE_CIDS; i++) {
		if (i < known && same_cid(&attempt->dcid[i], &p->quic.dcid))
			return i;
	}
	return known < room ? known : EQUIC_HANDSHAKE_CIDS;
}

/* Returns true if the packet belongs to this attempt. Stores the packet's connection ID if it is
 * new. */
INLINE bool under_way(const struct packet *p, struct equic_handshake *attempt,
		      volatile struct equic_service *service)
{
	__u32 place = place_in(p, attempt, service);

	if (place >= EQUIC_HANDSHAKE_CIDS)
		return false;
	if (place >= attempt->count) {
		attempt->dcid[place] = p->quic.dcid;
		attempt->count = place + 1;
	}
	attempt->packets += p->datagrams;
	return true;
}

/* Returns true if the packet belongs to an attempt that may be in progress. */
INLINE bool of_attempt(const struct packet *p, volatile struct equic_service *service)
{
	struct equic_handshake *attempt = find_attempt(p);

	return attempt && place_in(p, attempt, service) < EQUIC_HANDSHAKE_CIDS;
}

/* Checks a 0-RTT packet. Its connection ID was chosen by the client, so it cannot be verified.
 * Returns EQUIC_REASON_FORGED_ID unless the client has an attempt in progress. */
static __noinline __u32 check_early(const struct packet *p, volatile struct equic_service *service)
{
	struct equic_handshake *attempt = find_attempt(p);

	if (!attempt || SINCE(p->now, attempt->started_ns) > service->handshake_ns)
		return EQUIC_REASON_FORGED_ID;
	if (!packets_of(p, attempt, service) || attempt->early >= EQUIC_HANDSHAKE_PACKETS)
		return EQUIC_REASON_FORGED_ID;
	attempt->early += p->datagrams;
	return REASON_NONE;
}

INLINE void begin(const struct packet *p, struct equic_handshake *attempt)
{
	attempt->started_ns = p->now;
	attempt->count = 1;
	attempt->packets = p->datagrams;
	attempt->early = 0;
	attempt->proved = p->proved;
	attempt->dcid[0] = p->quic.dcid;
}

/* Stores the packet's connection attempt as admitted. An older attempt with the same key is
 * overwritten in place. */
static __noinline void let_in(const struct packet *p, struct equic_handshake *older)
{
	struct equic_handshake_key key;
	struct equic_handshake attempt;

	if (older) {
		begin(p, older);
		return;
	}
	handshake_key(p, &key);
	__builtin_memset(&attempt, 0, sizeof(attempt));
	begin(p, &attempt);
	if (!bpf_map_update_elem(&handshakes, &key, &attempt, BPF_NOEXIST))
		tally(EQUIC_TALLY_HANDSHAKES_CREATED);
	else
		bpf_map_update_elem(&handshakes, &key, &attempt, BPF_ANY);
}

#endif
