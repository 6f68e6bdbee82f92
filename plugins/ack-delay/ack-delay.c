/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Acknowledges rarely: after 20 packets, or when the first packet has waited for three quarters of
 * a round trip. The transport limits the delay to the declared max_ack_delay. In the handshake,
 * and without a round-trip sample, nothing changes. */
#include <equic_plugin.h>

/* Packet number spaces below this one belong to the handshake. */
#define APPLICATION 2

equic_u64 policy(struct equic_ack_policy *call)
{
	equic_u64 rtt = equic_get(EQUIC_SMOOTHED_RTT);

	if (call->in.space < APPLICATION || !equic_get(EQUIC_CONFIRMED) || !rtt)
		return EQUIC_DEFAULT;
	call->out.threshold = 20;
	call->out.max_delay = rtt / 4 * 3;
	call->out.reordering = 1;
	return EQUIC_DONE;
}
