/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A server with lsquic that joins a running gateway. It reports its connections to the gateway, and
 * makes connection IDs with the gateway's keys, so that the gateway can check them. Your own server
 * needs the lines that are marked `eQUIC`. The rest echoes every stream. No distribution has a
 * package of lsquic: docs/servers.md describes how to build it, and scripts/test-lsquic.sh does it.
 *
 *     equic gateway run -i eth0 -p 4433 --max-connections 8 -o check_ids=true
 *     serve-lsquic 4433 eth0 certificate.pem key.pem
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <equic.h> /* eQUIC */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lsquic.h>
#include <openssl/ssl.h>

#define STREAM_WINDOW (16 << 10)
#define DATAGRAM      65536

struct lsquic_conn_ctx {
	lsquic_conn_t *quic;
	equic_connection *counted; /* eQUIC */
};

struct lsquic_stream_ctx {
	/* Bytes that were received and not sent back yet. */
	size_t length;
	bool finished;
	unsigned char bytes[STREAM_WINDOW];
};

static const struct sockaddr *peer_of(lsquic_conn_t *quic)
{
	const struct sockaddr *local, *peer;

	return lsquic_conn_get_sockaddr(quic, &local, &peer) ? NULL : peer;
}

#define PEER_LENGTH sizeof(struct sockaddr_in6)

/* -- eQUIC: a connection counts from handshake to close, at the client's current address. */
static equic_service *service;

static void on_ready(lsquic_conn_t *quic, equic_connection **counted)
{
	uint32_t flags = 0;

	equic_opened(service, peer_of(quic), PEER_LENGTH, counted, NULL, &flags);
	if (flags & EQUIC_OVER_LIMIT) /* others filled the quota meanwhile */
		lsquic_conn_close(quic);
}

/*
 * lsquic does not report a migration. So this function is called for every packet to the client.
 * lsquic sends to a new address only after it has validated the address.
 */
static void look_at(lsquic_conn_t *quic, const equic_connection *counted)
{
	equic_connection_moved(counted, peer_of(quic), PEER_LENGTH, NULL, NULL);
}
/* -- */

/* -- eQUIC IDs: every connection ID is made with the gateway's current keys. */
static void on_new_id(void *ids, lsquic_conn_t *quic, uint8_t *id, unsigned length)
{
	(void)quic;
	/* If no ID can be made, the gateway drops packets to this one. */
	if (equic_ids_generate(ids, id, length))
		memset(id, 0xff, length);
}
/* -- */

static lsquic_conn_ctx_t *on_new_conn(void *context, lsquic_conn_t *quic)
{
	lsquic_conn_ctx_t *connection = calloc(1, sizeof(*connection));

	(void)context;
	if (!connection) {
		lsquic_conn_abort(quic);
		return NULL;
	}
	connection->quic = quic;
	on_ready(quic, &connection->counted); /* eQUIC */
	return connection;
}

static void on_conn_closed(lsquic_conn_t *quic)
{
	lsquic_conn_ctx_t *connection = lsquic_conn_get_ctx(quic);

	if (!connection)
		return;
	equic_connection_closed(connection->counted); /* eQUIC */
	lsquic_conn_set_ctx(quic, NULL);
	free(connection);
}

static lsquic_stream_ctx_t *on_new_stream(void *context, lsquic_stream_t *stream)
{
	lsquic_stream_ctx_t *echo = calloc(1, sizeof(*echo));

	(void)context;
	if (echo)
		lsquic_stream_wantread(stream, 1);
	else
		lsquic_stream_close(stream);
	return echo;
}

static void on_read(lsquic_stream_t *stream, lsquic_stream_ctx_t *echo)
{
	ssize_t length = lsquic_stream_read(stream, echo->bytes + echo->length,
					    sizeof(echo->bytes) - echo->length);

	if (length < 0) {
		if (errno != EWOULDBLOCK)
			lsquic_stream_close(stream);
		return;
	}
	echo->length += (size_t)length;
	echo->finished = length == 0 && echo->length < sizeof(echo->bytes);
	/* The server reads more after these bytes have been sent. */
	lsquic_stream_wantread(stream, 0);
	lsquic_stream_wantwrite(stream, 1);
}

static void on_write(lsquic_stream_t *stream, lsquic_stream_ctx_t *echo)
{
	ssize_t sent = lsquic_stream_write(stream, echo->bytes, echo->length);

	if (sent < 0) {
		lsquic_stream_close(stream);
		return;
	}
	echo->length -= (size_t)sent;
	memmove(echo->bytes, echo->bytes + sent, echo->length);
	if (echo->length > 0)
		return;
	lsquic_stream_wantwrite(stream, 0);
	if (echo->finished) {
		/*
		 * Closes both directions. If only one direction were shut down, the stream would
		 * stay and count against the client's limit.
		 */
		lsquic_stream_close(stream);
	} else {
		lsquic_stream_flush(stream);
		lsquic_stream_wantread(stream, 1);
	}
}

static void on_close(lsquic_stream_t *stream, lsquic_stream_ctx_t *echo)
{
	(void)stream;
	free(echo);
}

static const struct lsquic_stream_if callbacks = {
	.on_new_conn = on_new_conn,
	.on_conn_closed = on_conn_closed,
	.on_new_stream = on_new_stream,
	.on_read = on_read,
	.on_write = on_write,
	.on_close = on_close,
};

static int send_packets(void *context, const struct lsquic_out_spec *packets, unsigned count)
{
	unsigned sent;

	for (sent = 0; sent < count; sent++) {
		const struct lsquic_out_spec *packet = &packets[sent];
		/* NULL before the handshake is complete. */
		const lsquic_conn_ctx_t *connection = packet->conn_ctx;
		struct msghdr message = {
			.msg_name = (void *)packet->dest_sa,
			.msg_namelen = PEER_LENGTH,
			.msg_iov = packet->iov,
			.msg_iovlen = packet->iovlen,
		};

		if (sendmsg(*(int *)context, &message, 0) < 0)
			break;
		if (connection)
			look_at(connection->quic, connection->counted); /* eQUIC */
	}
	return (int)sent;
}

static SSL_CTX *tls;

static SSL_CTX *tls_of(void *peer, const struct sockaddr *local)
{
	(void)peer, (void)local;
	return tls;
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *length,
			   const unsigned char *in, unsigned in_length, void *context)
{
	static const unsigned char protocols[] = "\4echo";

	(void)ssl, (void)context;
	return SSL_select_next_proto((unsigned char **)out, length, protocols,
				     sizeof(protocols) - 1, in, in_length) == OPENSSL_NPN_NEGOTIATED
		       ? SSL_TLSEXT_ERR_OK
		       : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static bool make_tls(const char *certificate, const char *key)
{
	tls = SSL_CTX_new(TLS_method());
	if (!tls || !SSL_CTX_set_min_proto_version(tls, TLS1_3_VERSION) ||
	    SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
		return false;
	SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
	return true;
}

/* Listens for IPv6 and IPv4. IPv4 addresses are seen as ::ffff:a.b.c.d. */
static int listen_on(uint16_t port, struct sockaddr_in6 *local)
{
	int socket_fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), off = 0;

	*local = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
	if (socket_fd < 0 || setsockopt(socket_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) ||
	    bind(socket_fd, (struct sockaddr *)local, sizeof(*local)))
		return -1;
	return socket_fd;
}

static void loop(lsquic_engine_t *engine, int socket_fd, struct sockaddr_in6 *local)
{
	static unsigned char datagram[DATAGRAM];

	for (;;) {
		struct pollfd ready = {.fd = socket_fd, .events = POLLIN};
		int until_us, wait_ms = -1;

		if (lsquic_engine_earliest_adv_tick(engine, &until_us))
			wait_ms = until_us > 0 ? (until_us + 999) / 1000 : 0;
		if (lsquic_engine_has_unsent_packets(engine))
			ready.events |= POLLOUT;
		poll(&ready, 1, wait_ms);
		for (;;) {
			struct sockaddr_in6 peer;
			socklen_t peer_length = sizeof(peer);
			ssize_t length = recvfrom(socket_fd, datagram, sizeof(datagram), 0,
						  (struct sockaddr *)&peer, &peer_length);

			if (length < 0)
				break;
			lsquic_engine_packet_in(engine, datagram, (size_t)length,
						(struct sockaddr *)local, (struct sockaddr *)&peer,
						NULL, 0);
		}
		if (ready.revents & POLLOUT)
			lsquic_engine_send_unsent_packets(engine);
		lsquic_engine_process_conns(engine);
	}
}

int main(int argc, char **argv)
{
	struct lsquic_engine_settings settings;
	struct lsquic_engine_api api = {0};
	struct sockaddr_in6 local;
	lsquic_engine_t *engine;
	equic_join_options options; /* eQUIC */
	equic_gateway *gateway;	    /* eQUIC */
	equic_ids *ids;		    /* eQUIC IDs */
	int socket_fd;

	if (argc != 5) {
		fprintf(stderr, "usage: serve-lsquic PORT GATEWAY CERTIFICATE KEY\n");
		return 2;
	}
	equic_join_options_init(&options, sizeof(options)); /* eQUIC */
	options.issue_ids = 1;				    /* eQUIC IDs */
	/* -- eQUIC: joins a running gateway, which outlives this server. */
	if (equic_gateway_join(argv[2], "lsquic", &options, &gateway) ||
	    equic_gateway_ids(gateway, 0, &ids) || equic_gateway_service(gateway, NULL, &service)) {
		fprintf(stderr, "serve-lsquic: %s\n", equic_last_error_message());
		return 1;
	}
	/* -- */
	socket_fd = listen_on((uint16_t)atoi(argv[1]), &local);
	if (socket_fd < 0 || !make_tls(argv[3], argv[4]) ||
	    lsquic_global_init(LSQUIC_GLOBAL_SERVER)) {
		fprintf(stderr, "serve-lsquic: cannot listen on port %s with %s\n", argv[1],
			argv[3]);
		return 1;
	}
	lsquic_engine_init_settings(&settings, LSENG_SERVER);
	settings.es_versions = 1 << LSQVER_I001 | 1 << LSQVER_I002;
	settings.es_init_max_stream_data_bidi_remote = STREAM_WINDOW;
	api.ea_settings = &settings;
	api.ea_stream_if = &callbacks;
	api.ea_packets_out = send_packets;
	api.ea_packets_out_ctx = &socket_fd;
	api.ea_get_ssl_ctx = tls_of;
	/* -- eQUIC IDs: the length that the gateway requires. */
	settings.es_scid_len = EQUIC_ID_LENGTH;
	api.ea_generate_scid = on_new_id;
	api.ea_gen_scid_ctx = ids;
	/* -- */
	engine = lsquic_engine_new(LSENG_SERVER, &api);
	if (!engine) {
		fprintf(stderr, "serve-lsquic: lsquic rejects its settings\n");
		return 1;
	}
	puts("listening");
	fflush(stdout);
	loop(engine, socket_fd, &local);
}
