/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Reports figures of a connection to the application every 100 milliseconds: for each path a
 * message of 72 bytes, nine numbers in the byte order of the machine. */
#include <equic_plugin.h>

/* Maximum number of paths that are reported. Paths with larger numbers are left out. */
#define PATHS 8

static const equic_u64 interval = 100 * EQUIC_MILLISECOND;

static struct figures {
	equic_u64 now;
	equic_u64 smoothed_rtt;
	/* The largest sample since the last message. */
	equic_u64 largest_rtt;
	equic_u64 samples;
	equic_u64 window;
	equic_u64 in_flight;
	/* Bytes sent on the whole connection. */
	equic_u64 bytes_sent;
	/* Number of packets declared lost since the last message. */
	equic_u64 lost;
	equic_u64 path;
} paths[PATHS];

/* Returns the figures of a path. Those of another path at this place are obsolete. */
static struct figures *of_path(equic_u64 path)
{
	struct figures *figures = &paths[path & (PATHS - 1)];

	if (figures->path != path) {
		figures->largest_rtt = figures->samples = figures->lost = 0;
		figures->path = path;
	}
	return figures;
}

equic_u64 start(void)
{
	equic_set_timer(equic_now() + interval);
	return EQUIC_DONE;
}

equic_u64 on_rtt(struct equic_update_rtt *call)
{
	struct figures *figures = of_path(call->in.path);

	figures->samples++;
	if (call->in.sample > figures->largest_rtt)
		figures->largest_rtt = call->in.sample;
	return 0;
}

equic_u64 on_lost(struct equic_packet_lost *call)
{
	of_path(call->in.path)->lost++;
	return 0;
}

equic_u64 on_timer(void)
{
	equic_u64 path = 0;

	for (equic_u64 count = 0; count < PATHS; count++) {
		struct figures *figures;

		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		figures = of_path(path);
		figures->now = equic_now();
		figures->smoothed_rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path);
		figures->window = equic_get_of(EQUIC_CONGESTION_WINDOW, path);
		figures->in_flight = equic_get_of(EQUIC_BYTES_IN_FLIGHT, path);
		figures->bytes_sent = equic_get(EQUIC_BYTES_SENT);
		/* If too many messages are waiting, keep the figures for the next message. */
		if (equic_tell(figures, sizeof(*figures)))
			figures->largest_rtt = figures->samples = figures->lost = 0;
		path++;
	}
	equic_set_timer(equic_now() + interval);
	return EQUIC_DONE;
}
