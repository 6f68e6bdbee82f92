/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The same server with the API of the paper "eQUIC Gateway". It loads a gateway on its interface,
 * and exits if that fails. A source may hold EQUIC_LIMIT connections (5 by default) to the port
 * EQUIC_PORT (443 by default).
 *
 *     serve-ngtcp2-paper 443 eth0
 */
#include "server.h"
#include <equic.h> /* eQUIC */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- eQUIC: a connection counts at its first address, even after the client has moved. */
static equic_t equic;

static int on_new_conn(const struct sockaddr *peer, socklen_t length, void **context)
{
	*context = malloc(length);
	if (!*context)
		return 1; /* an uncounted connection would not be limited */
	equic_inc_counter(&equic, memcpy(*context, peer, length));
	return 0;
}

static void on_conn_closed(void *context)
{
	if (context)
		equic_dec_counter(&equic, context);
	free(context);
}
/* -- */

int main(int argc, char **argv)
{
	const struct server_callbacks callbacks = {on_new_conn, NULL, on_conn_closed, NULL, NULL};

	if (argc != 3) {
		fprintf(stderr, "usage: serve-ngtcp2-paper PORT INTERFACE\n");
		return 2;
	}
	/* -- eQUIC: these calls are the paper's listing. */
	equic_get_interface(&equic, argv[2]);
	equic_read_object(&equic, "equic_kern.o");
	signal(SIGINT, equic_sigint_callback);
	signal(SIGTERM, equic_sigterm_callback);
	equic_load(&equic);
	/* -- */
	return serve(argv[1], &callbacks);
}
