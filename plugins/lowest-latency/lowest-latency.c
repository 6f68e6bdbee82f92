/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A packet scheduler: data goes on the path with the lowest round-trip time of those that have
 * room. The connection's own scheduler does the same by default (Scheduler::LowestRtt), so this
 * plugin shows the cost of scheduling by bytecode. */
#include <equic_plugin.h>

/* Maximum number of paths that are examined. */
#define PATHS 8

/* Number of datagrams at the same instant that follow a choice, because its inputs are the same. */
#define MORE 15

equic_u64 choose(struct equic_select_path *call)
{
	equic_u64 path = 0, best = EQUIC_NONE, lowest = EQUIC_NONE;

	for (equic_u64 count = 0; count < PATHS; count++) {
		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		/* The path can carry data, is not a backup, and the peer has answered on it. */
		if (equic_get_of(EQUIC_PATH_STATUS, path) == 1) {
			equic_u64 rtt = equic_get_of(EQUIC_SMOOTHED_RTT, path);

			if (rtt < lowest && equic_get_of(EQUIC_PATH_ROOM, path)) {
				best = path;
				lowest = rtt;
			}
		}
		path++;
	}
	if (best == EQUIC_NONE)
		return EQUIC_DEFAULT;
	equic_set(EQUIC_CHOICE_HOLDS, MORE);
	call->out.path = best;
	return EQUIC_DONE;
}
