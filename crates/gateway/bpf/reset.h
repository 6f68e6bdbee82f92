/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Stateless resets in the name of dead servers (docs/policy.md s.14, RFC 9000 s.10.3). With such an
 * answer, a client learns at its next packet that its connection is gone. Otherwise it would wait
 * for its idle timeout. */
#ifndef EQUIC_RESET_H
#define EQUIC_RESET_H

#include "answer.h"
#include "ids.h"

#define RESET_TOKEN_LEN 16
/* Minimum length of a stateless reset in bytes (RFC 9000 s.10.3): 5 bytes, of which 38 bits are
 * unpredictable, and the token. */
#define RESET_SHORTEST 21
/* Maximum length of a stateless reset in bytes. eQUIC's own server has the same maximum. */
#define RESET_LONGEST 64
/* Length of the part of a received packet from which a reset is built: the first byte, the
 * connection ID, and the word after it. That word is an input for the reset's unpredictable bytes.
 */
#define RESET_QUESTION (1 + EQUIC_ID_LEN + 8)
/* Labels of hash inputs. "bytes 0" is for the length of a reset, and "bytes 1" to "bytes 6" are for
 * the words of its unpredictable bytes. */
#define RESET_BYTES_0	  0x0030207365747962ull
#define RESET_BYTES_LABEL (1ull << 48)
#define RESET_WORDS	  6
/* Each of the EQUIC_RESET_SHARES buckets has the rate answers_per_service divided by this number.
 */
#define RESET_SHARE_PART 8

_Static_assert(RESET_SHORTEST >= RESET_QUESTION, "what is answered has the word");
_Static_assert(RESET_LONGEST - RESET_TOKEN_LEN <= 8 * RESET_WORDS, "enough unpredictable bytes");
_Static_assert(sizeof(((struct equic_service *)0)->name) == 8 * EQUIC_PROOF_NAME_WORDS,
	       "a name is hashed as it stands");
_Static_assert(offsetof(struct equic_service, name) % 8 == 0, "a name is read in words");

/* Returns true if the server in the slot that a connection ID names served the quota group and is
 * known to be dead. A server that is only stopped keeps its slot. */
INLINE bool server_is_dead(__u32 group, __u64 server_id)
{
	__u32 place = (__u8)server_id;

	if (place >= EQUIC_MAX_OWNERS)
		return false;
	place &= EQUIC_MAX_OWNERS - 1;
	/* A server that takes the slot first sets its bit in owner_mask. */
	return control.dead[place] >> (group & 63) & 1 && !(control.owner_mask >> place & 1);
}

/* Hashes the packet and the time with the key of the packet's connection ID. Returns one word of
 * the output, selected by `label`. */
static __noinline __u64 reset_word(const struct packet *p, __u64 label, __u64 more)
{
	const struct equic_proof_ring *keys = &ring;
	const __u64 *words = (const __u64 *)&p->quic.dcid;
	struct equic_sip s;

	if (!equic_proof_key(keys, ROTATION_OF(p->quic.dcid.bytes[0]), &s))
		return 0;
	equic_sip_word(&s, label);
	equic_sip_word(&s, words[0]);
	equic_sip_word(&s, words[1]);
	equic_sip_word(&s, words[2]);
	equic_sip_word(&s, more);
	equic_sip_word(&s, p->exact);
	return equic_sip_finish(&s, 48);
}

static __noinline __u64 token_word(const struct packet *p, __u64 label)
{
	volatile __u64 *name =
		(volatile __u64 *)services[p->service & (EQUIC_MAX_SERVICES - 1)].name;
	__u64 service[EQUIC_PROOF_NAME_WORDS] = {name[0], name[1], name[2], name[3]};

	return equic_proof_of_id(&ring, label, &p->quic.dcid, service);
}

/* Builds a stateless reset. `len` is the length of the packet that is answered, which is longer
 * than the shortest reset. Returns false if the packet cannot be read. */
static __noinline bool make_reset(struct xdp_md *ctx, struct packet *p, __u32 len)
{
	struct answer *a = this_answer();
	__u64 more, *words, *token, lengths;

	if (!a || bpf_xdp_load_bytes(ctx, p->quic.off + 1 + EQUIC_ID_LEN, &more, sizeof(more)))
		return false;
	/* Uses the exact time, because two answers within one tick would otherwise be the same. */
	exact_now(p);
	lengths = (len > RESET_LONGEST ? RESET_LONGEST : len - 1) - RESET_SHORTEST + 1;
	len = RESET_SHORTEST + (__u32)((reset_word(p, RESET_BYTES_0, more) >> 32) * lengths >> 32);
	words = (__u64 *)(a->bytes + ANSWER_QUIC);
	for (int i = 0; i < RESET_WORDS; i++)
		words[i] = reset_word(p, RESET_BYTES_0 + (i + 1) * RESET_BYTES_LABEL, more);
	a->bytes[ANSWER_QUIC] = (a->bytes[ANSWER_QUIC] & ~(QUIC_LONG | QUIC_FIXED)) | QUIC_FIXED;
	token = (__u64 *)into(a, FROM_QUIC(len - RESET_TOKEN_LEN));
	token[0] = token_word(p, EQUIC_PROOF_RESET_1);
	token[1] = token_word(p, EQUIC_PROOF_RESET_2);
	/* The checksum is computed over whole words, so the bytes after the answer must be zero. */
	token[2] = 0;
	put_headers(p, a, len);
	return true;
}

/* Charges a reset to the bucket that its receiver shares with some other sources. So one source
 * cannot use up the resets of all others. Returns false if the bucket refuses. */
INLINE bool within_share(volatile struct equic_rate *rate, __u32 index, struct packet *p)
{
	__u64 cost = rate->cost_ns, burst = rate->burst_ns, hash, *tat;
	struct equic_source source;
	equic_word *words = (equic_word *)&source;

	if (!cost)
		return true;
	source_of(p, &source);
	hash = mix(mix(load.seed ^ words[0]) ^ words[1]);
	tat = &rates.reset_shares_tat[index & (EQUIC_MAX_SERVICES - 1)]
				     [hash & (EQUIC_RESET_SHARES - 1)];
	cost = cost_of(RESET_SHARE_PART, cost);
	if (cost > burst)
		cost = burst;
	return charge_at_tick(tat, cost, burst, p->now) ||
	       charge_again(tat, cost, burst, exact_now(p));
}

/* Judges a short header packet that seems to belong to an established connection. Builds a
 * stateless reset if the server that issued the packet's connection ID is dead and the packet can
 * be answered. Otherwise it returns EQUIC_REASON_ESTABLISHED. It is a global function so that the
 * verifier checks it once, not for every caller's state. */
__noinline __u32 reset_for_the_dead(struct xdp_md *ctx, struct packet *p)
{
	const struct equic_proof_id_format format = {EQUIC_ID_LEN, EQUIC_ID_SERVER};
	volatile struct equic_service *service;
	__u64 server_id;
	__u32 index;

	if (!p)
		return EQUIC_REASON_ESTABLISHED;
	index = p->service & (EQUIC_MAX_SERVICES - 1);
	service = &services[index];
	if (p->quic.len <= RESET_SHORTEST || !(control.gone >> (service->group & 63) & 1) ||
	    !read_short_id(ctx, &p->quic) ||
	    equic_proof_id_open(&ring, &format, &p->quic.dcid, &server_id) != EQUIC_PROOF_OK ||
	    !server_is_dead(service->group, server_id) || !can_answer(ctx, p))
		return EQUIC_REASON_ESTABLISHED;
	if (!within_share(&service->answers_per_service, index, p) ||
	    !rate_allows(&service->answers_per_service, &rates.resets_tat[index], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_reset(ctx, p, p->quic.len) ? EQUIC_REASON_RESET_SENT : EQUIC_REASON_ESTABLISHED;
}

#endif
