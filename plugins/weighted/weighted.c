/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A packet scheduler by cost. Paths with the lowest label (EQUIC_PATH_COST, which the application
 * sets) carry as much data as they have room for, the path with the lowest round-trip time first.
 * A path with a higher label c carries at most (1 + lowest) / (1 + c) of the bytes of those paths.
 * With labels 0 and 3, that is a quarter. */
#include <equic_plugin.h>

/* Maximum number of paths that are examined. */
#define PATHS 8

/* Bytes that a path may be ahead of its share. */
#define SLACK 16384

/* Larger labels count as this one. */
#define DEAREST 65535

static equic_u64 cost_of(equic_u64 path)
{
	equic_u64 cost = equic_get_of(EQUIC_PATH_COST, path);

	return cost < DEAREST ? cost : DEAREST;
}

/* Returns whether a path can carry data, is not a backup, and the peer has answered on it. */
static int works(equic_u64 path)
{
	return equic_get_of(EQUIC_PATH_STATUS, path) == 1;
}

equic_u64 choose(struct equic_select_path *call)
{
	equic_u64 path = 0, lowest = EQUIC_NONE, carried = 0, cheap = EQUIC_NONE;
	equic_u64 best = EQUIC_NONE, best_cost = EQUIC_NONE, best_rtt = EQUIC_NONE;

	for (equic_u64 count = 0; count < PATHS; count++, path++) {
		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		if (!works(path) || cost_of(path) > lowest)
			continue;
		if (cost_of(path) < lowest)
			carried = 0;
		lowest = cost_of(path);
		carried += equic_get_of(EQUIC_PATH_BYTES_SENT, path);
		cheap = path;
	}
	if (cheap == EQUIC_NONE)
		return EQUIC_DEFAULT;
	path = 0;
	for (equic_u64 count = 0; count < PATHS; count++, path++) {
		equic_u64 cost, rtt, sent;

		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		if (!works(path) || !equic_get_of(EQUIC_PATH_ROOM, path))
			continue;
		cost = cost_of(path);
		rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path);
		sent = equic_get_of(EQUIC_PATH_BYTES_SENT, path);
		if (cost > lowest && sent * (1 + cost) > (carried + SLACK) * (1 + lowest))
			continue;
		if (cost < best_cost || (cost == best_cost && rtt < best_rtt)) {
			best = path;
			best_cost = cost;
			best_rtt = rtt;
		}
	}
	/* If no permitted path has room, data waits for a cheap one. */
	call->out.path = best == EQUIC_NONE ? cheap : best;
	return EQUIC_DONE;
}
