/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A server with picoquic that joins a running gateway. It reports its connections to the gateway,
 * and makes connection IDs with the gateway's keys, so that the gateway can check them. Your own
 * server needs the lines that are marked `eQUIC`. The rest echoes every stream under flow control:
 * a client gets more credit only after the server has sent back what the client has written.
 *
 *     equic gateway run -i eth0 -p 4433 --max-connections 8 -o check_ids=true
 *     serve-picoquic 4433 eth0 certificate.pem key.pem
 */
#define _GNU_SOURCE
#include <equic.h> /* eQUIC */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <picoquic.h>
#include <picoquic_packet_loop.h>

#define CONNECTIONS   1024
#define STREAMS	      100
#define STREAM_WINDOW (16 << 10)

struct stream {
	struct stream *next;
	uint64_t id;
	/* Bytes that were received and not sent back yet. */
	size_t length;
	bool finished;
	uint8_t bytes[STREAM_WINDOW];
};

struct connection {
	struct stream *streams;
	equic_connection *counted; /* eQUIC */
};

static const struct sockaddr *peer_of(picoquic_cnx_t *quic)
{
	struct sockaddr *peer;

	picoquic_get_peer_addr(quic, &peer);
	return peer;
}

#define PEER_LENGTH sizeof(struct sockaddr_storage)

/* -- eQUIC: a connection counts from handshake to close, at the client's validated address. */
static equic_service *service;

static void on_ready(picoquic_cnx_t *quic, equic_connection **counted)
{
	uint32_t flags = 0;

	equic_opened(service, peer_of(quic), PEER_LENGTH, counted, NULL, &flags);
	if (flags & EQUIC_OVER_LIMIT) /* others filled the quota meanwhile */
		picoquic_close(quic, 1);
}

/* picoquic changes the peer's address only after it has validated the new one. */
static void on_moved(picoquic_cnx_t *quic, const equic_connection *counted)
{
	uint32_t flags = 0;

	equic_connection_moved(counted, peer_of(quic), PEER_LENGTH, NULL, &flags);
	if (flags & EQUIC_OVER_LIMIT) /* the new address has reached its quota */
		picoquic_close(quic, 1);
}
/* -- */

/* -- eQUIC IDs: every connection ID is made with the gateway's current keys. */
static equic_ids *ids;

/*
 * picoquic has already filled the ID with random bytes. If no ID can be made, these bytes stay, and
 * the gateway cannot verify the ID.
 */
static void on_new_id(picoquic_quic_t *server, picoquic_connection_id_t random,
		      picoquic_connection_id_t of_client, void *context,
		      picoquic_connection_id_t *id)
{
	(void)server, (void)random, (void)of_client, (void)context;
	equic_ids_generate(ids, id->id, id->id_len);
}
/* -- */

static struct stream *stream_of(picoquic_cnx_t *quic, struct connection *connection, uint64_t id)
{
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream || picoquic_set_app_flow_control(quic, id, 1) ||
	    picoquic_set_app_stream_ctx(quic, id, stream)) {
		free(stream);
		return NULL;
	}
	stream->id = id;
	stream->next = connection->streams;
	connection->streams = stream;
	return stream;
}

static void end_stream(struct connection *connection, struct stream *ended)
{
	struct stream **at = &connection->streams;

	while (*at && *at != ended)
		at = &(*at)->next;
	if (*at) {
		*at = ended->next;
		free(ended);
	}
}

static int on_data(picoquic_cnx_t *quic, struct connection *connection, struct stream *stream,
		   uint64_t id, const uint8_t *bytes, size_t length, bool finished)
{
	if (!stream)
		stream = stream_of(quic, connection, id);
	/* A client that keeps to its credit never sends more than fits. */
	if (!stream || length > sizeof(stream->bytes) - stream->length)
		return picoquic_close(quic, 2);
	if (length > 0)
		memcpy(stream->bytes + stream->length, bytes, length);
	stream->length += length;
	stream->finished |= finished;
	return picoquic_mark_active_stream(quic, id, 1, stream);
}

/* Fills a packet, in which `packet` has room for at most `length` bytes of the stream. */
static int on_room(picoquic_cnx_t *quic, struct stream *stream, uint8_t *packet, size_t length)
{
	size_t sent = stream->length < length ? stream->length : length;
	bool all = sent == stream->length;
	uint8_t *to =
		picoquic_provide_stream_data_buffer(packet, sent, all && stream->finished, !all);

	if (!to)
		return -1;
	memcpy(to, stream->bytes, sent);
	memmove(stream->bytes, stream->bytes + sent, stream->length - sent);
	stream->length -= sent;
	if (all && !stream->finished)
		(void)picoquic_open_flow_control(quic, stream->id, STREAM_WINDOW);
	return 0;
}

static void end(picoquic_cnx_t *quic, struct connection *connection)
{
	equic_connection_closed(connection->counted); /* eQUIC */
	while (connection->streams)
		end_stream(connection, connection->streams);
	free(connection);
	picoquic_set_callback(quic, NULL, NULL);
}

static int on_event(picoquic_cnx_t *quic, uint64_t id, uint8_t *bytes, size_t length,
		    picoquic_call_back_event_t event, void *context, void *stream_context)
{
	struct connection *connection = context;
	struct stream *stream = stream_context;

	if (!connection) {
		connection = calloc(1, sizeof(*connection));
		if (!connection)
			return -1;
		picoquic_set_callback(quic, on_event, connection);
	}
	switch (event) {
	case picoquic_callback_ready:
		on_ready(quic, &connection->counted); /* eQUIC */
		break;
	case picoquic_callback_path_available:
		on_moved(quic, connection->counted); /* eQUIC */
		break;
	case picoquic_callback_stream_data:
	case picoquic_callback_stream_fin:
		return on_data(quic, connection, stream, id, bytes, length,
			       event == picoquic_callback_stream_fin);
	case picoquic_callback_prepare_to_send:
		return stream ? on_room(quic, stream, bytes, length) : -1;
	case picoquic_callback_stream_reset:
	case picoquic_callback_stop_sending:
		return picoquic_reset_stream(quic, id, 0);
	case picoquic_callback_stream_released:
		end_stream(connection, stream);
		break;
	case picoquic_callback_stateless_reset:
	case picoquic_callback_close:
	case picoquic_callback_application_close:
		end(quic, connection);
		break;
	default:
		break;
	}
	return 0;
}

static int on_loop(picoquic_quic_t *server, picoquic_packet_loop_cb_enum event, void *context,
		   void *argument)
{
	(void)server, (void)context, (void)argument;
	if (event == picoquic_packet_loop_ready) {
		puts("listening");
		fflush(stdout);
	}
	return 0;
}

int main(int argc, char **argv)
{
	picoquic_packet_loop_param_t loop = {0};
	picoquic_quic_t *server;
	equic_join_options options; /* eQUIC */
	equic_gateway *gateway;	    /* eQUIC */

	if (argc != 5) {
		fprintf(stderr, "usage: serve-picoquic PORT GATEWAY CERTIFICATE KEY\n");
		return 2;
	}
	equic_join_options_init(&options, sizeof(options)); /* eQUIC */
	options.issue_ids = 1;				    /* eQUIC IDs */
	/* -- eQUIC: joins a running gateway, which outlives this server. */
	if (equic_gateway_join(argv[2], "picoquic", &options, &gateway) ||
	    equic_gateway_ids(gateway, 0, &ids) || equic_gateway_service(gateway, NULL, &service)) {
		fprintf(stderr, "serve-picoquic: %s\n", equic_last_error_message());
		return 1;
	}
	/* -- */
	server = picoquic_create(CONNECTIONS, argv[3], argv[4], NULL, "echo", on_event, NULL,
				 on_new_id, /* eQUIC IDs */
				 NULL, NULL, picoquic_current_time(), NULL, NULL, NULL, 0);
	if (!server) {
		fprintf(stderr, "serve-picoquic: cannot use %s and %s\n", argv[3], argv[4]);
		return 1;
	}
	/* -- eQUIC IDs: the required length, and a lifetime within that of the keys. */
	picoquic_set_default_connection_id_length(server, EQUIC_ID_LENGTH);
	picoquic_set_default_connection_id_ttl(server, 12 * 3600 * 1000000ULL);
	/* -- */
	picoquic_enable_path_callbacks_default(server, 1);
	picoquic_set_default_idle_timeout(server, 60000);
	picoquic_set_default_tp_value(server, picoquic_tp_initial_max_streams_bidi, STREAMS);
	picoquic_set_default_tp_value(server, picoquic_tp_initial_max_streams_uni, 0);
	picoquic_set_default_tp_value(server, picoquic_tp_initial_max_stream_data_bidi_remote,
				      STREAM_WINDOW);
	loop.local_port = (uint16_t)atoi(argv[1]);
	if (picoquic_packet_loop_v2(server, &loop, on_loop, NULL) != 0)
		fprintf(stderr, "serve-picoquic: cannot listen on port %s\n", argv[1]);
	picoquic_free(server);
	return 1;
}
