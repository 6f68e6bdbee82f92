/* A congestion controller that runs for each ACK: RTT, Reno and pacing, with a context of 128
 * bytes. The benchmark measures this program. */
typedef unsigned long long u64;

struct context {
	u64 latest_rtt, min_rtt, smoothed_rtt, rttvar;
	u64 acked, window, threshold, avoided;
	u64 in_flight, datagram, pace, limited;
	u64 iterations, unused[3];
};

u64 empty(void)
{
	return 0;
}

u64 on_ack(struct context *c)
{
	u64 rtt = c->latest_rtt, smoothed = c->smoothed_rtt;
	if (rtt < c->min_rtt)
		c->min_rtt = rtt;
	u64 distance = smoothed > rtt ? smoothed - rtt : rtt - smoothed;
	c->rttvar = (3 * c->rttvar + distance) >> 2;
	smoothed = (7 * smoothed + rtt) >> 3;
	c->smoothed_rtt = smoothed;
	c->in_flight -= c->acked;
	if (!c->limited) {
		if (c->window < c->threshold) {
			c->window += c->acked;
		} else {
			c->avoided += c->acked;
			if (c->avoided >= c->window) {
				c->avoided -= c->window;
				c->window += c->datagram;
			}
		}
	}
	c->pace = (c->window << 10) / (smoothed | 1);
	return c->window;
}

u64 loop(struct context *c)
{
	u64 n = c->iterations, sum = 0;
	for (u64 i = 0; i < n; i++) {
		sum ^= sum << 1;
		sum += i;
	}
	return sum;
}

#ifdef __wasm__
extern u64 now(u64) __attribute__((import_module("env"), import_name("now")));
#else
/* Calls this helper by number, because every eBPF engine supports that. */
static u64 (*const now)(u64) = (void *)9;
#endif
u64 helper(u64 a)
{
	return now(a) + 1;
}
