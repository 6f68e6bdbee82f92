/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Tests of Retry tokens and connection IDs, which need no gateway and no privileges. */
#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

enum { TOKEN = 80, RING = 128 };

static const uint8_t ORIGINAL[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const uint8_t RETRY[] = {9, 8, 7, 6, 5, 4, 3, 2};

static struct sockaddr_in v4(const char *address, uint16_t port)
{
	struct sockaddr_in client = {.sin_family = AF_INET, .sin_port = htons(port)};

	CHECK_INT(inet_pton(AF_INET, address, &client.sin_addr), 1);
	return client;
}

static equic_ring *ring(void)
{
	equic_ring *ring;

	CHECK_OK(equic_ring_generate(EQUIC_CLOCK_MONOTONIC, &ring));
	return ring;
}

static void seal(const equic_ring *ring, uint8_t *token)
{
	struct sockaddr_in client = v4("192.0.2.1", 4711);

	CHECK_OK(equic_retry_seal(ring, (struct sockaddr *)&client, sizeof(client), ORIGINAL,
				  sizeof(ORIGINAL), RETRY, sizeof(RETRY), token, TOKEN));
}

static enum equic_error verify(const equic_ring *ring, const uint8_t *token, size_t length,
			       equic_retry_proof *proof)
{
	struct sockaddr_in client = v4("192.0.2.1", 4711);

	return equic_retry_verify(ring, (struct sockaddr *)&client, sizeof(client), RETRY,
				  sizeof(RETRY), token, length, proof);
}

static void tokens_give_the_transport_parameters(void)
{
	struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(4711)};
	equic_retry_proof proof = {0};
	equic_ring *one = ring(), *copy;
	uint8_t token[TOKEN], bytes[RING];

	seal(one, token);
	CHECK_OK(verify(one, token, TOKEN, &proof));
	CHECK_INT(proof.original_dcid_len, sizeof(ORIGINAL));
	CHECK(!memcmp(proof.original_dcid, ORIGINAL, sizeof(ORIGINAL)));
	CHECK_INT(proof.retry_scid_len, sizeof(RETRY));
	CHECK(!memcmp(proof.retry_scid, RETRY, sizeof(RETRY)));
	CHECK_OK(verify(one, token, TOKEN, NULL));

	/* Simulates another process, with a dual-stack socket. */
	CHECK_OK(equic_ring_write(one, bytes, sizeof(bytes)));
	CHECK_OK(equic_ring_read(bytes, sizeof(bytes), &copy));
	CHECK_INT(inet_pton(AF_INET6, "::ffff:192.0.2.1", &mapped.sin6_addr), 1);
	CHECK_OK(equic_retry_verify(copy, (struct sockaddr *)&mapped, sizeof(mapped), RETRY,
				    sizeof(RETRY), token, TOKEN, &proof));
	equic_ring_free(one);
	equic_ring_free(copy);
}

static void forged_tokens_are_refused(void)
{
	struct sockaddr_in other = v4("192.0.2.1", 4712);
	equic_retry_proof proof = {.original_dcid_len = 99};
	equic_ring *one = ring();
	uint8_t token[TOKEN], changed[TOKEN];

	seal(one, token);
	for (size_t i = 0; i < TOKEN; i++) {
		memcpy(changed, token, TOKEN);
		changed[i] ^= 0x20;
		CHECK(verify(one, changed, TOKEN, &proof) != EQUIC_OK);
		CHECK(verify(one, token, i, &proof) == EQUIC_ERROR_PROOF_MALFORMED);
	}
	memcpy(changed, token, TOKEN);
	changed[0] |= 0x80;
	CHECK_ERROR(verify(one, changed, TOKEN, &proof), EQUIC_ERROR_NEW_TOKEN, "NEW_TOKEN");
	CHECK_ERROR(equic_retry_verify(one, (struct sockaddr *)&other, sizeof(other), RETRY,
				       sizeof(RETRY), token, TOKEN, &proof),
		    EQUIC_ERROR_PROOF_FORGED, "not made for this client");
	CHECK_INT(proof.original_dcid_len, 99);
	equic_ring_free(one);
}

static void arguments_are_checked(void)
{
	const enum equic_error refused = EQUIC_ERROR_INVALID_ARGUMENT;
	equic_ring *one = ring(), *none = one;
	equic_ids *ids = (equic_ids *)8;
	uint8_t bytes[RING] = {0}, id[20];

	CHECK_ERROR(equic_ring_generate(7, &none), refused, "clock");
	CHECK(!none);
	CHECK_ERROR(equic_ring_read(bytes, sizeof(bytes), &none), refused, "not a key ring");
	CHECK_ERROR(equic_ring_read(NULL, 128, &none), refused, "NULL");
	CHECK_ERROR(equic_ring_read(bytes, sizeof(bytes), NULL), refused, "NULL");
	CHECK_ERROR(equic_ring_write(one, bytes, RING - 1), refused, "128");
	CHECK_ERROR(equic_ring_write(NULL, bytes, RING), refused, "NULL");
	CHECK_ERROR(equic_retry_verify(NULL, NULL, 0, NULL, 0, NULL, 0, NULL), refused, "NULL");
	CHECK_ERROR(verify(one, NULL, 5, NULL), refused, "`token` is NULL");
	CHECK_ERROR(verify(one, NULL, 0, NULL), EQUIC_ERROR_PROOF_MALFORMED, "format");
	CHECK_ERROR(equic_ids_new(one, 7, NULL, 0, &ids), refused, "8 to 20");
	CHECK(!ids);
	CHECK_ERROR(equic_ids_new(one, 8, (const uint8_t *)"s", 1, &ids), refused, "8 to 20");
	CHECK_ERROR(equic_ids_new(NULL, 8, NULL, 0, &ids), refused, "NULL");
	CHECK_ERROR(equic_ids_generate(NULL, id, 8), refused, "NULL");
	CHECK_ERROR(equic_ids_check(NULL, id, 8), refused, "NULL");
	CHECK_ERROR(equic_ids_set_ring(NULL, one), refused, "NULL");
	equic_ids_free(NULL);
	equic_ring_free(NULL);
	equic_ring_free(one);
}

static void ids_are_verifiable(void)
{
	equic_ring *one = ring(), *another = ring();
	equic_ids *ids;
	uint8_t id[12], old[12];

	CHECK_OK(equic_ids_new(one, 12, (const uint8_t *)"ab", 2, &ids));
	CHECK_OK(equic_ids_generate(ids, old, 12));
	CHECK_OK(equic_ids_generate(ids, id, 12));
	CHECK(memcmp(id, old, 12) != 0);
	CHECK(!memcmp(id + 1, "ab", 2));
	CHECK_INT(id[0] & 0x1f, 11);
	CHECK_OK(equic_ids_check(ids, id, 12));
	CHECK_ERROR(equic_ids_generate(ids, id, 11), EQUIC_ERROR_INVALID_ARGUMENT, "12 bytes");
	CHECK_ERROR(equic_ids_check(ids, id, 11), EQUIC_ERROR_PROOF_MALFORMED, "format");
	id[11] ^= 1;
	CHECK_ERROR(equic_ids_check(ids, id, 12), EQUIC_ERROR_PROOF_FORGED, "not made by");
	CHECK_OK(equic_ids_set_ring(ids, another));
	CHECK(equic_ids_check(ids, old, 12) != EQUIC_OK);
	CHECK_OK(equic_ids_generate(ids, id, 12));
	CHECK_OK(equic_ids_check(ids, id, 12));
	equic_ids_free(ids);
	equic_ring_free(one);
	equic_ring_free(another);
}

static const struct test TESTS[] = {
	{"tokens_give_the_transport_parameters", tokens_give_the_transport_parameters, false},
	{"forged_tokens_are_refused", forged_tokens_are_refused, false},
	{"arguments_are_checked", arguments_are_checked, false},
	{"ids_are_verifiable", ids_are_verifiable, false},
};

int main(int argc, char **argv)
{
	return run_tests("retry", TESTS, sizeof(TESTS) / sizeof(TESTS[0]), argc, argv);
}
