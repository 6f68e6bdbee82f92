/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A quota of connections per source, with handles and error codes. It shows the calls that a QUIC
 * server makes for its handshakes and closed connections. Here, lines on stdin stand for these
 * events:
 *
 *     open 192.0.2.7     a handshake with this address is complete
 *     close 192.0.2.7    one of its connections is closed
 *     limit 10           from now on, allow this number of connections per source
 *     drops              print the number of dropped packets, by reason
 *
 *     cc quota.c $(pkg-config --cflags --libs equic) -o quota && sudo ./quota eth0 443 5
 */
#define _POSIX_C_SOURCE 200809L
#include <equic.h>
#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct open_connection {
	char peer[64];
	equic_connection *connection;
	struct open_connection *next;
};

static struct open_connection *connections;

static int failed(const char *what)
{
	fprintf(stderr, "quota: %s: %s\n", what, equic_last_error_message());
	return EXIT_FAILURE;
}

static void open_one(const equic_service *service, const char *peer)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM};
	struct addrinfo *found;
	struct open_connection *opened;
	uint32_t count, flags;

	if (getaddrinfo(peer, NULL, &hints, &found) != 0) {
		fprintf(stderr, "quota: `%s` is not an address\n", peer);
		return;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened || equic_opened(service, found->ai_addr, found->ai_addrlen, &opened->connection,
				    &count, &flags) != EQUIC_OK) {
		failed("open");
		free(opened);
	} else {
		snprintf(opened->peer, sizeof(opened->peer), "%s", peer);
		opened->next = connections;
		connections = opened;
		printf("%s holds %" PRIu32 " of %" PRIu32 "%s\n", peer, count,
		       equic_service_limit(service),
		       flags & EQUIC_OVER_LIMIT ? ", over its limit" : "");
	}
	freeaddrinfo(found);
}

static void close_one(const char *peer)
{
	struct open_connection **at = &connections, *found;

	while (*at && peer && strcmp((*at)->peer, peer) != 0)
		at = &(*at)->next;
	found = *at;
	if (!found) {
		fprintf(stderr, "quota: no open connection of %s\n", peer ? peer : "anybody");
		return;
	}
	*at = found->next;
	equic_connection_closed(found->connection);
	free(found);
}

static void print_drops(const equic_service *service)
{
	equic_counts counts;

	for (uint32_t reason = 0; reason < equic_reason_count(); reason++) {
		if (!equic_reason_drops(reason))
			continue;
		if (equic_counter(service, reason, &counts) != EQUIC_OK)
			failed("drops");
		else if (counts.dropped)
			printf("%" PRIu64 " packets: %s\n", counts.dropped,
			       equic_reason_meaning(reason));
	}
}

static void serve(const equic_gateway *gateway, const equic_service *service)
{
	char line[128], word[16], argument[64];

	while (fgets(line, sizeof(line), stdin)) {
		int words = sscanf(line, "%15s %63s", word, argument);

		if (words == 2 && !strcmp(word, "open"))
			open_one(service, argument);
		else if (words == 2 && !strcmp(word, "close"))
			close_one(argument);
		else if (words == 2 && !strcmp(word, "limit")) {
			if (equic_set(gateway, "max_connections", argument) != EQUIC_OK)
				failed("limit");
		} else if (words == 1 && !strcmp(word, "drops"))
			print_drops(service);
		else if (words > 0)
			fprintf(stderr, "quota: open, close, limit or drops?\n");
		fflush(stdout);
	}
	while (connections)
		close_one(NULL);
}

int main(int argc, char **argv)
{
	char limit[64];
	const char *settings[] = {limit, NULL};
	equic_options options;
	equic_gateway *gateway;
	equic_service *service;
	int status = EXIT_SUCCESS;

	if (argc != 4) {
		fprintf(stderr, "usage: quota INTERFACE PORT LIMIT\n");
		return 2;
	}
	equic_options_init(&options, sizeof(options));
	options.listen = argv[2];
	snprintf(limit, sizeof(limit), "max_connections=%s", argv[3]);
	options.settings = settings;
	if (equic_gateway_open(&options, &gateway) != EQUIC_OK)
		return failed("loading the gateway");
	if (equic_gateway_service(gateway, NULL, &service) != EQUIC_OK ||
	    equic_gateway_attach(gateway, argv[1], EQUIC_MODE_AUTO) != EQUIC_OK) {
		status = failed(argv[1]);
	} else {
		printf("protecting UDP port %s on %s\n", argv[2], argv[1]);
		fflush(stdout);
		serve(gateway, service);
	}
	equic_service_release(service);
	equic_gateway_close(gateway);
	return status;
}
