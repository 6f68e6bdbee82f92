/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A controller that uses the delivery rate of the path instead of losses, like BBR version 1
 * (draft-cardwell-iccrg-bbr-congestion-control-00), for paths that lose packets without
 * congestion. It sends at the largest rate of the last ten round trips, probes for more in one of
 * eight round trips, and permits two bandwidth-delay products in flight. It handles one path only,
 * uses the smallest round-trip time of the whole connection, and is not meant to share a queue
 * with loss-based controllers. */
#include <equic_plugin.h>

typedef equic_u64 u64;

#define ROUNDS 10
#define PHASES 8

/* Largest rate in each of the last round trips, in bytes per second. */
static u64 rates[ROUNDS];
static u64 round, round_start;
/* Rate at the last check in startup, and rounds since then in which it grew by less than a
 * quarter. */
static u64 full_rate, full_rounds;
static enum { STARTUP, DRAIN, PROBE } state;
static u64 phase, phase_start;
/* Rate to send at, in bytes per second, or 0 if it is unknown. */
static u64 pacing;

static u64 most(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 bandwidth(void)
{
	u64 largest = 0;

	for (int at = 0; at < ROUNDS; at++)
		largest = most(largest, rates[at]);
	return largest;
}

/* Handles the end of a round trip. */
static void next_round(u64 now)
{
	u64 rate = bandwidth();

	round_start = now;
	round++;
	rates[round % ROUNDS] = 0;
	if (state != STARTUP)
		return;
	if (rate >= full_rate + full_rate / 4) {
		full_rate = rate;
		full_rounds = 0;
	} else if (++full_rounds >= 3) {
		state = DRAIN;
	}
}

u64 on_acked(struct equic_congestion_acked *call)
{
	u64 now = equic_now(), rtt = equic_get(EQUIC_MIN_RTT),
	    rate = equic_get(EQUIC_DELIVERY_RATE);
	u64 window = equic_get(EQUIC_CONTROLLER_WINDOW), product;

	/* The packet acknowledged was sent after the round began. */
	if (now - equic_get(EQUIC_LATEST_RTT) >= round_start)
		next_round(now);
	/* A sample that the application limited is a lower bound of the path's rate. */
	if (!call->in.app_limited || rate > bandwidth())
		rates[round % ROUNDS] = most(rates[round % ROUNDS], rate);
	rate = bandwidth();
	if (!rate)
		return EQUIC_DONE;
	product = rate / 1000 * (rtt / EQUIC_MICROSECOND) / 1000;
	if (state == DRAIN && equic_get(EQUIC_BYTES_IN_FLIGHT) <= product) {
		state = PROBE;
		phase = 2;
		phase_start = now;
	}
	if (state == STARTUP) {
		/* 2 / ln 2 doubles the rate each round trip. */
		pacing = rate * 289 / 100;
		if (!call->in.app_limited)
			equic_set(EQUIC_CONGESTION_WINDOW, window + call->in.bytes);
		return EQUIC_DONE;
	}
	if (state == PROBE && now - phase_start >= rtt) {
		phase = (phase + 1) % PHASES;
		phase_start = now;
	}
	/* Send faster for a round trip, then slower to drain the queue, and then at the measured
	 * rate. */
	if (state == DRAIN)
		pacing = rate * 100 / 289;
	else
		pacing = phase == 0 ? rate * 5 / 4 : phase == 1 ? rate * 3 / 4 : rate;
	equic_set(EQUIC_CONGESTION_WINDOW, 2 * product + 4 * equic_get(EQUIC_DATAGRAM_SIZE));
	return EQUIC_DONE;
}

u64 on_event(void)
{
	/* A loss does not change the rate. */
	return EQUIC_DONE;
}

u64 pace(struct equic_pacing_rate *call)
{
	if (!pacing)
		return EQUIC_DEFAULT;
	call->out.rate = pacing;
	return EQUIC_DONE;
}
