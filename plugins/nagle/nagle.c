/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Nagle's algorithm (RFC 896): stream data that does not fill a packet waits while data is in
 * flight, so that many small writes make few packets. Other content does not wait. When an
 * acknowledgement is due, data was lost, or a probe is due, packets leave as usual and carry the
 * waiting data. The transport limits the wait to a second. */
#include <equic_plugin.h>

/* Packet number spaces below this one belong to the handshake. */
#define APPLICATION 2

/* 1 if an ack-eliciting packet has arrived and no packet was sent since. */
static equic_u64 owed;
/* Number of lost packets when the last packet was sent. */
static equic_u64 lost;

equic_u64 on_received(struct equic_after_parse_frames *call)
{
	owed |= call->in.ack_eliciting;
	return 0;
}

equic_u64 on_sent(struct equic_send_packet *call)
{
	if (call->in.space >= APPLICATION) {
		owed = 0;
		lost = equic_get(EQUIC_PACKETS_LOST);
	}
	return 0;
}

equic_u64 has_content(struct equic_has_content *call)
{
	equic_u64 unsent = equic_get(EQUIC_BYTES_UNSENT);

	if (call->in.space < APPLICATION || owed || !unsent ||
	    unsent >= equic_get(EQUIC_DATAGRAM_SIZE) || !equic_get(EQUIC_BYTES_IN_FLIGHT))
		return EQUIC_DEFAULT;
	if (equic_get(EQUIC_PTO_COUNT) || equic_get(EQUIC_PACKETS_LOST) != lost)
		return EQUIC_DEFAULT;
	call->out.yes = 0;
	return EQUIC_DONE;
}
