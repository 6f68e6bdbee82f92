/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A server in C that joins a running gateway, with the handles of equic.h. Your own server needs
 * the lines that are marked `eQUIC`. server.c uses ngtcp2 in the usual way.
 *
 *     equic gateway run -i eth0 -p 4433 --max-connections 8
 *     serve-ngtcp2 4433 eth0
 */
#include "server.h"
#include <equic.h> /* eQUIC */
#include <stdio.h>
#include <string.h>

/* -- eQUIC: a connection counts from handshake to close, at the client's validated address. */
static equic_service *service;

static int on_new_conn(const struct sockaddr *peer, socklen_t length, void **context)
{
	equic_connection *counted;
	uint32_t flags = 0;

	equic_opened(service, peer, length, &counted, NULL, &flags);
	*context = counted;
	return flags & EQUIC_OVER_LIMIT; /* others filled the quota meanwhile */
}

static int on_conn_moved(void *context, const struct sockaddr *peer, socklen_t length)
{
	uint32_t flags = 0;

	equic_connection_moved(context, peer, length, NULL, &flags);
	return flags & EQUIC_OVER_LIMIT; /* the new address has reached its quota */
}

static void on_conn_closed(void *context)
{
	equic_connection_closed(context);
}
/* -- */

/* -- eQUIC Retry: a client with a token has received a Retry packet from the gateway. */
static equic_ring *ring;

static ssize_t on_token(const struct sockaddr *peer, socklen_t length,
			const struct initial_token *token, uint8_t *original)
{
	equic_retry_proof proof;

	switch (equic_retry_verify(ring, peer, length, token->dcid, token->dcid_length,
				   token->bytes, token->length, &proof)) {
	case EQUIC_OK:
		memcpy(original, proof.original_dcid, proof.original_dcid_len);
		return proof.original_dcid_len;
	case EQUIC_ERROR_NEW_TOKEN: /* this server sends no such tokens */
		return 0;
	default:
		return -1;
	}
}
/* -- */

/* -- eQUIC IDs: every connection ID is made with the gateway's current keys. */
static equic_ids *ids;

static int on_new_id(uint8_t *id, size_t length)
{
	return equic_ids_generate(ids, id, length);
}
/* -- */

int main(int argc, char **argv)
{
	const struct server_callbacks callbacks = {
		on_new_conn, on_conn_moved, on_conn_closed, on_token, on_new_id, /* eQUIC IDs */
	};
	equic_join_options options; /* eQUIC */
	equic_gateway *gateway;	    /* eQUIC */

	if (argc != 3) {
		fprintf(stderr, "usage: serve-ngtcp2 PORT GATEWAY\n");
		return 2;
	}
	equic_join_options_init(&options, sizeof(options));   /* eQUIC */
	options.token_check = EQUIC_TOKEN_CHECK_GATEWAY_KEYS; /* eQUIC Retry */
	options.issue_ids = 1;				      /* eQUIC IDs */
	/* -- eQUIC: joins a running gateway, which outlives this server. */
	if (equic_gateway_join(argv[2], "ngtcp2", &options, &gateway) ||
	    equic_gateway_ring(gateway, &ring) || equic_gateway_ids(gateway, 0, &ids) ||
	    equic_gateway_service(gateway, NULL, &service)) {
		fprintf(stderr, "serve-ngtcp2: %s\n", equic_last_error_message());
		return 1;
	}
	/* -- */
	return serve(argv[1], &callbacks);
}
