/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A network for one test. The test's process moves to a new network namespace with an interface
 * eth0. Its other end is in the namespace of a peer process. Both namespaces disappear when the
 * processes end.
 *
 *     here  10.0.0.1  2001:db8:1::1        peer  10.0.0.2  10.0.0.3  2001:db8:1::2
 */
#ifndef EQUIC_NETWORK_H
#define EQUIC_NETWORK_H

#include "check.h"

#include <stdint.h>

/* Creates the network. Fails the test on errors. */
void network_make(void);

enum packet { SHORT_HEADER, INITIAL };

/* Makes the peer send datagrams from one of its addresses to port 443 here. They have been sent
 * on return. */
void peer_sends(const char *from, enum packet packet, unsigned count);
/* Returns a socket on port 443 here, for IPv4 and IPv6. */
int listen_here(void);
/* Receives datagrams until the first one from `last`. Returns how many came from `from` before
 * it. Addresses are text. */
unsigned arrived_before(int socket, const char *from, const char *last);

/* Returns the ID of the XDP program on an interface here, or 0 without a program. `native` may be
 * NULL. */
uint32_t program_on(const char *interface, bool *native);
/* Runs a command. Fails the test if the command fails. */
void command(const char *const *arguments);
#define RUN(...) command((const char *const[]){__VA_ARGS__, NULL})

/* Attaches another XDP program, which passes all packets. It stays attached until the descriptor
 * is closed. */
int attach_foreign_program(const char *interface);

#endif
