/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Tail loss probe (draft-dukkipati-tcpm-tcp-loss-probe): when the last packets of a flight are
 * lost, no later packet reveals the loss. This plugin sends the first probe after two round trips.
 * The probe timeout of RFC 9002 waits for a round trip, four times its variation and the delay of
 * acknowledgements. The plugin helps when round-trip times vary. */
#include <equic_plugin.h>

static equic_u64 most(equic_u64 a, equic_u64 b)
{
	return a > b ? a : b;
}

equic_u64 set_timer(struct equic_set_timer *call)
{
	equic_u64 sent = equic_get(EQUIC_LAST_ELICITING_SENT);
	equic_u64 rtt = equic_get(EQUIC_SMOOTHED_RTT);
	equic_u64 delay = equic_get(EQUIC_PEER_MAX_ACK_DELAY);
	equic_u64 usual = rtt + most(4 * equic_get(EQUIC_RTT_VARIATION), EQUIC_MILLISECOND) + delay;
	equic_u64 wait = 2 * rtt;

	/* The timer has another reason, or this is not the first probe. */
	if (!equic_get(EQUIC_CONFIRMED) || sent == EQUIC_NONE ||
	    equic_get(EQUIC_LOSS_TIME) != EQUIC_NONE)
		return EQUIC_DEFAULT;
	if (equic_get(EQUIC_PTO_COUNT))
		return EQUIC_DEFAULT;
	/* The peer delays the acknowledgement of a single packet. */
	if (equic_get(EQUIC_BYTES_IN_FLIGHT) <= equic_get(EQUIC_DATAGRAM_SIZE))
		wait = most(wait, rtt + rtt / 2 + delay);
	if (wait >= usual)
		return EQUIC_DEFAULT;
	call->out.at = sent + wait;
	return EQUIC_DONE;
}
