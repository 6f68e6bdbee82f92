/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * NewReno (RFC 9002 s.7) in place of the connection's own controller. It processes acknowledged and
 * lost packets, and sets window and slow start threshold. It handles one path only. */
#include <equic_plugin.h>

/* The window does not grow until a packet sent after this time is acknowledged. Signals about
 * earlier packets are ignored. */
static equic_u64 recovery_start;
/* Bytes acknowledged since the window grew by a datagram. */
static equic_u64 acked;

static void set(equic_u64 window)
{
	equic_set(EQUIC_CONGESTION_WINDOW, window);
}

equic_u64 on_acked(struct equic_congestion_acked *call)
{
	equic_u64 window = equic_get(EQUIC_CONTROLLER_WINDOW);

	if (call->in.app_limited)
		return EQUIC_DONE;
	if (recovery_start && equic_now() < recovery_start + equic_get(EQUIC_SMOOTHED_RTT))
		return EQUIC_DONE;
	if (window < equic_get(EQUIC_SLOW_START_THRESHOLD)) {
		set(window + call->in.bytes);
		return EQUIC_DONE;
	}
	acked += call->in.bytes;
	if (acked >= window) {
		acked -= window;
		set(window + equic_get(EQUIC_DATAGRAM_SIZE));
	}
	return EQUIC_DONE;
}

equic_u64 on_event(struct equic_congestion_event *call)
{
	equic_u64 window = equic_get(EQUIC_CONTROLLER_WINDOW) / 2;

	if (recovery_start && call->in.largest_sent <= recovery_start)
		return EQUIC_DONE;
	recovery_start = equic_now();
	acked = 0;
	set(window);
	/* Read the window again, because the transport limits it to at least two datagrams. */
	equic_set(EQUIC_SLOW_START_THRESHOLD, equic_get(EQUIC_CONTROLLER_WINDOW));
	return EQUIC_DONE;
}
