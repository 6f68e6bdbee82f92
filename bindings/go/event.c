/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The callback of event.go. cgo calls Go through exported functions, whose parameters cannot be
 * `const`. */
#include <equic.h>
#include <stdint.h>

#include "_cgo_export.h"

static void tell(int event, const char *message, void *context)
{
	equicGoTell(event, (char *)message, (uintptr_t)context);
}

enum equic_error equic_go_notify(const equic_gateway *gateway, uintptr_t context)
{
	return equic_gateway_notify(gateway, tell, (void *)context);
}
