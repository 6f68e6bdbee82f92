/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The listing of the paper "eQUIC Gateway". Only the parts that its comments leave out were added:
 * the headers, and an application that waits.
 *
 *     cc paper.c $(pkg-config --cflags --libs equic) -o paper && sudo ./paper
 */
#include <equic.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{ /* Some User Space application code */

	/* eQUIC initialization and setup */
	equic_t equic;
	equic_get_interface(&equic, "eth0");
	equic_read_object(&equic, "equic_kern.o");

	signal(SIGINT, equic_sigint_callback);
	signal(SIGTERM, equic_sigterm_callback);

	equic_load(&equic);

	/* More User Space application code */
	for (;;)
		pause();
}
