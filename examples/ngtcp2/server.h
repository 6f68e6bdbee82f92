/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A QUIC server in C that notifies its application about connections through a structure of
 * callbacks, as servers with lsquic, picoquic or ngtcp2 do. It echoes every stream.
 */
#ifndef SERVER_H
#define SERVER_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

struct initial_token {
	const uint8_t *bytes, *dcid;
	size_t length, dcid_length;
};

struct server_callbacks {
	/*
	 * Called when the handshake with a client is complete. The value that the callback stores
	 * in *context is passed to on_conn_moved and on_conn_closed. If the callback returns
	 * non-zero, the connection is closed at once, and on_conn_closed is called.
	 */
	int (*on_new_conn)(const struct sockaddr *peer, socklen_t length, void **context);
	/*
	 * Called when the client has moved to another address, which is validated. If the callback
	 * returns non-zero, the connection is closed. May be NULL.
	 */
	int (*on_conn_moved)(void *context, const struct sockaddr *peer, socklen_t length);
	/* Called when the connection is closed, by either side or by the idle timeout. */
	void (*on_conn_closed)(void *context);
	/*
	 * Called if a client's Initial packet has a token. If the client has received a Retry
	 * packet, the callback writes the Destination Connection ID of the client's first packet to
	 * `original`, which has room for 20 bytes, and returns its length. It returns 0 to ignore
	 * the token, and -1 to drop the packet. If it is NULL, all tokens are ignored.
	 */
	ssize_t (*on_token)(const struct sockaddr *peer, socklen_t length,
			    const struct initial_token *token, uint8_t *original);
	/*
	 * Makes a connection ID of 12 bytes. Returns non-zero if it cannot. If it is NULL, IDs are
	 * random.
	 */
	int (*on_new_id)(uint8_t *id, size_t length);
};

/* Listens on a UDP port of all addresses. Returns only if that fails. */
int serve(const char *port, const struct server_callbacks *callbacks);

#endif
