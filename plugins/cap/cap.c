/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Limits window and pacing, at first to 30,000 bytes in flight and 500,000 bytes per second. The
 * application changes the limits with a message of 16 bytes: these two numbers in the byte order of
 * the machine. The connection's own controller still applies below the limits. */
#include <equic_plugin.h>

static equic_u64 most_in_flight = 30000;
static equic_u64 most_a_second = 500000;

static equic_u64 least(equic_u64 a, equic_u64 b)
{
	return a < b ? a : b;
}

equic_u64 window(struct equic_congestion_window *call)
{
	call->out.bytes =
		least(equic_get_of(EQUIC_CONTROLLER_WINDOW, call->in.path), most_in_flight);
	return EQUIC_DONE;
}

equic_u64 rate(struct equic_pacing_rate *call)
{
	call->out.rate =
		least(equic_get_of(EQUIC_CONTROLLER_PACING_RATE, call->in.path), most_a_second);
	return EQUIC_DONE;
}

equic_u64 on_message(struct equic_hook_message *call, const equic_u64 *numbers, equic_u64 length)
{
	(void)call;
	if (length == 16) {
		most_in_flight = numbers[0];
		most_a_second = numbers[1];
	}
	return EQUIC_DONE;
}
