/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Asks the peer for four acknowledgements a round trip (draft-ietf-quic-ack-frequency s.7.1), for
 * paths on which the way back is narrow, or a radio's turn dear; in slow start for eight, which
 * HyStart++ wants (RFC 9406 s.4.2). While there are few packets in a window, the transport's own
 * wish holds. */
#include <equic_plugin.h>

equic_u64 request(struct equic_request_ack_frequency *call)
{
	equic_u64 window = equic_get(EQUIC_CONTROLLER_WINDOW);
	equic_u64 packets = window / equic_get(EQUIC_DATAGRAM_SIZE);
	equic_u64 acks = window < equic_get(EQUIC_SLOW_START_THRESHOLD) ? 8 : 4;

	if (packets < 4 * acks)
		return EQUIC_DEFAULT;
	/* One is due once more than so many wait. */
	call->out.threshold = packets / acks - 1;
	call->out.max_delay = equic_get(EQUIC_SMOOTHED_RTT) / acks;
	/* A packet that is three late is reported at once, as loss detection wants it. */
	call->out.reordering = 3;
	return EQUIC_DONE;
}
