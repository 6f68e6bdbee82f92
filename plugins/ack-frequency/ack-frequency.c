/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Asks the peer for four acknowledgements per round trip (draft-ietf-quic-ack-frequency s.7.1), for
 * paths with a slow return direction or costly radio transmissions. In slow start it asks for
 * eight, because HyStart++ needs them (RFC 9406 s.4.2). While the window has few packets, the
 * transport's own request applies. */
#include <equic_plugin.h>

equic_u64 request(struct equic_request_ack_frequency *call)
{
	equic_u64 window = equic_get(EQUIC_CONTROLLER_WINDOW);
	equic_u64 packets = window / equic_get(EQUIC_DATAGRAM_SIZE);
	equic_u64 acks = window < equic_get(EQUIC_SLOW_START_THRESHOLD) ? 8 : 4;

	if (packets < 4 * acks)
		return EQUIC_DEFAULT;
	/* An acknowledgement is due when more than this many packets wait for one. */
	call->out.threshold = packets / acks - 1;
	call->out.max_delay = equic_get(EQUIC_SMOOTHED_RTT) / acks;
	/* A gap of three packets is reported at once, because loss detection needs that. */
	call->out.reordering = 3;
	return EQUIC_DONE;
}
