/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A QUIC server in C that tells its application who comes and goes, as those on lsquic, picoquic or
 * ngtcp2 do: by a structure of callbacks. It echoes every stream.
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
	 * The handshake with a client is complete. What is left in *context is given to the other
	 * two. Not 0: the connection is closed at once, and on_conn_closed called.
	 */
	int (*on_new_conn)(const struct sockaddr *peer, socklen_t length, void **context);
	/*
	 * The client has another address, where it has proved that it receives. Not 0: the
	 * connection is closed. NULL: nothing is to be done.
	 */
	int (*on_conn_moved)(void *context, const struct sockaddr *peer, socklen_t length);
	/* The connection is closed, by either side or because nothing came for too long. */
	void (*on_conn_closed)(void *context);
	/*
	 * A client's Initial packet has a token. If the client was sent a Retry packet, the
	 * Destination Connection ID of its first packet is written to `original`, where there is
	 * room for 20 bytes, and its length returned. 0: the token is to be ignored; -1: the packet
	 * is. NULL: all tokens are ignored.
	 */
	ssize_t (*on_token)(const struct sockaddr *peer, socklen_t length,
			    const struct initial_token *token, uint8_t *original);
	/* Makes a connection ID of 12 bytes. Not 0: it cannot. NULL: they are random. */
	int (*on_new_id)(uint8_t *id, size_t length);
};

/* Listens on a UDP port of all addresses. Returns only if it cannot. */
int serve(const char *port, const struct server_callbacks *callbacks);

#endif
