/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The header for plugins of QUIC connections (docs/plugins.md). Compile a plugin with:
 *
 *     clang -target bpf -O2 -mcpu=v3 -ffreestanding -I plugins/sdk -c plugin.c
 *
 * Generated from the tables of the transport and of equic-plugin: `make header` writes it again.
 *
 * The host calls a plugin's function with the words of the call. If the operation has bytes, they and their number
 * follow. If the operation exists for each frame type, the type is the last argument:
 *
 *     equic_u64 on_ack(struct equic_ack_policy *call)
 *     equic_u64 parse(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length, equic_u64 type)
 *
 * A function that replaces an operation writes its answer to `call->out` and returns EQUIC_DONE, or it returns
 * EQUIC_DEFAULT so that the default runs. With `default = true` in the manifest, `call->out` already holds the answer of
 * the default, or of the plugin that was attached before, and `equic_call_default` restores that answer. For a function
 * that runs before or after an operation, the result and the outputs have no effect.
 */
#ifndef EQUIC_PLUGIN_H
#define EQUIC_PLUGIN_H

typedef __UINT8_TYPE__ equic_u8;
typedef __UINT16_TYPE__ equic_u16;
typedef __UINT32_TYPE__ equic_u32;
typedef __UINT64_TYPE__ equic_u64;

/* `abi` of the manifest. */
#define EQUIC_ABI 2

/* Plugins have no libc: no other headers, no malloc, no printf. Only these four functions exist. For a small constant
 * length, prefer __builtin_memcpy and __builtin_memset, which clang expands to fewer instructions. An assignment of a
 * structure of more than 1,024 bytes does not compile: use memcpy. */
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

/* Results of a function that replaces an operation. */
#define EQUIC_DEFAULT 0
#define EQUIC_DONE 1

/* Value of a word or field without a value. */
#define EQUIC_NONE (~(equic_u64)0)

#define EQUIC_MICROSECOND 1000ull
#define EQUIC_MILLISECOND 1000000ull
#define EQUIC_SECOND 1000000000ull

/* Helpers. */

/* Returns the value of a field. The field must be in the manifest's reads. */
static equic_u64 (*const equic_get)(equic_u64 field) __attribute__((unused)) = (void *)1;

/* Sets a field and returns its new value, which is limited to the field's bounds. The field must be
 * in the manifest's sets. Only functions that replace an operation may call it. */
static equic_u64 (*const equic_set)(equic_u64 field, equic_u64 value) __attribute__((unused)) = (void *)2;

/* Returns the time of the call, in nanoseconds on the connection's clock. */
static equic_u64 (*const equic_now)(void) __attribute__((unused)) = (void *)3;

/* Logs a line of text and a number for the plugin's developer. equic plugin run shows them.
 * Otherwise they are discarded. */
static equic_u64 (*const equic_log)(const void *text, equic_u64 length, equic_u64 value) __attribute__((unused)) = (void *)4;

/* Queues a frame of this type, which must be one of the plugin's own. The connection then calls
 * WriteFrame with token. Only functions that replace an operation may call it. Returns 1, or 0 if
 * 64 frames of the plugin are waiting or the peer's plugins have used up their
 * frame_bytes_per_second. After 0, try again later. */
static equic_u64 (*const equic_queue_frame)(equic_u64 type, equic_u64 token) __attribute__((unused)) = (void *)5;

/* Sends a message of at most 1,024 bytes to the application. Returns 1, or 0 if too many messages
 * are waiting for the application. */
static equic_u64 (*const equic_tell)(const void *message, equic_u64 length) __attribute__((unused)) = (void *)6;

/* Sets the plugin's only timer: HookTimer is called once at this time, but not sooner than in 10
 * milliseconds. EQUIC_NONE stops the timer. Only functions that replace an operation may call it,
 * including InitOpaqueData and HookTimer. */
static equic_u64 (*const equic_set_timer)(equic_u64 at) __attribute__((unused)) = (void *)7;

/* Returns the value of a field for one part of the connection. The field must be in the manifest's
 * reads. For a field of paths, part is the path's number. For EQUIC_BYTES_UNSENT, it is a stream
 * ID. For EQUIC_NEXT_PATH, it is the lowest path number to consider. Returns EQUIC_NONE if there
 * is no such path or stream, or if the field belongs to the whole connection. */
static equic_u64 (*const equic_get_of)(equic_u64 field, equic_u64 part) __attribute__((unused)) = (void *)8;

/* Delivers the payload of a 1-RTT packet that did not arrive, at most 4,096 bytes. Its stream
 * frames and DATAGRAM frames are processed as if the packet had arrived, up to the first frame of
 * a type that QUIC does not define. The packet is not acknowledged. Only functions that replace an
 * operation may call it. Returns 1, or 0 if too many requests are waiting. */
static equic_u64 (*const equic_process_payload)(equic_u64 number, const void *payload, equic_u64 length) __attribute__((unused)) = (void *)9;

/* Calls an operation that another plugin provides. call is its index in the manifest's calls, from
 * 0. words has its inputs, followed by space for its outputs, length bytes in total. Returns 1, or
 * 0 if no such plugin is attached, it is already running, it failed, or its budget exceeds the
 * steps that this call has left. After 0, the outputs are zeros. The steps that the operation uses
 * count toward this call. */
static equic_u64 (*const equic_call)(equic_u64 call, equic_u64 *words, equic_u64 length) __attribute__((unused)) = (void *)10;

/* Writes the answer of the default, or of the plugin that was attached before, to call->out, and
 * returns its first word. It overwrites what the function has written there. The manifest must
 * attach the operation with default = true. The default runs once, before the function, whether or
 * not the function calls this. */
static equic_u64 (*const equic_call_default)(void) __attribute__((unused)) = (void *)11;

/* Fields for `equic_get`. A field that each path has for itself is read from the active path. */
enum equic_field {
	EQUIC_SMOOTHED_RTT = 1, /* Smoothed RTT (RFC 9002 s.5.3). It can be set, to at most one minute. */
	EQUIC_RTT_VARIATION = 2, /* RTT variation (RFC 9002 s.5.3). It can be set, to at most one minute. */
	EQUIC_MIN_RTT = 3, /* Smallest RTT sample so far. */
	EQUIC_LATEST_RTT = 4, /* Latest RTT sample. */
	EQUIC_CONGESTION_WINDOW = 5, /* Congestion window in use. It is the answer of a hook to CongestionWindow, if there is one. Setting the field changes the controller's window, to at least two datagrams and at most a gibibyte. It has no effect on BBR. */
	EQUIC_BYTES_IN_FLIGHT = 6, /* Bytes that were sent and are neither acknowledged nor lost. */
	EQUIC_PTO_COUNT = 7, /* Number of consecutive PTOs. */
	EQUIC_DATAGRAM_SIZE = 8, /* Largest UDP payload that the path is known to carry. */
	EQUIC_SLOW_START_THRESHOLD = 9, /* Slow start threshold in bytes; all ones if the controller is still in slow start. It can be set within the limits of the congestion window. */
	EQUIC_CONTROLLER_WINDOW = 10, /* Congestion window of the connection's own controller, without a hook's answer. */
	EQUIC_CONTROLLER_PACING_RATE = 11, /* Pacing rate of the connection's own controller, in bytes per second. */
	EQUIC_DELIVERY_RATE = 12, /* Latest sample of the delivery rate, in bytes per second; 0 if it is unknown. */
	EQUIC_LOSS_TIME = 13, /* Time at which the next 1-RTT packet will be declared lost; all ones if no packet waits for that. */
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
	EQUIC_LARGEST_ACKED = 36, /* Largest 1-RTT packet number that the peer has acknowledged; all ones if it has acknowledged none. */
	EQUIC_PEER_MAX_ACK_DELAY = 37, /* The peer's max_ack_delay. */
	EQUIC_APPLICATION_WAITS = 38, /* 1 if the application has stream data or DATAGRAM frames to send within the peer's limits, else 0. */
	EQUIC_BYTES_UNSENT = 39, /* Bytes of stream data that were written and never sent, in all streams. With a stream ID (equic_get_of), only those of that stream. */
	EQUIC_NEXT_PATH = 40, /* Lowest path number that is not below the given number (equic_get_of); all ones if no path has such a number. With this field, a hook can iterate over all paths. */
	EQUIC_PATH_ID = 41, /* Path ID of the path (RFC 10069); 0 without multipath. Unlike the path's number, it is the same at both ends. */
	EQUIC_PATH_STATUS = 42, /* State of the path, as a sum. 1: data can be sent on it. 2: one of the ends has declared it a backup (PATH_STATUS_BACKUP). 4: the peer has not acknowledged the last packets that were sent on it. */
	EQUIC_PATH_COST = 43, /* Cost of the path in the application's units; 0 if the application has not set it. */
	EQUIC_PATH_PACKETS_LOST = 44, /* Number of packets that were sent on the path and declared lost. */
	EQUIC_PATH_BYTES_SENT = 45, /* Bytes of UDP payload sent on the path. */
	EQUIC_PATH_ROOM = 46, /* Bytes that the congestion window permits now; 0 if a full datagram does not fit into the window, or if pacing delays it. */
	EQUIC_CHOICE_HOLDS = 47, /* Number of further datagrams, at most 64, for which the current choice of SelectPath holds without another call. The choice ends when time passes or the path has no room. The field can be set during that operation, and is reset to 0 at its next call. It has no effect with one path. */
};

/* A structure for each operation. */
#include "equic_operations.h"

#endif
