/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Acknowledges seldom: after 20 packets, or when what came first waits for three quarters of a
 * round trip. The transport holds it to the max_ack_delay that the peer was told. While there is no
 * round trip to go by, and in the handshake, nothing changes. */
#include <equic_plugin.h>

/* Spaces below are those of the handshake. */
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
