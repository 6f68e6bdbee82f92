/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A cap on the rate of one path of several, such as the one over a mobile network: no more than
 * RATE bytes a second on the path with path ID PATH, which is the same at both ends. Both are set
 * when it is compiled (clang -DPATH=1 -DRATE=3000000), so a client can have a server do so; the
 * application sets them anew with a message of 16 bytes: path ID and rate in the byte order of the
 * machine. What the connection's own controller wants below the cap holds. */
#include <equic_plugin.h>

#ifndef PATH
#define PATH 1
#endif
#ifndef RATE
#define RATE 3000000
#endif

static equic_u64 capped = PATH;
static equic_u64 rate = RATE;

static equic_u64 least(equic_u64 a, equic_u64 b)
{
	return a < b ? a : b;
}

/* In flight is at most what the rate gives in two round trips: queues are no place to keep more. */
equic_u64 window(struct equic_congestion_window *call)
{
	equic_u64 most;

	if (equic_get_of(EQUIC_PATH_ID, call->in.path) != capped)
		return EQUIC_DEFAULT;
	most = equic_get_of(EQUIC_SMOOTHED_RTT, call->in.path) / EQUIC_MICROSECOND * rate / 500000;
	call->out.bytes = least(equic_get_of(EQUIC_CONTROLLER_WINDOW, call->in.path), most);
	return EQUIC_DONE;
}

equic_u64 pace(struct equic_pacing_rate *call)
{
	if (equic_get_of(EQUIC_PATH_ID, call->in.path) != capped)
		return EQUIC_DEFAULT;
	call->out.rate = least(equic_get_of(EQUIC_CONTROLLER_PACING_RATE, call->in.path), rate);
	return EQUIC_DONE;
}

equic_u64 on_message(struct equic_hook_message *call, const equic_u64 *numbers, equic_u64 length)
{
	(void)call;
	if (length == 16) {
		capped = numbers[0];
		rate = numbers[1];
	}
	return EQUIC_DONE;
}
