/* Sends few acknowledgements: after ten packets, or when the first of them has waited for half a
 * round trip. */
#include <equic_plugin.h>

/* Replaces the operation AckPolicy; equic_operations.h has its inputs and outputs. */
equic_u64 policy(struct equic_ack_policy *call)
{
	equic_u64 rtt = equic_get(EQUIC_SMOOTHED_RTT);

	/* Spaces 0 and 1 belong to the handshake. */
	if (call->in.space < 2 || !rtt)
		return EQUIC_DEFAULT;
	equic_log("round trip in us", sizeof("round trip in us"), rtt / EQUIC_MICROSECOND);
	call->out.threshold = 10;
	call->out.max_delay = rtt / 2;
	call->out.reordering = 1;
	return EQUIC_DONE;
}
