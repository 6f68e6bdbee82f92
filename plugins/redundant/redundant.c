/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Stream data goes on every path, each at its own pace: what one loses or delays comes on another.
 * With a setting (clang -DMOST=20000) that is so only while no more bytes than that wait to be
 * sent: messages go twice, bulk once. */
#include <equic_plugin.h>

#ifndef MOST
#define MOST EQUIC_NONE
#endif

equic_u64 copy(struct equic_copy_stream_data *call)
{
	equic_u64 status = equic_get_of(EQUIC_PATH_STATUS, call->in.other);

	/* Not on a backup, nor where nothing was heard of what was sent last. */
	call->out.copy = status == 1 && equic_get(EQUIC_BYTES_UNSENT) <= MOST;
	return EQUIC_DONE;
}
