/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Figures of a connection, every 100 milliseconds, to the application: a message of 64 bytes, eight
 * numbers in the byte order of the machine. */
#include <equic_plugin.h>

static const equic_u64 interval = 100 * EQUIC_MILLISECOND;

static struct {
	equic_u64 now;
	equic_u64 smoothed_rtt;
	/* The largest sample since the message before. */
	equic_u64 largest_rtt;
	equic_u64 samples;
	equic_u64 window;
	equic_u64 in_flight;
	equic_u64 bytes_sent;
	/* Packets given up as lost since the message before. */
	equic_u64 lost;
} figures;

equic_u64 start(void)
{
	equic_set_timer(equic_now() + interval);
	return 0;
}

equic_u64 on_rtt(struct equic_update_rtt *call)
{
	figures.samples++;
	if (call->in.sample > figures.largest_rtt)
		figures.largest_rtt = call->in.sample;
	return 0;
}

equic_u64 on_lost(void)
{
	figures.lost++;
	return 0;
}

equic_u64 on_timer(void)
{
	figures.now = equic_now();
	figures.smoothed_rtt = equic_get(EQUIC_SMOOTHED_RTT);
	figures.window = equic_get(EQUIC_CONGESTION_WINDOW);
	figures.in_flight = equic_get(EQUIC_BYTES_IN_FLIGHT);
	figures.bytes_sent = equic_get(EQUIC_BYTES_SENT);
	/* If the application takes no messages, these figures go on with the next one. */
	if (equic_tell(&figures, sizeof(figures)))
		figures.largest_rtt = figures.samples = figures.lost = 0;
	equic_set_timer(figures.now + interval);
	return 0;
}
