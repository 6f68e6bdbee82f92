/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Stateless resets for servers that are dead (docs/policy.md s.14, RFC 9000 s.10.3): a client whose
 * connection is gone learns it with its next packet, and not by its idle timeout.
 */
#ifndef EQUIC_RESET_H
#define EQUIC_RESET_H

#include "answer.h"
#include "ids.h"

#define RESET_TOKEN_LEN 16
/* RFC 9000 s.10.3: 5 unpredictable bytes and the token. */
#define RESET_SHORTEST 21
#define RESET_LONGEST  43
/* First byte, ID and a word behind it, of which the unpredictable bytes are made. */
#define RESET_QUESTION (1 + EQUIC_ID_LEN + 8)
/* Before what is hashed for each word of the unpredictable bytes: "bytes 1" to "bytes 4". */
#define RESET_BYTES_1	  0x0031207365747962ull
#define RESET_BYTES_LABEL (1ull << 48)
#define RESET_WORDS	  4

_Static_assert(RESET_SHORTEST >= RESET_QUESTION, "what is answered has the word");
_Static_assert(RESET_LONGEST - RESET_TOKEN_LEN <= 8 * RESET_WORDS, "enough unpredictable bytes");

/* Has every server gone that could hold a connection of the quota group? A server that is silent,
 * because it was stopped, still has its place. */
static __noinline bool servers_are_gone(__u32 group)
{
	__u32 owners = control.owner_mask;

	group &= 63;
	if (!(control.gone >> group & 1))
		return false;
	for (__u32 i = 0; i < EQUIC_MAX_OWNERS; i++) {
		if (owners >> i & 1 && !(control.members[i].barred >> group & 1))
			return false;
	}
	return true;
}

/* One word of the unpredictable bytes: of the packet, under the key of its ID. */
static __noinline __u64 reset_word(const struct equic_cid *id, __u64 label, __u64 more)
{
	const struct equic_proof_ring *keys = &ring;
	const __u64 *words = (const __u64 *)id;
	struct equic_sip s;

	if (!equic_proof_key(keys, ROTATION_OF(id->bytes[0]), &s))
		return 0;
	equic_sip_word(&s, label);
	equic_sip_word(&s, words[0]);
	equic_sip_word(&s, words[1]);
	equic_sip_word(&s, words[2]);
	equic_sip_word(&s, more);
	return equic_sip_finish(&s, 40);
}

static __noinline __u64 token_word(const struct equic_cid *id, __u64 label)
{
	return equic_proof_of_id(&ring, label, id);
}

/* Puts the reset together. `len` is that of the packet that is answered. */
static __noinline bool make_reset(struct xdp_md *ctx, const struct packet *p, __u32 len)
{
	struct answer *a = this_answer();
	__u64 more, *words, *token;

	if (!a || bpf_xdp_load_bytes(ctx, p->quic.off + 1 + EQUIC_ID_LEN, &more, sizeof(more)))
		return false;
	len = len > RESET_LONGEST ? RESET_LONGEST : len - 1;
	words = (__u64 *)(a->bytes + ANSWER_QUIC);
	for (int i = 0; i < RESET_WORDS; i++)
		words[i] = reset_word(&p->quic.dcid, RESET_BYTES_1 + i * RESET_BYTES_LABEL, more);
	a->bytes[ANSWER_QUIC] = (a->bytes[ANSWER_QUIC] & ~(QUIC_LONG | QUIC_FIXED)) | QUIC_FIXED;
	token = (__u64 *)into(a, FROM_QUIC(len - RESET_TOKEN_LEN));
	token[0] = token_word(&p->quic.dcid, EQUIC_PROOF_RESET_1);
	token[1] = token_word(&p->quic.dcid, EQUIC_PROOF_RESET_2);
	/* For the checksum, which is over whole words. */
	token[2] = 0;
	put_headers(p, a, len);
	return true;
}

/* A short header packet, of an established connection by its form: EQUIC_REASON_ESTABLISHED, unless
 * its server is dead, and it can be answered. A global function: the verifier reads it once, and
 * not once for each way that leads here. */
__noinline __u32 reset_for_the_dead(struct xdp_md *ctx, struct packet *p)
{
	const struct equic_proof_id_format format = {EQUIC_ID_LEN, EQUIC_ID_SERVER};
	volatile struct equic_service *service;
	__u32 index;

	if (!p)
		return EQUIC_REASON_ESTABLISHED;
	index = p->service & (EQUIC_MAX_SERVICES - 1);
	service = &services[index];
	if (p->quic.len <= RESET_SHORTEST || p->first_fragment || to_many(p) ||
	    !servers_are_gone(service->group) || !read_short_id(ctx, &p->quic) ||
	    equic_proof_id_open(&ring, &format, &p->quic.dcid, NULL) != EQUIC_PROOF_OK)
		return EQUIC_REASON_ESTABLISHED;
	if (!within(&service->answers_per_service, &rates.resets_tat[index], 1, p))
		return EQUIC_REASON_RATE_ANSWERS;
	return make_reset(ctx, p, p->quic.len) ? EQUIC_REASON_RESET_SENT : EQUIC_REASON_ESTABLISHED;
}

#endif
