/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A network for one test: the test's process moves to a network namespace of its own, with an
 * interface eth0 whose other end is in the namespace of a peer process. Both namespaces, and all in
 * them, go when the processes end.
 *
 *     here  10.0.0.1  2001:db8:1::1        peer  10.0.0.2  10.0.0.3  2001:db8:1::2
 */
#ifndef EQUIC_NETWORK_H
#define EQUIC_NETWORK_H

#include "check.h"

#include <stdint.h>

/* Builds it. Fails the test if it cannot. */
void network_make(void);

enum packet { SHORT_HEADER, INITIAL };

/* The peer sends datagrams from one of its addresses to port 443 here, and has done so on return.
 */
void peer_sends(const char *from, enum packet packet, unsigned count);
/* A socket on port 443 here, for both families. */
int listen_here(void);
/* The sources of the datagrams that arrive, as text, until the first one from `last`: how many came
 * before it from `from`. */
unsigned arrived_before(int socket, const char *from, const char *last);

/* The id of the XDP program on an interface here; 0: none. `native` may be NULL. */
uint32_t program_on(const char *interface, bool *native);
/* Runs a command and fails the test if it fails. */
void command(const char *const *arguments);
#define RUN(...) command((const char *const[]){__VA_ARGS__, NULL})

/* An XDP program of somebody else that passes everything: it stays until the descriptor is closed.
 */
int attach_foreign_program(const char *interface);

#endif
