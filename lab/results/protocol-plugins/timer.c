/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Timers of the paper's time, for a stack that has today's: the retransmission timer that picoquic
 * had in 2018, and with PROBE the tail loss probe before it. LEAST is the shortest time that the
 * retransmission timer waits: picoquic had 50 ms, the paper's formula has none. `equic-lab
 * reproduce plugins` compiles this with a value for each. */
#include <equic_plugin.h>

static equic_u64 most(equic_u64 a, equic_u64 b)
{
	return a > b ? a : b;
}

equic_u64 set_timer(struct equic_set_timer *call)
{
	equic_u64 sent = equic_get(EQUIC_LAST_ELICITING_SENT);
	equic_u64 rtt = equic_get(EQUIC_SMOOTHED_RTT);
	/* The worst-case delayed-ack timer (WDT) of the paper. */
	equic_u64 delay = equic_get(EQUIC_PEER_MAX_ACK_DELAY);
	equic_u64 wait = most(rtt + 4 * equic_get(EQUIC_RTT_VARIATION) + delay, LEAST);

	/* Loss detection waits for another reason, or this was not the first timeout. */
	if (!equic_get(EQUIC_CONFIRMED) || sent == EQUIC_NONE ||
	    equic_get(EQUIC_LOSS_TIME) != EQUIC_NONE || equic_get(EQUIC_PTO_COUNT))
		return EQUIC_DEFAULT;
	if (PROBE) {
		equic_u64 probe = 2 * rtt;

		/* A single packet is acknowledged late. */
		if (equic_get(EQUIC_BYTES_IN_FLIGHT) <= equic_get(EQUIC_DATAGRAM_SIZE))
			probe = most(probe, rtt + rtt / 2 + delay);
		if (probe < wait)
			wait = probe;
	}
	call->out.at = sent + wait;
	return EQUIC_DONE;
}
