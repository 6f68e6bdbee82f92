/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The main loop as users of ngtcp2 write it: one UDP socket, a list of connections, GnuTLS. It
 * echoes every stream under flow control: a client gets credit for new bytes only after it has
 * acknowledged the echo of earlier ones.
 */
#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#define ID_LENGTH     12
#define MAX_IDS	      16
#define STREAM_WINDOW (64 << 10)
#define IDLE_TIMEOUT  (60 * NGTCP2_SECONDS)

/* Functions that have other names or fewer parameters before ngtcp2 1.0. */
#if NGTCP2_VERSION_NUM < 0x010000
#define FALLBACK_PATH
#define TOKEN(of)	 (of)->token.base
#define TOKEN_LENGTH(of) (of)->token.len
typedef ngtcp2_connection_close_error ngtcp2_ccerr;
#define ngtcp2_ccerr_set_application_error ngtcp2_connection_close_error_set_application_error
#define ngtcp2_ccerr_set_liberr		   ngtcp2_connection_close_error_set_transport_error_liberr
#else
#define FALLBACK_PATH	 const ngtcp2_path *fallback __attribute__((unused)),
#define TOKEN(of)	 (of)->token
#define TOKEN_LENGTH(of) (of)->tokenlen
#endif

/* Bytes of a stream that were received and whose echo is not acknowledged yet. */
struct chunk {
	struct chunk *next;
	size_t length;
	uint8_t bytes[];
};

struct stream {
	struct stream *next;
	int64_t id;
	struct chunk *first, *unsent;
	size_t sent_of_unsent, acked_of_first;
	bool finished, end_sent, blocked;
};

struct connection {
	struct connection *next;
	ngtcp2_conn *quic;
	ngtcp2_crypto_conn_ref reference;
	gnutls_session_t tls;
	ngtcp2_cid ids[MAX_IDS];
	size_t id_count;
	struct stream *streams;
	bool told, refused, over;
	void *context;
};

static struct {
	int socket;
	struct sockaddr_in6 local;
	gnutls_certificate_credentials_t credentials;
	uint8_t secret[32];
	const struct server_callbacks *callbacks;
	struct connection *connections;
} server;

static ngtcp2_tstamp now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (ngtcp2_tstamp)time.tv_sec * NGTCP2_SECONDS + (ngtcp2_tstamp)time.tv_nsec;
}

static void random_bytes(uint8_t *to, size_t length, const ngtcp2_rand_ctx *context)
{
	(void)context;
	if (gnutls_rnd(GNUTLS_RND_RANDOM, to, length) != 0)
		abort();
}

/* Streams. */

static void free_stream(struct stream *stream)
{
	while (stream->first) {
		struct chunk *chunk = stream->first;

		stream->first = chunk->next;
		free(chunk);
	}
	free(stream);
}

static int on_stream_open(ngtcp2_conn *quic, int64_t id, void *user)
{
	struct connection *connection = user;
	struct stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NGTCP2_ERR_CALLBACK_FAILURE;
	stream->id = id;
	stream->next = connection->streams;
	connection->streams = stream;
	return ngtcp2_conn_set_stream_user_data(quic, id, stream) ? NGTCP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_data(ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t offset,
			  const uint8_t *data, size_t length, void *user, void *stream_user)
{
	struct stream *stream = stream_user;
	struct chunk *chunk, **end = &stream->first;

	(void)quic, (void)id, (void)offset, (void)user;
	if (length > 0) {
		chunk = malloc(sizeof(*chunk) + length);
		if (!chunk)
			return NGTCP2_ERR_CALLBACK_FAILURE;
		chunk->next = NULL;
		chunk->length = length;
		memcpy(chunk->bytes, data, length);
		while (*end)
			end = &(*end)->next;
		*end = chunk;
		if (!stream->unsent)
			stream->unsent = chunk;
	}
	stream->finished |= flags & NGTCP2_STREAM_DATA_FLAG_FIN;
	return 0;
}

/* The client has acknowledged echoed bytes, so it gets credit for the same number of new bytes. */
static int on_stream_acked(ngtcp2_conn *quic, int64_t id, uint64_t offset, uint64_t length,
			   void *user, void *stream_user)
{
	struct stream *stream = stream_user;

	(void)offset, (void)user;
	if (!stream)
		return 0;
	stream->acked_of_first += length;
	while (stream->first && stream->first != stream->unsent &&
	       stream->acked_of_first >= stream->first->length) {
		struct chunk *chunk = stream->first;

		stream->acked_of_first -= chunk->length;
		stream->first = chunk->next;
		free(chunk);
	}
	ngtcp2_conn_extend_max_offset(quic, length);
	return stream->finished ? 0 : ngtcp2_conn_extend_max_stream_offset(quic, id, length);
}

static int on_stream_close(ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t code, void *user,
			   void *stream_user)
{
	struct connection *connection = user;
	struct stream **at = &connection->streams;

	(void)flags, (void)id, (void)code;
	while (*at && *at != stream_user)
		at = &(*at)->next;
	if (*at) {
		struct stream *closed = *at;

		*at = closed->next;
		free_stream(closed);
		ngtcp2_conn_extend_max_streams_bidi(quic, 1);
	}
	return 0;
}

/* Connections. */

static int on_handshake_completed(ngtcp2_conn *quic, void *user)
{
	struct connection *connection = user;
	const ngtcp2_path *path = ngtcp2_conn_get_path(quic);

	connection->told = true;
	connection->refused = server.callbacks->on_new_conn(path->remote.addr, path->remote.addrlen,
							    &connection->context) != 0;
	return 0;
}

static int on_path_validation(ngtcp2_conn *quic, uint32_t flags, const ngtcp2_path *validated,
			      FALLBACK_PATH ngtcp2_path_validation_result result, void *user)
{
	struct connection *connection = user;

	(void)flags;
	/*
	 * The current path may be another one. All that is known of it is that a packet arrived
	 * there.
	 */
	if (result == NGTCP2_PATH_VALIDATION_RESULT_SUCCESS && connection->told &&
	    server.callbacks->on_conn_moved &&
	    ngtcp2_path_eq(validated, ngtcp2_conn_get_path(quic)))
		connection->refused |= server.callbacks->on_conn_moved(
			connection->context, validated->remote.addr, validated->remote.addrlen);
	return 0;
}

/* -- eQUIC IDs: the application makes the connection IDs if it has a callback for them. */
static int make_id(uint8_t *id, size_t length)
{
	if (server.callbacks->on_new_id)
		return server.callbacks->on_new_id(id, length);
	random_bytes(id, length, NULL);
	return 0;
}
/* -- */

/* There is always room, because ngtcp2 gives a client at most active_connection_id_limit IDs. */
static int add_id(struct connection *connection, const ngtcp2_cid *id)
{
	if (connection->id_count == MAX_IDS)
		return NGTCP2_ERR_CALLBACK_FAILURE;
	connection->ids[connection->id_count++] = *id;
	return 0;
}

static int on_new_id(ngtcp2_conn *quic, ngtcp2_cid *id, uint8_t *token, size_t length, void *user)
{
	(void)quic;
	id->datalen = length;
	if (make_id(id->data, length) || ngtcp2_crypto_generate_stateless_reset_token(
						 token, server.secret, sizeof(server.secret), id))
		return NGTCP2_ERR_CALLBACK_FAILURE;
	return add_id(user, id);
}

static int on_id_gone(ngtcp2_conn *quic, const ngtcp2_cid *id, void *user)
{
	struct connection *connection = user;

	(void)quic;
	for (size_t i = 0; i < connection->id_count; i++)
		if (ngtcp2_cid_eq(&connection->ids[i], id))
			connection->ids[i] = connection->ids[--connection->id_count];
	return 0;
}

static ngtcp2_conn *of_reference(ngtcp2_crypto_conn_ref *reference)
{
	return ((struct connection *)reference->user_data)->quic;
}

static int begin_tls(struct connection *connection)
{
	static const char priority[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:"
				       "+AES-256-GCM:+CHACHA20-POLY1305:%DISABLE_TLS13_COMPAT_MODE";
	gnutls_datum_t echo = {(unsigned char *)"echo", 4};

	connection->reference.get_conn = of_reference;
	connection->reference.user_data = connection;
	if (gnutls_init(&connection->tls, GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET) ||
	    gnutls_priority_set_direct(connection->tls, priority, NULL) ||
	    ngtcp2_crypto_gnutls_configure_server_session(connection->tls) ||
	    gnutls_credentials_set(connection->tls, GNUTLS_CRD_CERTIFICATE, server.credentials) ||
	    gnutls_alpn_set_protocols(connection->tls, &echo, 1, GNUTLS_ALPN_MANDATORY))
		return -1;
	gnutls_session_set_ptr(connection->tls, &connection->reference);
	ngtcp2_conn_set_tls_native_handle(connection->quic, connection->tls);
	return 0;
}

static void end(struct connection *connection)
{
	if (connection->told)
		server.callbacks->on_conn_closed(connection->context);
	ngtcp2_conn_del(connection->quic);
	gnutls_deinit(connection->tls);
	while (connection->streams) {
		struct stream *stream = connection->streams;

		connection->streams = stream->next;
		free_stream(stream);
	}
	free(connection);
}

/* -- eQUIC Retry: IDs that the client compares with the Retry packet (RFC 9000 s.7.3). */
static int retried(const ngtcp2_pkt_hd *header, const ngtcp2_path *path, ngtcp2_settings *settings,
		   ngtcp2_transport_params *parameters)
{
	const struct initial_token token = {TOKEN(header), header->dcid.data, TOKEN_LENGTH(header),
					    header->dcid.datalen};
	uint8_t original[NGTCP2_MAX_CIDLEN];
	ssize_t length = 0;

	if (token.length > 0 && server.callbacks->on_token)
		length = server.callbacks->on_token(path->remote.addr, path->remote.addrlen, &token,
						    original);
	if (length > 0) {
		ngtcp2_cid_init(&parameters->original_dcid, original, (size_t)length);
		parameters->retry_scid = header->dcid;
		parameters->retry_scid_present = 1;
		TOKEN(settings) = TOKEN(header);
		TOKEN_LENGTH(settings) = TOKEN_LENGTH(header);
	}
	return length < 0 ? -1 : 0;
}
/* -- */

static struct connection *begin(const ngtcp2_pkt_hd *header, const ngtcp2_path *path)
{
	static const ngtcp2_callbacks callbacks = {
		.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb,
		.recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
		.encrypt = ngtcp2_crypto_encrypt_cb,
		.decrypt = ngtcp2_crypto_decrypt_cb,
		.hp_mask = ngtcp2_crypto_hp_mask_cb,
		.update_key = ngtcp2_crypto_update_key_cb,
		.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
		.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
		.get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
		.version_negotiation = ngtcp2_crypto_version_negotiation_cb,
		.rand = random_bytes,
		.get_new_connection_id = on_new_id,
		.remove_connection_id = on_id_gone,
		.handshake_completed = on_handshake_completed,
		.path_validation = on_path_validation,
		.stream_open = on_stream_open,
		.recv_stream_data = on_stream_data,
		.acked_stream_data_offset = on_stream_acked,
		.stream_close = on_stream_close,
	};
	struct connection *connection = calloc(1, sizeof(*connection));
	ngtcp2_transport_params parameters;
	ngtcp2_settings settings;
	ngtcp2_cid id = {.datalen = ID_LENGTH};

	if (!connection)
		return NULL;
	ngtcp2_settings_default(&settings);
	settings.initial_ts = now();
	ngtcp2_transport_params_default(&parameters);
	parameters.original_dcid = header->dcid;
#if NGTCP2_VERSION_NUM >= 0x010000
	parameters.original_dcid_present = 1;
#endif
	parameters.max_idle_timeout = IDLE_TIMEOUT;
	parameters.initial_max_streams_bidi = 100;
	parameters.initial_max_stream_data_bidi_remote = STREAM_WINDOW;
	parameters.initial_max_data = 4 * STREAM_WINDOW;
	if (make_id(id.data, id.datalen) != 0) {
		free(connection);
		return NULL;
	}
	if (retried(header, path, &settings, &parameters) != 0) { /* eQUIC Retry */
		free(connection);
		return NULL;
	}
	if (ngtcp2_conn_server_new(&connection->quic, &header->scid, &id, path, header->version,
				   &callbacks, &settings, &parameters, NULL, connection) != 0) {
		free(connection);
		return NULL;
	}
	/* Until it knows the server's ID, the client uses the ID that it chose itself. */
	if (begin_tls(connection) || add_id(connection, &id) || add_id(connection, &header->dcid)) {
		end(connection);
		return NULL;
	}
	connection->next = server.connections;
	server.connections = connection;
	return connection;
}

/* Sending and receiving. */

static void send_to(const ngtcp2_path *path, const uint8_t *bytes, ngtcp2_ssize length)
{
	/* If the system does not accept the packet, it counts as lost in the network. */
	if (length > 0)
		(void)!sendto(server.socket, bytes, (size_t)length, 0, path->remote.addr,
			      path->remote.addrlen);
}

/* Ends the connection, and sends one packet that tells the client. */
static void close_with(struct connection *connection, int error)
{
	uint8_t packet[1200];
	ngtcp2_path_storage path;
	ngtcp2_ccerr reason = {0};

	connection->over = true;
	if (error == NGTCP2_ERR_DRAINING || error == NGTCP2_ERR_DROP_CONN ||
	    error == NGTCP2_ERR_IDLE_CLOSE || error == NGTCP2_ERR_RETRY)
		return;
	if (error == 0)
		ngtcp2_ccerr_set_application_error(&reason, 1, (const uint8_t *)"too many", 8);
	else
		ngtcp2_ccerr_set_liberr(&reason, error, NULL, 0);
	ngtcp2_path_storage_zero(&path);
	send_to(&path.path, packet,
		ngtcp2_conn_write_connection_close(connection->quic, &path.path, NULL, packet,
						   sizeof(packet), &reason, now()));
}

static struct stream *next_to_send(struct connection *connection)
{
	for (struct stream *stream = connection->streams; stream; stream = stream->next)
		if (!stream->blocked && (stream->unsent || (stream->finished && !stream->end_sent)))
			return stream;
	return NULL;
}

static void was_sent(struct stream *stream, size_t length, bool with_end)
{
	stream->sent_of_unsent += length;
	if (stream->unsent && stream->sent_of_unsent == stream->unsent->length) {
		stream->unsent = stream->unsent->next;
		stream->sent_of_unsent = 0;
	}
	stream->end_sent |= with_end && !stream->unsent;
}

static void send_packets(struct connection *connection)
{
	uint8_t packet[1452];
	ngtcp2_path_storage path;

	for (struct stream *stream = connection->streams; stream; stream = stream->next)
		stream->blocked = false;
	ngtcp2_path_storage_zero(&path);
	while (!connection->over) {
		struct stream *stream = next_to_send(connection);
		struct chunk *chunk = stream ? stream->unsent : NULL;
		ngtcp2_vec bytes = {chunk ? chunk->bytes + stream->sent_of_unsent : NULL,
				    chunk ? chunk->length - stream->sent_of_unsent : 0};
		bool with_end = stream && stream->finished && (!chunk || !chunk->next);
		uint32_t flags =
			with_end ? NGTCP2_WRITE_STREAM_FLAG_FIN : NGTCP2_WRITE_STREAM_FLAG_NONE;
		ngtcp2_ssize taken = -1, length;

		length = ngtcp2_conn_writev_stream(
			connection->quic, &path.path, NULL, packet, sizeof(packet), &taken, flags,
			stream ? stream->id : -1, &bytes, chunk ? 1 : 0, now());
		if (stream && (length == NGTCP2_ERR_STREAM_DATA_BLOCKED ||
			       length == NGTCP2_ERR_STREAM_SHUT_WR ||
			       length == NGTCP2_ERR_STREAM_NOT_FOUND)) {
			stream->blocked = true;
			continue;
		}
		if (length < 0)
			return close_with(connection, (int)length);
		if (stream && taken >= 0)
			was_sent(stream, (size_t)taken, with_end);
		if (length == 0)
			return;
		send_to(&path.path, packet, length);
	}
}

static struct connection *whose(const uint8_t *id, size_t length)
{
	for (struct connection *connection = server.connections; connection;
	     connection = connection->next)
		for (size_t i = 0; i < connection->id_count; i++)
			if (connection->ids[i].datalen == length &&
			    memcmp(connection->ids[i].data, id, length) == 0)
				return connection;
	return NULL;
}

static void received(const uint8_t *packet, size_t length, struct sockaddr_in6 *from,
		     socklen_t from_length)
{
	ngtcp2_path path = {
		.local = {(struct sockaddr *)&server.local, sizeof(server.local)},
		.remote = {(struct sockaddr *)from, from_length},
	};
	struct connection *connection;
	ngtcp2_version_cid ids;
	ngtcp2_pkt_hd header;
	int error;

	/* The server does not answer malformed packets, nor packets of other versions. */
	if (ngtcp2_pkt_decode_version_cid(&ids, packet, length, ID_LENGTH) != 0)
		return;
	connection = whose(ids.dcid, ids.dcidlen);
	if (connection && connection->over)
		return;
	if (!connection) {
		if (ngtcp2_accept(&header, packet, length) != 0)
			return;
		connection = begin(&header, &path);
		if (!connection)
			return;
	}
	error = ngtcp2_conn_read_pkt(connection->quic, &path, NULL, packet, length, now());
	if (error != 0 || connection->refused)
		close_with(connection, error);
}

/*
 * Sends all packets that are due, and removes closed connections. Returns the milliseconds until
 * the next timer, or -1 without timers.
 */
static int look_after_all(void)
{
	ngtcp2_tstamp next = UINT64_MAX, time;

	for (struct connection **at = &server.connections, *connection; (connection = *at);) {
		if (!connection->over && ngtcp2_conn_get_expiry(connection->quic) <= now()) {
			int error = ngtcp2_conn_handle_expiry(connection->quic, now());

			if (error != 0)
				close_with(connection, error);
		}
		send_packets(connection);
		if (connection->over) {
			*at = connection->next;
			end(connection);
			continue;
		}
		time = ngtcp2_conn_get_expiry(connection->quic);
		next = time < next ? time : next;
		at = &connection->next;
	}
	time = now();
	if (next == UINT64_MAX)
		return -1;
	next = next > time ? (next - time) / NGTCP2_MILLISECONDS + 1 : 0;
	return next < 60000 ? (int)next : 60000;
}

/* Setting up. */

static int self_signed(void)
{
	time_t begins = time(NULL) - 86400, ends = begins + 30 * 86400;
	gnutls_x509_privkey_t key;
	gnutls_x509_crt_t certificate;

	return gnutls_x509_privkey_init(&key) || gnutls_x509_crt_init(&certificate) ||
	       gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
					    GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0) ||
	       gnutls_x509_crt_set_version(certificate, 3) ||
	       gnutls_x509_crt_set_serial(certificate, "\x01", 1) ||
	       gnutls_x509_crt_set_dn(certificate, "CN=localhost", NULL) ||
	       gnutls_x509_crt_set_activation_time(certificate, begins) ||
	       gnutls_x509_crt_set_expiration_time(certificate, ends) ||
	       gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, "localhost", 9,
						    GNUTLS_FSAN_SET) ||
	       gnutls_x509_crt_set_key(certificate, key) ||
	       gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0) ||
	       gnutls_certificate_allocate_credentials(&server.credentials) ||
	       gnutls_certificate_set_x509_key(server.credentials, &certificate, 1, key);
}

static int listen_on(const char *port)
{
	int off = 0;

	server.local.sin6_family = AF_INET6;
	server.local.sin6_port = htons((uint16_t)strtoul(port, NULL, 10));
	server.socket = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server.socket < 0 ||
	    setsockopt(server.socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0)
		return -1;
	return bind(server.socket, (struct sockaddr *)&server.local, sizeof(server.local));
}

int serve(const char *port, const struct server_callbacks *callbacks)
{
	struct pollfd wait = {.events = POLLIN};

	server.callbacks = callbacks;
	random_bytes(server.secret, sizeof(server.secret), NULL);
	if (self_signed() != 0) {
		fprintf(stderr, "server: no certificate can be made\n");
		return 1;
	}
	if (listen_on(port) != 0) {
		fprintf(stderr, "server: port %s: %s\n", port, strerror(errno));
		return 1;
	}
	printf("listening on port %s\n", port);
	fflush(stdout);
	wait.fd = server.socket;
	for (;;) {
		int timeout = look_after_all();

		if (poll(&wait, 1, timeout) < 0 && errno != EINTR)
			return 1;
		for (int i = 0; i < 64; i++) {
			uint8_t packet[65536];
			struct sockaddr_in6 from;
			socklen_t from_length = sizeof(from);
			ssize_t length = recvfrom(server.socket, packet, sizeof(packet), 0,
						  (struct sockaddr *)&from, &from_length);

			if (length < 0)
				break;
			received(packet, (size_t)length, &from, from_length);
		}
	}
}
