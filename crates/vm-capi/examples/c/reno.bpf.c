// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * NewReno (RFC 9002 s.7) as bytecode: what congestion.c has its stack's callbacks run.
 *   clang -target bpf -O2 -mcpu=v3 -c reno.bpf.c -o reno.o
 */
typedef unsigned long long u64;

/* The host fills in the upper part before a call, and reads the window after it. */
struct path {
	u64 datagram_size, acked, sent_at, app_limited;
	u64 window, threshold, recovery_start, avoided;
};

static u64 least(const struct path *p)
{
	return 2 * p->datagram_size;
}

u64 init(struct path *p)
{
	p->window = 10 * p->datagram_size;
	p->threshold = ~0ULL;
	p->recovery_start = 0;
	p->avoided = 0;
	return p->window;
}

u64 on_ack(struct path *p)
{
	/* RFC 9002 s.7.3.2: nothing grows for what was sent before recovery began; s.7.8. */
	if (p->sent_at <= p->recovery_start || p->app_limited)
		return p->window;
	if (p->window < p->threshold) {
		p->window += p->acked;
		return p->window;
	}
	p->avoided += p->acked;
	if (p->avoided >= p->window) {
		p->avoided -= p->window;
		p->window += p->datagram_size;
	}
	return p->window;
}

u64 on_loss(struct path *p, u64 now)
{
	if (p->sent_at <= p->recovery_start)
		return p->window;
	p->recovery_start = now;
	p->window /= 2;
	if (p->window < least(p))
		p->window = least(p);
	p->threshold = p->window;
	return p->window;
}

u64 on_persistent_congestion(struct path *p)
{
	p->window = least(p);
	return p->window;
}
