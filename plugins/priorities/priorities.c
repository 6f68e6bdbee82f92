/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Divides the bandwidth among streams. The application sends a message with pairs of numbers,
 * stream ID, weight, in the byte order of the machine. Each of these streams sends as many pieces
 * in a row as its weight. If they have nothing to send, or no stream is named, the transport
 * chooses the stream. A single named stream therefore goes before all others. */
#include <equic_plugin.h>

#define MOST 32

struct share {
	equic_u64 stream;
	equic_u64 weight;
};

static struct share shares[MOST];
static equic_u64 count, turn, left;

equic_u64 on_message(struct equic_hook_message *call, const struct share *named, equic_u64 length)
{
	equic_u64 pairs = length / sizeof(*named);

	(void)call;
	if (length % sizeof(*named) || pairs > MOST)
		return EQUIC_DONE;
	for (equic_u64 at = 0; at < pairs; at++)
		shares[at] = named[at];
	count = pairs;
	turn = left = 0;
	return EQUIC_DONE;
}

equic_u64 schedule(struct equic_schedule_stream *call)
{
	if (!count)
		return EQUIC_DEFAULT;
	if (!left) {
		turn = (turn + 1) % count;
		left = shares[turn].weight;
	}
	if (left)
		left--;
	call->out.stream = shares[turn].stream;
	return EQUIC_DONE;
}
