/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The Retry Integrity Tag (RFC 9001 s.5.8, RFC 9369 s.3.3.3). It is the AES-128-GCM tag of an empty
 * plaintext with a constant key and nonce. Therefore the outputs of AES are constants, too. Only
 * GHASH (NIST SP 800-38D s.6.4) has to be computed: a polynomial over GF(2^128), evaluated at a
 * constant point H.
 *
 * A field element is two words. The highest bit of `high` is the coefficient of x^0, and the lowest
 * bit of `low` is that of x^127. */
#ifndef EQUIC_GHASH_H
#define EQUIC_GHASH_H

#include "maps.h"

#define GHASH_BLOCK  16
#define GHASH_BLOCKS 9 /* blocks in the longest Retry packet and the ID before it */

struct element {
	__u64 high;
	__u64 low;
};

/* For QUIC versions 1 and 2, the point H = AES(key, 0) and the mask AES(key, nonce 00000001). */
#define H1_HIGH	   0x72956a454ffaff54ull
#define H1_LOW	   0x85a13a1244d01d47ull
#define MASK1_HIGH 0x555e4b7493556eeaull
#define MASK1_LOW  0xaf75d35bd7fba5d8ull
#define H2_HIGH	   0x65f6bee10d700edaull
#define H2_LOW	   0x919c5c6978e47a5dull
#define MASK2_HIGH 0x4e901396e3a9359full
#define MASK2_LOW  0x4535b65e5ad6ae51ull

/* Computes H times x^n, for n up to 7. A bit that is shifted out of x^127 comes back as 1 + x + x^2
 * + x^7. */
#define LOWEST(word, n) ((word) & ((1ull << (n)) - 1))
#define BACK(low, n)                                                                               \
	(LOWEST(low, n) << 8 ^ LOWEST(low, n) << 7 ^ LOWEST(low, n) << 6 ^ LOWEST(low, n) << 1)
#define TIMES_HIGH(high, low, n) ((high) >> (n) ^ BACK(low, n) << (56 - (n)))
#define TIMES_LOW(high, low, n)	 ((low) >> (n) ^ LOWEST(high, n) << ((64 - (n)) & 63))

/* Computes H times a byte, whose highest bit is the coefficient of x^0. */
#define BIT_OF(byte, n, value) ((byte) >> (7 - (n)) & 1 ? (value) : 0ull)
#define PRODUCT(byte, times, high, low)                                                            \
	(BIT_OF(byte, 0, times(high, low, 0)) ^ BIT_OF(byte, 1, times(high, low, 1)) ^             \
	 BIT_OF(byte, 2, times(high, low, 2)) ^ BIT_OF(byte, 3, times(high, low, 3)) ^             \
	 BIT_OF(byte, 4, times(high, low, 4)) ^ BIT_OF(byte, 5, times(high, low, 5)) ^             \
	 BIT_OF(byte, 6, times(high, low, 6)) ^ BIT_OF(byte, 7, times(high, low, 7)))
#define ENTRY(byte, high, low)                                                                     \
	{PRODUCT(byte, TIMES_HIGH, high, low), PRODUCT(byte, TIMES_LOW, high, low)}
#define ENTRIES4(byte, high, low)                                                                  \
	ENTRY(byte, high, low), ENTRY((byte) + 1, high, low), ENTRY((byte) + 2, high, low),        \
		ENTRY((byte) + 3, high, low)
#define ENTRIES16(byte, high, low)                                                                 \
	ENTRIES4(byte, high, low), ENTRIES4((byte) + 4, high, low),                                \
		ENTRIES4((byte) + 8, high, low), ENTRIES4((byte) + 12, high, low)
#define ENTRIES64(byte, high, low)                                                                 \
	ENTRIES16(byte, high, low), ENTRIES16((byte) + 16, high, low),                             \
		ENTRIES16((byte) + 32, high, low), ENTRIES16((byte) + 48, high, low)
#define ENTRIES(high, low)                                                                         \
	{ENTRIES64(0, high, low), ENTRIES64(64, high, low), ENTRIES64(128, high, low),             \
	 ENTRIES64(192, high, low)}

/* The table is in its own section, because `load` must be the only variable in .rodata, which user
 * space sets. */
const struct element ghash_products[2][256] SEC(".rodata.ghash") = {
	ENTRIES(H1_HIGH, H1_LOW),
	ENTRIES(H2_HIGH, H2_LOW),
};

/* Multiplies x by H, byte by byte, from the highest power down (Shoup's method). */
INLINE void times_h(struct element *x, const struct element *products)
{
	__u64 words[2] = {x->low, x->high}, high = 0, low = 0;

#pragma unroll
	for (int word = 0; word < 2; word++) {
#pragma unroll
		for (int shift = 0; shift < 64; shift += 8) {
			const struct element *product = &products[words[word] >> shift & 0xff];
			__u64 out = low & 0xff;

			low = low >> 8 | high << 56;
			high = high >> 8 ^ (out << 8 ^ out << 7 ^ out << 6 ^ out << 1) << 48;
			high ^= product->high;
			low ^= product->low;
		}
	}
	x->high = high;
	x->low = low;
}

/* Computes the tag over `len` bytes, padded with zeros to a whole block. The result is in the byte
 * order of a packet. `bytes` has room for GHASH_BLOCKS blocks. */
static __noinline void integrity_tag(const __u64 *bytes, __u32 len, bool version2, __u64 *tag)
{
	const struct element *products = ghash_products[version2 ? 1 : 0];
	struct element x = {};

	for (__u32 i = 0; i < GHASH_BLOCKS; i++) {
		if (i * GHASH_BLOCK >= len)
			break;
		x.high ^= bpf_be64_to_cpu(bytes[2 * i]);
		x.low ^= bpf_be64_to_cpu(bytes[2 * i + 1]);
		times_h(&x, products);
	}
	x.high ^= (__u64)len * 8;
	times_h(&x, products);
	tag[0] = bpf_cpu_to_be64(x.high ^ (version2 ? MASK2_HIGH : MASK1_HIGH));
	tag[1] = bpf_cpu_to_be64(x.low ^ (version2 ? MASK2_LOW : MASK1_LOW));
}

#endif
