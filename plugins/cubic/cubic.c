/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * CUBIC (RFC 9438) in place of the connection's own controller, with integers, because eBPF has no
 * floating point. It leaves slow start by HyStart++ (RFC 9406), and handles one path only.
 *
 * Windows are in 1/1024 of a byte, and times of the curve in 1/1024 of a second. Products of three
 * of them fit into 64 bits for every window up to a gibibyte. */
#include <equic_plugin.h>

#define ONE 1024
/* Converts nanoseconds to the curve's unit of time. */
#define CURVE_TIME(nanoseconds) ((nanoseconds) * 2 / 1953125)

typedef equic_u64 u64;

/* State that a congestion event replaces, and that a spurious loss restores. */
static struct state {
	u64 window;
	/* Slow start threshold in bytes. */
	u64 threshold;
	/* Time of the last reduction. Losses of packets sent before it are ignored. */
	u64 recovery;
	/* Window before the last reduction, after fast convergence (RFC 9438 s.4.7). */
	u64 w_max;
	/* Window just before the last reduction. */
	u64 prior;
	/* Start of congestion avoidance after that, or 0 if it has not begun. */
	u64 epoch;
	/* Plateau of the curve, time until the plateau, and Reno's window for the same losses. */
	u64 origin, k, w_est;
} now_is = {.threshold = EQUIC_NONE}, before;
static u64 last_ack;

/* HyStart++: the rounds of slow start, and their smallest round-trip times. */
static u64 round_start, last_least = EQUIC_NONE, least = EQUIC_NONE, samples;
/* Round-trip time that began conservative slow start (0: not begun), and its rounds so far. */
static u64 baseline, rounds;

static u64 most(u64 a, u64 b)
{
	return a > b ? a : b;
}

static u64 clamp(u64 value, u64 low, u64 high)
{
	return value < low ? low : value > high ? high : value;
}

static u64 cube_root(u64 value)
{
	u64 root = 0;

	for (int bit = 20; bit >= 0; bit--) {
		u64 next = root | 1ull << bit;
		root = next * next * next <= value ? next : root;
	}
	return root;
}

/* W_cubic(t) of RFC 9438 s.4.2, C = 0.4. */
static u64 curve(u64 t, u64 datagram)
{
	/* More than 1,000 s from its plateau, the curve is steeper than any window may grow. */
	u64 k = now_is.k, far = clamp(t > k ? t - k : k - t, 0, 1000 * ONE);
	u64 distance = (far * far * far >> 20) * 2 / 5 * datagram;

	if (t > k)
		return now_is.origin + distance;
	return distance < now_is.origin ? now_is.origin - distance : 0;
}

static void set_window(u64 window)
{
	u64 set = equic_set(EQUIC_CONGESTION_WINDOW, window / ONE);

	/* Keep fractions of a byte, unless the transport limited the window. */
	now_is.window = set == window / ONE ? window : set * ONE;
}

/* RFC 9406 s.4.2. Returns the bytes to grow by, or EQUIC_NONE if slow start is over. */
static u64 slow_start(u64 acked, u64 largest_sent)
{
	u64 rtt = equic_get(EQUIC_LATEST_RTT);

	least = rtt < least ? rtt : least;
	if (++samples >= 8) {
		u64 room = clamp(last_least / 8, 4 * EQUIC_MILLISECOND, 16 * EQUIC_MILLISECOND);

		if (baseline && least < baseline)
			baseline = 0;
		else if (!baseline && last_least != EQUIC_NONE && least >= last_least + room)
			baseline = least, rounds = 0;
	}
	if (largest_sent >= round_start) {
		round_start = equic_now();
		last_least = least;
		least = EQUIC_NONE;
		samples = 0;
		if (baseline && ++rounds >= 5)
			return EQUIC_NONE;
	}
	return baseline ? acked / 4 : acked;
}

static void avoid(u64 acked)
{
	u64 now = equic_now(), datagram = equic_get(EQUIC_DATAGRAM_SIZE), window = now_is.window;
	u64 target, t;

	if (!now_is.epoch) {
		u64 below = most(now_is.w_max, window) - window;

		now_is.epoch = now;
		now_is.origin = most(now_is.w_max, window);
		/* Cube root of the distance / C in segments. The factor 2^20 makes the result
		 * a time in 1/1024 s. */
		now_is.k = cube_root((below * 5 / (2 * datagram)) << 20);
		now_is.w_est = window;
	}
	/* RFC 9438 s.4.3: 9/17 of Reno's step, and the whole step from the old window on. */
	now_is.w_est += acked * ONE * datagram / (window / ONE) *
			(now_is.w_est >= now_is.prior ? 17 : 9) / 17;
	t = CURVE_TIME(now - now_is.epoch);
	if (curve(t, datagram) < now_is.w_est)
		return set_window(most(window, now_is.w_est));
	/* RFC 9438 s.4.4: the curve's value a round trip from now, at most 1.5 times the window. */
	t += CURVE_TIME(equic_get(EQUIC_SMOOTHED_RTT));
	target = clamp(curve(t, datagram), window, window + window / 2);
	set_window(window + (target - window) * acked / (window / ONE) / ONE);
}

/* Adopts a window or a threshold that this plugin did not set: at the beginning, or after
 * persistent congestion. */
static void look(void)
{
	u64 window = equic_get(EQUIC_CONTROLLER_WINDOW);

	if (window != now_is.window / ONE) {
		now_is.window = window * ONE;
		now_is.epoch = 0;
	}
	now_is.threshold = equic_get(EQUIC_SLOW_START_THRESHOLD);
}

u64 on_acked(struct equic_congestion_acked *call)
{
	u64 now = equic_now(), sent = now - equic_get(EQUIC_LATEST_RTT);
	u64 acked = clamp(call->in.bytes, 0, 1 << 23), grow = acked;

	look();
	if (call->in.app_limited && now_is.epoch)
		/* RFC 9438 s.5.8: the curve stops while the window is not used. */
		now_is.epoch += now - most(last_ack, now_is.epoch);
	last_ack = now;
	if (call->in.app_limited || (now_is.recovery && sent <= now_is.recovery))
		return EQUIC_DONE;
	if (now_is.window / ONE >= now_is.threshold) {
		avoid(acked);
		return EQUIC_DONE;
	}
	if (now_is.threshold == EQUIC_NONE)
		grow = slow_start(acked, sent);
	if (grow == EQUIC_NONE)
		equic_set(EQUIC_SLOW_START_THRESHOLD, now_is.window / ONE);
	else
		set_window(now_is.window + grow * ONE);
	return EQUIC_DONE;
}

u64 on_event(struct equic_congestion_event *call)
{
	u64 window = (look(), now_is.window);

	if (now_is.recovery && call->in.largest_sent <= now_is.recovery)
		return EQUIC_DONE;
	before = now_is;
	now_is.recovery = equic_now();
	now_is.prior = window;
	/* RFC 9438 s.4.7: a loss below the last peak means another flow needs a share. */
	now_is.w_max = window < now_is.w_max ? window * 17 / 20 : window;
	now_is.epoch = 0;
	set_window(window * 7 / 10);
	equic_set(EQUIC_SLOW_START_THRESHOLD, now_is.window / ONE);
	return EQUIC_DONE;
}

u64 on_spurious(void)
{
	/* RFC 9438 s.4.9: the reduction is undone, because the loss was spurious. */
	if (before.window > now_is.window) {
		now_is = before;
		set_window(now_is.window);
		equic_set(EQUIC_SLOW_START_THRESHOLD, now_is.threshold);
	}
	before.window = 0;
	return EQUIC_DONE;
}
