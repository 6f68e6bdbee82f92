/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Makes and checks Retry tokens and verifiable connection IDs in the formats of docs/retry.md. The
 * Rust crate equic-token does the same, and a test compares the two.
 *
 * The XDP program includes this file, and any C compiler can compile it. It uses no helpers, no
 * maps, no memory except the caller's, and no loops whose length depends on a packet. It works on
 * words in registers, because Linux 6.1 leaves the program few bytes of stack. */
#ifndef EQUIC_PROOF_H
#define EQUIC_PROOF_H

#include "abi.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "messages are put together from words as little-endian machines load them"
#endif

/* A word of eight bytes, for reading and writing structures of bytes. */
typedef __u64 __attribute__((may_alias)) equic_word;

#define EQUIC_PROOF_INLINE static inline __attribute__((always_inline))

/* Hides how a value was computed from the compiler. The verifier tracks bounds by register. Without
 * this, the compiler may check one register and use another. */
#define EQUIC_PROOF_OPAQUE(x) __asm__ volatile("" : "+r"(x))

#define EQUIC_PROOF_EPOCHS     7u /* epochs 0 to 6; QUIC-LB reserves 7 for IDs without a server ID */
#define EQUIC_PROOF_FORMAT     0x10u
#define EQUIC_PROOF_TOKEN_LEN  80u
#define EQUIC_PROOF_CID_MIN    8u /* RFC 9000 s.7.2 */
#define EQUIC_PROOF_CHECK_LEN  4u
#define EQUIC_PROOF_NONCE_MIN  3u
#define EQUIC_PROOF_SERVER_MAX 8u
#define EQUIC_PROOF_SKEW_MS    2000u /* maximum difference between the clocks of two machines */
#define EQUIC_PROOF_TIME_BITS  48u

/* A key ring as user space writes it (docs/retry.md s.2). The value of the map has exactly these
 * bytes. */
struct equic_proof_ring {
	__u8 magic[4]; /* "EQKR" */
	__u8 version;  /* 1 */
	__u8 clock;    /* 0: CLOCK_MONOTONIC, 1: Unix time */
	__u8 current;  /* epoch of the key for new tokens and IDs */
	__u8 known;    /* bit i: the ring has key[i] */
	__u32 lifetime_ms;
	__u32 reserved;
	__u64 key[EQUIC_PROOF_EPOCHS][2];
};
_Static_assert(sizeof(struct equic_proof_ring) == 128, "equic_proof_ring");

/* A Retry token in its form on the wire. */
struct equic_proof_token {
	__u64 words[EQUIC_PROOF_TOKEN_LEN / 8];
};
_Static_assert(sizeof(struct equic_proof_token) == EQUIC_PROOF_TOKEN_LEN, "equic_proof_token");

/* The source of a datagram, in the same form as in struct packet. */
struct equic_proof_client {
	__u64 addr[2]; /* 16 bytes as two words; IPv4 as ::ffff:a.b.c.d */
	__u16 port;    /* network order */
	__u8 family;   /* 4 or 6 */
};

/* Result of checking a token or a connection ID. The order is the same as in
 * equic_token::TokenError. */
enum equic_proof {
	EQUIC_PROOF_OK,
	EQUIC_PROOF_NEW_TOKEN, /* first bit 1: from a NEW_TOKEN frame; the server must check it */
	EQUIC_PROOF_MALFORMED, /* not in this format: wrong length, or a field out of range */
	EQUIC_PROOF_UNKNOWN_EPOCH, /* unknown key: it was retired, or belongs to another ring */
	EQUIC_PROOF_FORGED,	   /* not made by this ring for this client and connection ID */
	EQUIC_PROOF_EXPIRED,
	EQUIC_PROOF_EARLY, /* made in the future: a clock went back */
};

/* ---- SipHash-2-4 (Aumasson and Bernstein, 2012), 64 bits of output ---- */

struct equic_sip {
	__u64 v0, v1, v2, v3;
};

#define EQUIC_SIP_ROTL(x, b) ((x) << (b) | (x) >> (64 - (b)))

EQUIC_PROOF_INLINE void equic_sip_round(struct equic_sip *s)
{
	s->v0 += s->v1;
	s->v1 = EQUIC_SIP_ROTL(s->v1, 13) ^ s->v0;
	s->v0 = EQUIC_SIP_ROTL(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = EQUIC_SIP_ROTL(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = EQUIC_SIP_ROTL(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = EQUIC_SIP_ROTL(s->v1, 17) ^ s->v2;
	s->v2 = EQUIC_SIP_ROTL(s->v2, 32);
}

EQUIC_PROOF_INLINE void equic_sip_start(struct equic_sip *s, __u64 k0, __u64 k1)
{
	s->v0 = k0 ^ 0x736f6d6570736575ull;
	s->v1 = k1 ^ 0x646f72616e646f6dull;
	s->v2 = k0 ^ 0x6c7967656e657261ull;
	s->v3 = k1 ^ 0x7465646279746573ull;
}

EQUIC_PROOF_INLINE void equic_sip_word(struct equic_sip *s, __u64 word)
{
	s->v3 ^= word;
	equic_sip_round(s);
	equic_sip_round(s);
	s->v0 ^= word;
}

/* Hashes the last block and returns the hash. The highest byte of `last` is the length of the
 * message. The other bytes are the rest of the message, up to seven bytes. */
EQUIC_PROOF_INLINE __u64 equic_sip_end(struct equic_sip *s, __u64 last)
{
	equic_sip_word(s, last);
	s->v2 ^= 0xff;
	equic_sip_round(s);
	equic_sip_round(s);
	equic_sip_round(s);
	equic_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/* Returns the hash of a message whose length is a multiple of eight bytes. `length` is that length
 * in bytes. */
EQUIC_PROOF_INLINE __u64 equic_sip_finish(struct equic_sip *s, __u64 length)
{
	return equic_sip_end(s, length << 56);
}

/* Starts a hash with the key of an epoch. Returns 0 if the ring has no key for that epoch. */
EQUIC_PROOF_INLINE int equic_proof_key(const struct equic_proof_ring *ring, __u32 epoch,
				       struct equic_sip *s)
{
	EQUIC_PROOF_OPAQUE(epoch);
	if (epoch >= EQUIC_PROOF_EPOCHS || !(ring->known >> epoch & 1))
		return 0;
	equic_sip_start(s, ring->key[epoch][0], ring->key[epoch][1]);
	return 1;
}

/* ---- Retry tokens ---- */

/* Computes the tag of a token over all words before the tag. */
EQUIC_PROOF_INLINE __u64 equic_proof_tag(struct equic_sip *s, const struct equic_proof_token *token)
{
	equic_sip_word(s, token->words[0]);
	equic_sip_word(s, token->words[1]);
	equic_sip_word(s, token->words[2]);
	equic_sip_word(s, token->words[3]);
	equic_sip_word(s, token->words[4]);
	equic_sip_word(s, token->words[5]);
	equic_sip_word(s, token->words[6]);
	equic_sip_word(s, token->words[7]);
	equic_sip_word(s, token->words[8]);
	return equic_sip_finish(s, 72);
}

/* Returns the client's port and family: the upper half of word 3 of a token. */
EQUIC_PROOF_INLINE __u64 equic_proof_from(const struct equic_proof_client *client)
{
	return (__u64)client->family << 32 | (__u64)client->port << 48;
}

/* Makes the token of a Retry packet at time `now_ms` of the ring's clock. `original` is the
 * Destination Connection ID of the packet that is answered. `retry` is the Source Connection ID of
 * the answer. Both have 8 to 20 bytes, and zeros after them.
 *
 * Returns EQUIC_PROOF_OK. Returns EQUIC_PROOF_MALFORMED for other lengths or equal IDs (RFC 9000
 * s.17.2.5.1), and EQUIC_PROOF_UNKNOWN_EPOCH if the ring has no current key. */
EQUIC_PROOF_INLINE enum equic_proof
equic_proof_seal(const struct equic_proof_ring *ring, __u64 now_ms,
		 const struct equic_proof_client *client, const struct equic_cid *original,
		 const struct equic_cid *retry, struct equic_proof_token *token)
{
	const equic_word *id = (const equic_word *)original, *other = (const equic_word *)retry;
	struct equic_sip s;
	__u32 epoch = ring->current;
	__u64 time;

	if (original->len < EQUIC_PROOF_CID_MIN || original->len > EQUIC_CID_MAX ||
	    retry->len < EQUIC_PROOF_CID_MIN || retry->len > EQUIC_CID_MAX)
		return EQUIC_PROOF_MALFORMED;
	if (!((id[0] ^ other[0]) | (id[1] ^ other[1]) | (__u32)(id[2] ^ other[2]) |
	      (original->len ^ retry->len)))
		return EQUIC_PROOF_MALFORMED;
	if (!equic_proof_key(ring, epoch, &s))
		return EQUIC_PROOF_UNKNOWN_EPOCH;
	/* The time is big endian in the token, so its first byte is the lowest byte of the word. */
	time = __builtin_bswap64(now_ms << (64 - EQUIC_PROOF_TIME_BITS));
	token->words[0] = original->len | id[0] << 8;
	token->words[1] = id[0] >> 56 | id[1] << 8;
	token->words[2] = id[1] >> 56 | (__u64)(__u32)id[2] << 8 |
			  (__u64)(EQUIC_PROOF_FORMAT | epoch) << 40 | time << 48;
	token->words[3] = (__u32)(time >> 16) | equic_proof_from(client);
	token->words[4] = client->addr[0];
	token->words[5] = client->addr[1];
	token->words[6] = other[0];
	token->words[7] = other[1];
	token->words[8] = (__u32)other[2] | (__u64)retry->len << 32;
	token->words[9] = equic_proof_tag(&s, token);
	return EQUIC_PROOF_OK;
}

/* Checks a token of 80 bytes that came from `client` in a packet to the connection ID `dcid`, which
 * has zeros after its length. With EQUIC_PROOF_OK, it sets `original` (unless that is NULL) to the
 * Destination Connection ID of the client's first packet.
 *
 * The caller checks the length. A token of another length is EQUIC_PROOF_MALFORMED, or
 * EQUIC_PROOF_NEW_TOKEN if its first bit is 1. */
EQUIC_PROOF_INLINE enum equic_proof
equic_proof_open(const struct equic_proof_ring *ring, __u64 now_ms,
		 const struct equic_proof_client *client, const struct equic_cid *dcid,
		 const struct equic_proof_token *token, struct equic_cid *original)
{
	const equic_word *id = (const equic_word *)dcid;
	__u64 first = token->words[0], third = token->words[2], time;
	__u32 kind = third >> 40 & 0xff;
	struct equic_sip s;

	if (first & 0x80)
		return EQUIC_PROOF_NEW_TOKEN;
	if ((first & 0x7f) < EQUIC_PROOF_CID_MIN || (first & 0x7f) > EQUIC_CID_MAX ||
	    (kind & 0xf8) != EQUIC_PROOF_FORMAT)
		return EQUIC_PROOF_MALFORMED;
	if (!equic_proof_key(ring, kind & 7, &s))
		return EQUIC_PROOF_UNKNOWN_EPOCH;
	/* A token for another client or another packet can be rejected without computing a hash. */
	if (((token->words[3] ^ equic_proof_from(client)) >> 32) |
	    (token->words[4] ^ client->addr[0]) | (token->words[5] ^ client->addr[1]) |
	    (token->words[6] ^ id[0]) | (token->words[7] ^ id[1]) |
	    (token->words[8] ^ ((__u32)id[2] | (__u64)dcid->len << 32)))
		return EQUIC_PROOF_FORGED;
	/* Compares the whole tag at once, so that the time does not reveal how many bytes were
	 * right. */
	if (equic_proof_tag(&s, token) != token->words[9])
		return EQUIC_PROOF_FORGED;
	time = third >> 48 | (__u64)(__u32)token->words[3] << 16;
	time = __builtin_bswap64(time) >> (64 - EQUIC_PROOF_TIME_BITS);
	if (time > now_ms && time - now_ms > EQUIC_PROOF_SKEW_MS)
		return EQUIC_PROOF_EARLY;
	if (now_ms > time && now_ms - time > ring->lifetime_ms)
		return EQUIC_PROOF_EXPIRED;
	if (original) {
		equic_word *words = (equic_word *)original;

		words[0] = first >> 8 | token->words[1] << 56;
		words[1] = token->words[1] >> 8 | third << 56;
		words[2] = (__u32)(third >> 8) | (first & 0x7f) << 32;
	}
	return EQUIC_PROOF_OK;
}

/* ---- Connection IDs ---- */

/* Length of a service's connection IDs, and of the server ID that follows their first byte. */
struct equic_proof_id_format {
	__u8 len;	/* length of an ID: 8 to 20 */
	__u8 server_id; /* length of the server ID: 0 to 8; the nonce needs 3 more bytes */
};

/* Stores the first `bytes` bytes (4 to 16) of a connection ID, which precede its check value, in
 * two words. */
EQUIC_PROOF_INLINE void equic_proof_prefix(const struct equic_cid *id, __u32 bytes, __u64 *low,
					   __u64 *high)
{
	const equic_word *words = (const equic_word *)id;

	*low = words[0];
	*high = words[1];
	if (bytes < 8) {
		*low &= (1ull << (8 * (bytes & 7))) - 1;
		*high = 0;
	} else if (bytes < 16) {
		*high &= (1ull << (8 * (bytes & 7))) - 1;
	}
}

/* Returns the 4-byte check value that follows the first `bytes` bytes (4 to 16) of a connection ID.
 */
EQUIC_PROOF_INLINE __u32 equic_proof_check_at(const struct equic_cid *id, __u32 bytes)
{
	const equic_word *words = (const equic_word *)id;
	__u32 shift = 8 * (bytes & 7);
	__u64 low = words[0], high = words[1];

	if (bytes >= 16)
		return (__u32)words[2];
	if (bytes >= 8) {
		low = words[1];
		high = words[2];
	}
	if (shift <= 32)
		return (__u32)(low >> shift);
	return (__u32)(low >> shift | high << (64 - shift));
}

/* Computes the check value of a connection ID: a hash of the 3 to 15 bytes between the first byte
 * and the check value. The first byte selects the key and the length, so the hash depends on it
 * anyway. For IDs of up to 12 bytes, these bytes fit into the hash's last block, next to the
 * length. That makes six rounds. */
EQUIC_PROOF_INLINE __u32 equic_proof_check(struct equic_sip *s, __u64 low, __u64 high, __u32 bytes)
{
	__u64 hashed = bytes - 1, word = low >> 8 | high << 56;

	if (bytes > 8) {
		equic_sip_word(s, word);
		word = high >> 8;
	}
	return (__u32)equic_sip_end(s, word | hashed << 56);
}

EQUIC_PROOF_INLINE int equic_proof_id_format_holds(const struct equic_proof_id_format *format)
{
	return format->len >= EQUIC_PROOF_CID_MIN && format->len <= EQUIC_CID_MAX &&
	       format->server_id <= EQUIC_PROOF_SERVER_MAX &&
	       1 + format->server_id + EQUIC_PROOF_NONCE_MIN + EQUIC_PROOF_CHECK_LEN <= format->len;
}

/* Checks a connection ID in a service's format. It must have zeros after its length. A short header
 * does not contain the length, so the caller takes format->len bytes from the packet. If `server`
 * is not NULL, it gets the server ID, with the first byte in the lowest bits.
 *
 * Returns EQUIC_PROOF_OK, EQUIC_PROOF_MALFORMED, EQUIC_PROOF_UNKNOWN_EPOCH (the ID is from before a
 * restart, or older than the keys of the ring) or EQUIC_PROOF_FORGED. */
EQUIC_PROOF_INLINE enum equic_proof equic_proof_id_open(const struct equic_proof_ring *ring,
							const struct equic_proof_id_format *format,
							const struct equic_cid *id, __u64 *server)
{
	__u32 first = id->bytes[0], bytes = format->len;
	struct equic_sip s;
	__u64 low, high;

	if (!equic_proof_id_format_holds(format) || id->len != format->len ||
	    (first & 0x1f) + 1 != format->len)
		return EQUIC_PROOF_MALFORMED;
	/* The verifier assumes that a byte from a map can have any value, even after the checks
	 * above. */
	if (!__builtin_constant_p(format->len))
		EQUIC_PROOF_OPAQUE(bytes);
	bytes = (bytes - EQUIC_PROOF_CHECK_LEN) & 31;
	if (!equic_proof_key(ring, first >> 5, &s))
		return EQUIC_PROOF_UNKNOWN_EPOCH;
	equic_proof_prefix(id, bytes, &low, &high);
	if (equic_proof_check(&s, low, high, bytes) != equic_proof_check_at(id, bytes))
		return EQUIC_PROOF_FORGED;
	if (server) {
		__u32 shift = 8 * (format->server_id & 15);

		/* The server ID follows the first byte: seven bytes in the first word, the eighth
		 * in the second.
		 */
		*server = low >> 8 | high << 56;
		if (shift < 64)
			*server &= (1ull << shift) - 1;
	}
	return EQUIC_PROOF_OK;
}

/* Prefixes of the hash inputs for the two halves of a stateless reset token: "reset 1" and "reset
 * 2". */
#define EQUIC_PROOF_RESET_1 0x0031207465736572ull
#define EQUIC_PROOF_RESET_2 0x0032207465736572ull

/* Number of words in a service's name when it is hashed: at most 31 bytes, padded with zeros. */
#define EQUIC_PROOF_NAME_WORDS 4

/* Hashes a label, a connection ID and the name of a service with the key of the ID's epoch. Returns
 * 0 if the ring has no key for that epoch. */
EQUIC_PROOF_INLINE __u64 equic_proof_of_id(const struct equic_proof_ring *ring, __u64 label,
					   const struct equic_cid *id,
					   const __u64 service[EQUIC_PROOF_NAME_WORDS])
{
	const equic_word *words = (const equic_word *)id;
	struct equic_sip s;

	if (!equic_proof_key(ring, id->bytes[0] >> 5, &s))
		return 0;
	equic_sip_word(&s, label);
	equic_sip_word(&s, words[0]);
	equic_sip_word(&s, words[1]);
	equic_sip_word(&s, words[2]);
	equic_sip_word(&s, service[0]);
	equic_sip_word(&s, service[1]);
	equic_sip_word(&s, service[2]);
	equic_sip_word(&s, service[3]);
	return equic_sip_finish(&s, 64);
}

/* Makes the stateless reset token (RFC 9000 s.10.3.2) for a connection to a service, see
 * docs/retry.md s.5. equic_proof_id_open must have returned EQUIC_PROOF_OK for the connection ID.
 */
EQUIC_PROOF_INLINE void equic_proof_reset_token(const struct equic_proof_ring *ring,
						const __u64 service[EQUIC_PROOF_NAME_WORDS],
						const struct equic_cid *id, __u64 token[2])
{
	token[0] = equic_proof_of_id(ring, EQUIC_PROOF_RESET_1, id, service);
	token[1] = equic_proof_of_id(ring, EQUIC_PROOF_RESET_2, id, service);
}

/* Makes a connection ID, for example the Source Connection ID of a Retry packet. `server` is the
 * server ID, with its first byte in the lowest bits. `nonce` has up to 15 bytes and must never be
 * used twice. Returns EQUIC_PROOF_OK, EQUIC_PROOF_MALFORMED or EQUIC_PROOF_UNKNOWN_EPOCH. */
EQUIC_PROOF_INLINE enum equic_proof equic_proof_id_seal(const struct equic_proof_ring *ring,
							const struct equic_proof_id_format *format,
							__u64 server, const __u64 nonce[2],
							struct equic_cid *id)
{
	__u32 epoch = ring->current, bytes = format->len, check;
	__u32 shift = 8 * (1 + (format->server_id & 15));
	equic_word *words = (equic_word *)id;
	struct equic_sip s;
	__u64 low, high;

	if (!equic_proof_id_format_holds(format))
		return EQUIC_PROOF_MALFORMED;
	if (!equic_proof_key(ring, epoch, &s))
		return EQUIC_PROOF_UNKNOWN_EPOCH;
	EQUIC_PROOF_OPAQUE(bytes);
	bytes = (bytes - EQUIC_PROOF_CHECK_LEN) & 31;
	if (shift < 72)
		server &= (1ull << ((shift - 8) & 63)) - 1;
	words[0] = epoch << 5 | (format->len - 1u) | server << 8;
	words[1] = server >> 56;
	if (shift < 64) {
		words[0] |= nonce[0] << shift;
		words[1] |= nonce[0] >> (64 - shift) | nonce[1] << shift;
	} else if (shift == 64) {
		words[1] |= nonce[0];
	} else {
		words[1] |= nonce[0] << 8;
	}
	equic_proof_prefix(id, bytes, &low, &high);
	words[0] = low;
	words[1] = high;
	check = equic_proof_check(&s, low, high, bytes);
	words[2] = (__u64)format->len << 32;
	shift = 8 * (bytes & 7);
	if (bytes >= 16) {
		words[2] |= check;
	} else if (bytes >= 8) {
		words[1] |= (__u64)check << shift;
		if (shift > 32)
			words[2] |= check >> (64 - shift);
	} else {
		words[0] |= (__u64)check << shift;
		if (shift > 32)
			words[1] |= check >> (64 - shift);
	}
	return EQUIC_PROOF_OK;
}

#endif
