/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A packet scheduler for data that must arrive within DEADLINE milliseconds after it was written.
 * Data goes on the paths without cost while these are fast enough, and otherwise also on backups
 * and on paths with a cost label (EQUIC_PATH_COST). The application changes the time with a
 * message of 8 bytes: nanoseconds in the byte order of the machine. */
#include <equic_plugin.h>

#ifndef DEADLINE
#define DEADLINE 200
#endif

/* Maximum number of paths that are examined. */
#define PATHS 8

static equic_u64 patience = DEADLINE * EQUIC_MILLISECOND;
/* Time by which all waiting data must have arrived. */
static equic_u64 due;

equic_u64 on_written(struct equic_application_wrote *call)
{
	/* New data arrives in time only if the data that waits before it does. */
	if (equic_get(EQUIC_BYTES_UNSENT) <= call->in.bytes)
		due = equic_now() + patience;
	return 0;
}

/* Returns the bytes per millisecond that a path carries, from its window and round-trip time. */
static equic_u64 speed(equic_u64 path)
{
	equic_u64 rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path) / EQUIC_MICROSECOND;

	return equic_get_of(EQUIC_CONGESTION_WINDOW, path) * 1000 / (rtt + 1);
}

/* Returns whether using a path has a cost. */
static int is_dear(equic_u64 path)
{
	return equic_get_of(EQUIC_PATH_COST, path) || equic_get_of(EQUIC_PATH_STATUS, path) & 2;
}

equic_u64 choose(struct equic_select_path *call)
{
	equic_u64 path = 0, free = EQUIC_NONE, rate = 0, slowest = 0;
	equic_u64 best = EQUIC_NONE, lowest = EQUIC_NONE;
	int late;

	for (equic_u64 count = 0; count < PATHS; count++, path++) {
		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		if (equic_get_of(EQUIC_PATH_STATUS, path) == 1 && !is_dear(path)) {
			equic_u64 rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path);

			free = path;
			rate += speed(path);
			slowest = rtt > slowest ? rtt : slowest;
		}
	}
	late = free == EQUIC_NONE ||
	       equic_now() + slowest / 2 +
			       equic_get(EQUIC_BYTES_UNSENT) * EQUIC_MILLISECOND / (rate + 1) >
		       due;
	path = 0;
	for (equic_u64 count = 0; count < PATHS; count++, path++) {
		equic_u64 rtt;

		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		/* The path can carry data, and the peer has answered on it. */
		if ((equic_get_of(EQUIC_PATH_STATUS, path) & 5) != 1 || (is_dear(path) && !late))
			continue;
		rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path);
		if (rtt < lowest && equic_get_of(EQUIC_PATH_ROOM, path)) {
			best = path;
			lowest = rtt;
		}
	}
	if (best == EQUIC_NONE && free == EQUIC_NONE)
		return EQUIC_DEFAULT;
	/* If no permitted path has room, data waits for a path without cost. */
	call->out.path = best == EQUIC_NONE ? free : best;
	return EQUIC_DONE;
}

equic_u64 on_message(struct equic_hook_message *call, const equic_u64 *time, equic_u64 length)
{
	(void)call;
	if (length == 8)
		patience = time[0];
	return EQUIC_DONE;
}
