/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Limits the rate of one path of several, such as the path over a mobile network, to RATE bytes per
 * second on the path with the ID PATH, which is the same at both ends. Both are set at compile
 * time (clang -DPATH=1 -DRATE=3000000), so a client can push the limit to a server. The
 * application changes them with a message of 16 bytes: path ID and rate in the byte order of the
 * machine. The connection's own controller still applies below the limit. */
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

/* At most two round trips' worth of the rate is in flight, so that queues stay short. */
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
