/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Messages with deadlines, in the plugin's own frames, for data that is useless when it is late.
 * The application passes a message after the time within which it must be sent: eight bytes,
 * nanoseconds, in the byte order of the machine. The plugin sends the message, and repeats it if
 * it was lost, until that time is over. The peer's application gets each message once, in the
 * order in which they arrive.
 *
 * The frame: its type and the length of what follows, variable-length integers of two bytes each
 * (RFC 9000 s.16), a number of eight bytes, and the message. */
#include <equic_plugin.h>

#define TYPE	0x1f03
#define HEAD	12
#define LONGEST 256
/* Maximum number of messages that wait or are in flight. */
#define SLOTS 32

static struct slot {
	/* Number of the message in this place, or 0 if it is free. */
	equic_u64 number;
	equic_u64 deadline;
	equic_u64 length;
	equic_u8 bytes[LONGEST];
} slots[SLOTS];
static equic_u64 last;

/* The largest number of the peer's messages, and which of the 64 up to it were received. */
static equic_u64 largest, seen;

static struct slot *find(equic_u64 number)
{
	struct slot *slot = &slots[number % SLOTS];

	return slot->number == number ? slot : 0;
}

equic_u64 on_message(struct equic_hook_message *call, const equic_u8 *bytes, equic_u64 length)
{
	struct slot *slot = &slots[(last + 1) % SLOTS];

	(void)call;
	if (length < 8 || length - 8 > LONGEST)
		return EQUIC_DONE;
	/* There are too many messages: this place has one whose time is not over. */
	if (slot->number && equic_now() < slot->deadline)
		return EQUIC_DONE;
	if (!equic_queue_frame(TYPE, last + 1))
		return EQUIC_DONE;
	slot->number = ++last;
	slot->deadline = equic_now() + *(const equic_u64 *)bytes;
	slot->length = length - 8;
	for (equic_u64 at = 0; at < slot->length; at++)
		slot->bytes[at] = bytes[8 + at];
	return EQUIC_DONE;
}

equic_u64 write(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
{
	struct slot *slot = find(call->in.token);
	equic_u64 follows;

	call->out.length = 0;
	if (!slot)
		return EQUIC_DONE;
	if (equic_now() >= slot->deadline) {
		slot->number = 0;
		return EQUIC_DONE;
	}
	follows = 8 + slot->length;
	if (room < HEAD + slot->length)
		return EQUIC_DONE;
	bytes[0] = 0x40 | TYPE >> 8;
	bytes[1] = TYPE & 0xff;
	bytes[2] = 0x40 | follows >> 8;
	bytes[3] = follows;
	for (int at = 0; at < 8; at++)
		bytes[4 + at] = slot->number >> 8 * (7 - at);
	for (equic_u64 at = 0; at < slot->length; at++)
		bytes[HEAD + at] = slot->bytes[at];
	call->out.length = HEAD + slot->length;
	return EQUIC_DONE;
}

equic_u64 on_acked(struct equic_frame_acked *call)
{
	struct slot *slot = find(call->in.token);

	if (slot)
		slot->number = 0;
	return EQUIC_DONE;
}

equic_u64 on_lost(struct equic_frame_lost *call)
{
	struct slot *slot = find(call->in.token);

	if (slot && (equic_now() >= slot->deadline || !equic_queue_frame(TYPE, slot->number)))
		slot->number = 0;
	return EQUIC_DONE;
}

equic_u64 parse(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length)
{
	equic_u64 all;

	call->out.length = 0;
	if (length < HEAD || bytes[2] >> 6 != 1)
		return EQUIC_DONE;
	all = 4 + ((bytes[2] & 0x3f) << 8 | bytes[3]);
	if (all >= HEAD && all <= HEAD + LONGEST && all <= length)
		call->out.length = all;
	return EQUIC_DONE;
}

equic_u64 on_frame(struct equic_process_frame *call, const equic_u8 *bytes, equic_u64 length)
{
	equic_u64 number = 0;

	call->out.accept = 1;
	for (int at = 4; at < HEAD; at++)
		number = number << 8 | bytes[at];
	if (number > largest) {
		seen = number - largest < 64 ? seen << (number - largest) : 0;
		largest = number;
	}
	/* A message this old was received before, or its sender has dropped it. */
	if (largest - number >= 64 || seen >> (largest - number) & 1)
		return EQUIC_DONE;
	seen |= 1ull << (largest - number);
	equic_tell(bytes + HEAD, length - HEAD);
	return EQUIC_DONE;
}
