/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Sends stream data on every path, each at its own pace, so that another path delivers what one
 * loses or delays. With a setting (clang -DMOST=20000), data is duplicated only while at most that
 * many bytes wait to be sent: messages go twice, bulk data once. */
#include <equic_plugin.h>

#ifndef MOST
#define MOST EQUIC_NONE
#endif

equic_u64 copy(struct equic_copy_stream_data *call)
{
	equic_u64 status = equic_get_of(EQUIC_PATH_STATUS, call->in.other);

	/* Do not copy to a backup, or to a path whose last packets are unanswered. */
	call->out.copy = status == 1 && equic_get(EQUIC_BYTES_UNSENT) <= MOST;
	return EQUIC_DONE;
}
