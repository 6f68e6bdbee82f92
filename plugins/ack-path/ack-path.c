/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Sends acknowledgements on another path than the acknowledged packets (SelectACKPath), for links
 * that are slow in one direction. ACK_PATH is the path ID for all of them (clang -DACK_PATH=0).
 * Without it, those of each path go on the first other path that works. The application changes it
 * with a message of 8 bytes: the path ID in the byte order of the machine, or all ones for the
 * first other path. */
#include <equic_plugin.h>

#ifndef ACK_PATH
#define ACK_PATH EQUIC_NONE
#endif

/* Maximum number of paths that are examined. */
#define PATHS 8

static equic_u64 wanted = ACK_PATH;

/* Returns whether acknowledgements may leave their default path for another one. */
static int is_it(equic_u64 path, equic_u64 usual)
{
	if (wanted == EQUIC_NONE ? path == usual : equic_get_of(EQUIC_PATH_ID, path) != wanted)
		return 0;
	/* The path can carry data, and the peer has answered on it. */
	return (equic_get_of(EQUIC_PATH_STATUS, path) & 5) == 1;
}

equic_u64 choose(struct equic_select_ack_path *call)
{
	equic_u64 path = 0;

	for (equic_u64 count = 0; count < PATHS; count++) {
		path = equic_get_of(EQUIC_NEXT_PATH, path);
		if (path == EQUIC_NONE)
			break;
		if (is_it(path, call->in.path)) {
			call->out.path = path;
			return EQUIC_DONE;
		}
		path++;
	}
	return EQUIC_DEFAULT;
}

equic_u64 on_message(struct equic_hook_message *call, const equic_u64 *id, equic_u64 length)
{
	(void)call;
	if (length == 8)
		wanted = id[0];
	return EQUIC_DONE;
}
