/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Runs the gateway's bpf/proof.h natively, so that a test can compare it with the crate.
 *
 *     proof < requests > replies    one struct request after the other
 *     proof vectors FILE            checks FILE (format: its first lines); exit status 0: all match
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proof.h"

enum op { SEAL, OPEN, ID_SEAL, ID_OPEN, RESET };

struct request {
	uint8_t op, family, id_len, server_id_len;
	uint16_t port;
	uint8_t reserved[2];
	uint64_t now;
	uint64_t addr[2];
	struct equic_cid first, second;
	struct equic_proof_token token;
	__u64 server;
	__u64 nonce[2];
	union {
		char name[32];
		__u64 words[EQUIC_PROOF_NAME_WORDS];
	} service;
	struct equic_proof_ring ring;
};
_Static_assert(sizeof(struct request) == 344, "request");

struct reply {
	uint32_t result, reserved;
	struct equic_proof_token token;
	struct equic_cid id;
	__u64 server;
};
_Static_assert(sizeof(struct reply) == 120, "reply");

static void answer(const struct request *q, struct reply *r)
{
	struct equic_proof_client client = {
		.addr = {q->addr[0], q->addr[1]}, .port = q->port, .family = q->family};
	struct equic_proof_id_format format = {q->id_len, q->server_id_len};

	switch (q->op) {
	case SEAL:
		r->result = equic_proof_seal(&q->ring, q->now, &client, &q->first, &q->second,
					     &r->token);
		break;
	case OPEN:
		r->result =
			equic_proof_open(&q->ring, q->now, &client, &q->second, &q->token, &r->id);
		break;
	case ID_SEAL:
		r->result = equic_proof_id_seal(&q->ring, &format, q->server, q->nonce, &r->id);
		break;
	case ID_OPEN:
		r->result = equic_proof_id_open(&q->ring, &format, &q->first, &r->server);
		break;
	case RESET:
		r->result = equic_proof_id_open(&q->ring, &format, &q->first, NULL);
		equic_proof_reset_token(&q->ring, q->service.words, &q->first, r->token.words);
		break;
	default:
		fprintf(stderr, "no such operation: %u\n", q->op);
		exit(2);
	}
}

static size_t unhex(const char *text, uint8_t *bytes, size_t room)
{
	size_t n = strcmp(text, "-") ? strlen(text) / 2 : 0;

	for (size_t i = 0; i < n && i < room; i++) {
		unsigned int byte;

		if (sscanf(text + 2 * i, "%2x", &byte) != 1) {
			fprintf(stderr, "no bytes: %s\n", text);
			exit(2);
		}
		bytes[i] = byte;
	}
	return n;
}

static struct equic_cid cid(const char *text)
{
	struct equic_cid id = {0};

	id.len = unhex(text, id.bytes, sizeof(id.bytes));
	return id;
}

static struct equic_proof_ring ring(const char *key, unsigned int epoch)
{
	struct equic_proof_ring ring = {.magic = "EQKR", .version = 1, .lifetime_ms = 15000};

	ring.current = epoch;
	ring.known = 1u << epoch;
	unhex(key, (uint8_t *)ring.key[epoch], 16);
	return ring;
}

static bool token_holds(char fields[][180])
{
	struct request q = {.ring = ring(fields[0], atoi(fields[1])),
			    .now = strtoull(fields[2], NULL, 10),
			    .family = atoi(fields[3]),
			    .first = cid(fields[6]),
			    .second = cid(fields[7])};
	unsigned int port = atoi(fields[5]);
	uint8_t expected[EQUIC_PROOF_TOKEN_LEN];
	struct reply r = {0};

	unhex(fields[4], (uint8_t *)q.addr, sizeof(q.addr));
	q.port = (uint16_t)(port << 8 | port >> 8);
	unhex(fields[8], expected, sizeof(expected));
	answer(&q, &r);
	if (r.result != EQUIC_PROOF_OK || memcmp(&r.token, expected, sizeof(expected)))
		return false;
	q.op = OPEN;
	q.token = r.token;
	answer(&q, &r);
	return r.result == EQUIC_PROOF_OK && !memcmp(&r.id, &q.first, sizeof(r.id));
}

static bool id_holds(char fields[][180])
{
	struct request q = {.op = ID_SEAL, .ring = ring(fields[0], atoi(fields[1]))};
	struct equic_cid expected = cid(fields[5]);
	struct reply r = {0};

	q.id_len = atoi(fields[2]);
	q.server_id_len = unhex(fields[3], (uint8_t *)&q.server, sizeof(q.server));
	unhex(fields[4], (uint8_t *)q.nonce, sizeof(q.nonce));
	answer(&q, &r);
	if (r.result != EQUIC_PROOF_OK || memcmp(&r.id, &expected, sizeof(expected)))
		return false;
	q.op = ID_OPEN;
	q.first = r.id;
	answer(&q, &r);
	return r.result == EQUIC_PROOF_OK && r.server == q.server;
}

static bool reset_holds(char fields[][180])
{
	struct request q = {.op = RESET, .ring = ring(fields[0], atoi(fields[1]))};
	uint8_t expected[16];
	struct reply r = {0};

	q.id_len = atoi(fields[2]);
	q.server_id_len = atoi(fields[3]);
	if (strcmp(fields[4], "-"))
		memcpy(q.service.name, fields[4], strnlen(fields[4], sizeof(q.service) - 1));
	q.first = cid(fields[5]);
	unhex(fields[6], expected, sizeof(expected));
	answer(&q, &r);
	return r.result == EQUIC_PROOF_OK && !memcmp(&r.token, expected, sizeof(expected));
}

static bool sip_holds(char fields[][180])
{
	uint8_t message[64] = {0}, expected[8];
	uint64_t key[2], word, hash;
	size_t n = unhex(fields[1], message, sizeof(message));
	struct equic_sip s;

	unhex(fields[0], (uint8_t *)key, sizeof(key));
	unhex(fields[2], expected, sizeof(expected));
	equic_sip_start(&s, key[0], key[1]);
	for (size_t i = 0; i + 8 <= n; i += 8) {
		memcpy(&word, message + i, 8);
		equic_sip_word(&s, word);
	}
	hash = equic_sip_finish(&s, n);
	return !memcmp(&hash, expected, sizeof(expected));
}

static int vectors(const char *path)
{
	FILE *file = fopen(path, "r");
	char line[700], kind[8], fields[9][180];
	int checked = 0;

	if (!file) {
		perror(path);
		return 2;
	}
	while (fgets(line, sizeof(line), file)) {
		int n = sscanf(line, "%7s %179s %179s %179s %179s %179s %179s %179s %179s %179s",
			       kind, fields[0], fields[1], fields[2], fields[3], fields[4],
			       fields[5], fields[6], fields[7], fields[8]);
		bool holds;

		if (n < 1 || kind[0] == '#')
			continue;
		if (!strcmp(kind, "token") && n == 10)
			holds = token_holds(fields);
		else if (!strcmp(kind, "id") && n == 7)
			holds = id_holds(fields);
		else if (!strcmp(kind, "reset") && n == 8)
			holds = reset_holds(fields);
		else if (!strcmp(kind, "sip") && n == 4)
			holds = sip_holds(fields);
		else
			holds = false;
		if (!holds) {
			fprintf(stderr, "not so: %s", line);
			return 1;
		}
		checked++;
	}
	fclose(file);
	printf("%d\n", checked);
	return 0;
}

int main(int argc, char **argv)
{
	struct request q;

	if (argc == 3 && !strcmp(argv[1], "vectors"))
		return vectors(argv[2]);
	while (fread(&q, sizeof(q), 1, stdin) == 1) {
		struct reply r = {0};

		answer(&q, &r);
		if (r.result != EQUIC_PROOF_OK)
			memset((char *)&r + 8, 0, sizeof(r) - 8);
		if (fwrite(&r, sizeof(r), 1, stdout) != 1)
			return 2;
	}
	return 0;
}
