/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Header that plugins of QUIC connections are compiled with (docs/plugins.md):
 *
 *     clang -target bpf -O2 -mcpu=v3 -ffreestanding -I plugins/sdk -c plugin.c
 *
 * Made of the tables of the transport and of equic-plugin by `make header`.
 *
 * A function of a plugin is called with the words of the call; where the operation has bytes, with these and
 * their number; where it is there for each frame type, with that:
 *
 *     equic_u64 on_ack(struct equic_ack_policy *call)
 *     equic_u64 parse(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length, equic_u64 type)
 *
 * In an operation's place it returns EQUIC_DONE with `call->out` written, or EQUIC_DEFAULT. With `default = true` in
 * the manifest `call->out` holds what the default answers, or the plugin that was attached before it, and
 * `equic_call_default` brings that back. Before and after one what it returns does not matter, and what it writes changes
 * nothing.
 */
#ifndef EQUIC_PLUGIN_H
#define EQUIC_PLUGIN_H

typedef __UINT8_TYPE__ equic_u8;
typedef __UINT16_TYPE__ equic_u16;
typedef __UINT32_TYPE__ equic_u32;
typedef __UINT64_TYPE__ equic_u64;

/* `abi` of the manifest. */
#define EQUIC_ABI 2

/* There is no libc: no other header, no malloc, no printf. Of its functions there are these four. Clang expands
 * __builtin_memcpy and __builtin_memset of a small constant length without a call, which takes fewer instructions.
 * An assignment of a structure of more than 1,024 bytes does not compile: call memcpy. */
typedef __SIZE_TYPE__ equic_size;

static inline __attribute__((always_inline, unused)) void *memcpy(void *to, const void *from, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		((equic_u8 *)to)[at] = ((const equic_u8 *)from)[at];
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) void *memmove(void *to, const void *from, equic_size length)
{
	if ((equic_u64)to <= (equic_u64)from)
		return memcpy(to, from, length);
	for (equic_size left = length; left > 0; left--) {
		((equic_u8 *)to)[left - 1] = ((const equic_u8 *)from)[left - 1];
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) void *memset(void *to, int byte, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		((equic_u8 *)to)[at] = (equic_u8)byte;
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) int memcmp(const void *one, const void *other, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		equic_u8 left = ((const equic_u8 *)one)[at], right = ((const equic_u8 *)other)[at];

		if (left != right)
			return left < right ? -1 : 1;
		__asm__ volatile("" ::: "memory");
	}
	return 0;
}

/* Returned in an operation's place. */
#define EQUIC_DEFAULT 0
#define EQUIC_DONE 1

/* Value of a word or field that has none. */
#define EQUIC_NONE (~(equic_u64)0)

#define EQUIC_MICROSECOND 1000ull
#define EQUIC_MILLISECOND 1000000ull
#define EQUIC_SECOND 1000000000ull

/* Helpers. */

/* Reads a field, one of the manifest's reads. */
static equic_u64 (*const equic_get)(equic_u64 field) __attribute__((unused)) = (void *)1;

/* Sets a field, one of the manifest's sets, in an operation's place. Returns the value that it has
 * then: it is held within bounds. */
static equic_u64 (*const equic_set)(equic_u64 field, equic_u64 value) __attribute__((unused)) = (void *)2;

/* The moment of the call, in nanoseconds on the connection's clock. */
static equic_u64 (*const equic_now)(void) __attribute__((unused)) = (void *)3;

/* A line for who develops the plugin, and a number: equic plugin run shows them. Otherwise nobody
 * sees it. */
static equic_u64 (*const equic_log)(const void *text, equic_u64 length, equic_u64 value) __attribute__((unused)) = (void *)4;

/* Asks for a frame of this type, one of the plugin's own, to be sent: WriteFrame will be called for
 * it, with token. In an operation's place. Returns 1; 0: 64 frames of the plugin wait already, or
 * the peer's plugins have used up their frame_bytes_per_second: ask again later. */
static equic_u64 (*const equic_queue_frame)(equic_u64 type, equic_u64 token) __attribute__((unused)) = (void *)5;

/* Tells the application something, in 1,024 bytes at most. Returns 1; 0: it has not taken the
 * messages before. */
static equic_u64 (*const equic_tell)(const void *message, equic_u64 length) __attribute__((unused)) = (void *)6;

/* Has HookTimer called at this moment, once, and no sooner than in 10 milliseconds; EQUIC_NONE: not
 * at all. A plugin has one timer. In an operation's place, be it InitOpaqueData or HookTimer. */
static equic_u64 (*const equic_set_timer)(equic_u64 at) __attribute__((unused)) = (void *)7;

/* Reads a field, one of the manifest's reads, of one part of the connection: what a path has, of
 * the path with this number; EQUIC_BYTES_UNSENT, of the stream with this ID; EQUIC_NEXT_PATH, from
 * this number on. EQUIC_NONE: there is no such path or stream, or the field is the whole
 * connection's. */
static equic_u64 (*const equic_get_of)(equic_u64 field, equic_u64 part) __attribute__((unused)) = (void *)8;

/* Hands up the payload of a 1-RTT packet that did not come, of 4,096 bytes at most, in an
 * operation's place: frames of streams and DATAGRAM frames in it count as if the packet had come,
 * up to the first frame of another type that QUIC does not know. The packet is not acknowledged.
 * Returns 1; 0: too many requests wait. */
static equic_u64 (*const equic_process_payload)(equic_u64 number, const void *payload, equic_u64 length) __attribute__((unused)) = (void *)9;

/* Calls an operation that another plugin provides: the one at this place of the manifest's calls,
 * counted from 0. words are its inputs, and behind them room for its outputs: length bytes in all.
 * Returns 1; 0: no such plugin is attached, it runs already, it failed, or it may take more
 * instructions than this call has left; the outputs are zeros then. What it takes counts here,
 * too. */
static equic_u64 (*const equic_call)(equic_u64 call, equic_u64 *words, equic_u64 length) __attribute__((unused)) = (void *)10;

/* What the default answers, or the plugin that was attached before: writes it to call->out,
 * whatever the function has written there, and returns its first word. Only of operations that the
 * manifest attaches with default = true: the default is asked before the function is called, once,
 * whether or not this is. */
static equic_u64 (*const equic_call_default)(void) __attribute__((unused)) = (void *)11;

/* Fields: what `equic_get` reads; what each path has for itself is the active path's. */
enum equic_field {
	EQUIC_SMOOTHED_RTT = 1, /* Smoothed RTT (RFC 9002 s.5.3). It can be set, to a minute at most. */
	EQUIC_RTT_VARIATION = 2, /* RTT variation (RFC 9002 s.5.3). It can be set, to a minute at most. */
	EQUIC_MIN_RTT = 3, /* Smallest RTT sample so far. */
	EQUIC_LATEST_RTT = 4, /* Latest RTT sample. */
	EQUIC_CONGESTION_WINDOW = 5, /* Congestion window in force: a hook's, if one has answered CongestionWindow. Setting it changes the controller's window, to at least two datagrams and at most a gibibyte. It has no effect on BBR. */
	EQUIC_BYTES_IN_FLIGHT = 6, /* Bytes that were sent and are neither acknowledged nor lost. */
	EQUIC_PTO_COUNT = 7, /* Number of consecutive PTOs. */
	EQUIC_DATAGRAM_SIZE = 8, /* Largest UDP payload that the path is known to carry. */
	EQUIC_SLOW_START_THRESHOLD = 9, /* Slow start threshold in bytes; all ones if the controller is still in slow start. It can be set within the limits of the congestion window. */
	EQUIC_CONTROLLER_WINDOW = 10, /* Congestion window of the connection's own controller, without a hook's answer. */
	EQUIC_CONTROLLER_PACING_RATE = 11, /* Pacing rate of the connection's own controller, in bytes per second. */
	EQUIC_DELIVERY_RATE = 12, /* Latest sample of the delivery rate, in bytes per second; 0 if it is unknown. */
	EQUIC_LOSS_TIME = 13, /* Time at which the next 1-RTT packet will be declared lost; all ones if there is none. */
	EQUIC_LAST_ELICITING_SENT = 14, /* Time at which the last ack-eliciting 1-RTT packet was sent; all ones if none is in flight. */
	EQUIC_DATAGRAMS_RECEIVED = 16, /* Number of datagrams received. */
	EQUIC_DATAGRAMS_SENT = 17, /* Number of datagrams sent. */
	EQUIC_BYTES_RECEIVED = 18, /* Bytes of UDP payload received. */
	EQUIC_BYTES_SENT = 19, /* Bytes of UDP payload sent. */
	EQUIC_PACKETS_RECEIVED = 20, /* Number of packets received. */
	EQUIC_PACKETS_SENT = 21, /* Number of packets sent. */
	EQUIC_PACKETS_LOST = 22, /* Number of packets that were declared lost. */
	EQUIC_SIDE = 32, /* Side of this end: 0 for the client, 1 for the server. */
	EQUIC_CONNECTED = 33, /* 1 if the handshake is complete, else 0. */
	EQUIC_CONFIRMED = 34, /* 1 if the handshake is confirmed, else 0. */
	EQUIC_ACTIVE_PATH = 35, /* Number of the active path. */
	EQUIC_LARGEST_ACKED = 36, /* Largest packet number that the peer has acknowledged in 1-RTT packets; all ones if there is none. */
	EQUIC_PEER_MAX_ACK_DELAY = 37, /* The peer's max_ack_delay. */
	EQUIC_APPLICATION_WAITS = 38, /* 1 if the application has stream data or DATAGRAM frames to send within the peer's limits, else 0. */
	EQUIC_BYTES_UNSENT = 39, /* Bytes of stream data that were written and never sent: of all streams, or of the stream with the given stream ID (equic_get_of). */
	EQUIC_NEXT_PATH = 40, /* Lowest number of a path that is at least the given number (equic_get_of); all ones if there is none. With this field a hook can iterate over all paths. */
	EQUIC_PATH_ID = 41, /* Path ID of the path (RFC 10069); 0 without multipath. Unlike the path's number, it is the same at both ends. */
	EQUIC_PATH_STATUS = 42, /* 1 if data can be sent on the path, else 0. 2 is added if one of the ends wants it as a backup (PATH_STATUS_BACKUP), and 4 if the peer has not acknowledged what was sent there last. */
	EQUIC_PATH_COST = 43, /* Cost of the path in the application's units; 0 if the application has not set it. */
	EQUIC_PATH_PACKETS_LOST = 44, /* Number of packets that were sent on the path and declared lost. */
	EQUIC_PATH_BYTES_SENT = 45, /* Bytes of UDP payload sent on the path. */
	EQUIC_PATH_ROOM = 46, /* Bytes that the congestion window permits now; 0 if it has no room for a full datagram, or if pacing delays that. */
	EQUIC_CHOICE_HOLDS = 47, /* Number of further datagrams, at most 64, that use the path which SelectPath chooses now, without another call. The choice ends when time passes or the path has no room. The field can be set during that operation, and is reset to 0 at its next call. It has no effect with one path. */
};

/* A structure for each operation. */
#include "equic_operations.h"

#endif
