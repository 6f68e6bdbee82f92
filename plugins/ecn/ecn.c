/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Explicit Congestion Notification with a frame of its own, as in "The Case for Protocol Plugins"
 * (s.3.1.2), for connections that do not use ECN themselves. It runs at both ends. Packets are
 * marked ECT(0). The receiver counts packets that a router has marked CE and reports the number in
 * a frame. The sender lowers its window, at most once per round trip.
 *
 * The paper attaches to other operations. This plugin uses RecordPacket for AfterPacketRead (the
 * packet number, but no payload), WriteFrame for GenerateFrames, ParseFrame for ParseFrames, and
 * ProcessFrame for AfterParseFrames. It marks packets with MarkEcn, which the paper's hosts do.
 *
 * The frame: its type, the length of what follows, and the number of packets marked so far, all
 * three variable-length integers (RFC 9000 s.16), the last of 8 bytes. */
#include <equic_plugin.h>

#define TYPE   0x1f02
#define LENGTH 11
#define CE     3
/* Packet number spaces below this one belong to the handshake. */
#define APPLICATION 2

static struct {
	/* Number of received packets that a router has marked. */
	equic_u64 marked;
	/* 1 if a frame waits to be written. */
	equic_u64 queued;
	/* Latest count of marked packets that the peer has reported. */
	equic_u64 reported;
	/* Time of the last reduction. */
	equic_u64 reduced;
} state;

equic_u64 start(void)
{
	state.marked = state.queued = state.reported = state.reduced = 0;
	return EQUIC_DONE;
}

equic_u64 mark(struct equic_mark_ecn *call)
{
	if (call->in.space < APPLICATION || !equic_get(EQUIC_CONFIRMED))
		return EQUIC_DEFAULT;
	call->out.mark = 1;
	return EQUIC_DONE;
}

equic_u64 on_packet(struct equic_record_packet *call)
{
	if (call->in.ecn != CE)
		return EQUIC_DEFAULT;
	state.marked++;
	if (!state.queued)
		state.queued = equic_queue_frame(TYPE, 0);
	return EQUIC_DEFAULT;
}

equic_u64 write(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
{
	state.queued = 0;
	call->out.length = 0;
	if (room < LENGTH)
		return EQUIC_DONE;
	bytes[0] = 0x40 | TYPE >> 8;
	bytes[1] = TYPE & 0xff;
	bytes[2] = LENGTH - 3;
	bytes[3] = 0xc0;
	for (int at = 4; at < LENGTH; at++)
		bytes[at] = state.marked >> 8 * (LENGTH - 1 - at);
	call->out.length = LENGTH;
	return EQUIC_DONE;
}

equic_u64 parse(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length)
{
	call->out.length =
		length >= LENGTH && bytes[2] == LENGTH - 3 && bytes[3] == 0xc0 ? LENGTH : 0;
	return EQUIC_DONE;
}

equic_u64 on_frame(struct equic_process_frame *call, const equic_u8 *bytes)
{
	equic_u64 count = 0, now = equic_now();

	call->out.accept = 1;
	for (int at = 4; at < LENGTH; at++)
		count = count << 8 | bytes[at];
	/* A frame that arrives late has an old count. */
	if (count <= state.reported)
		return EQUIC_DONE;
	state.reported = count;
	/* Marks on packets that were sent before the last reduction are ignored. */
	if (state.reduced && now < state.reduced + equic_get(EQUIC_SMOOTHED_RTT))
		return EQUIC_DONE;
	state.reduced = now;
	/* RFC 8511: a mark comes before the queue is full, so it reduces less than a loss. */
	equic_set(EQUIC_CONGESTION_WINDOW, equic_get(EQUIC_CONTROLLER_WINDOW) * 17 / 20);
	equic_set(EQUIC_SLOW_START_THRESHOLD, equic_get(EQUIC_CONTROLLER_WINDOW));
	return EQUIC_DONE;
}
