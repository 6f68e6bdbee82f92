/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Forward error correction: a repair frame is the XOR of the payloads of eight packets, or of fewer
 * if no data is left. The peer, with the same plugin, recovers one missing packet of them, a round
 * trip sooner than by retransmission. Recovery does not acknowledge the packet, so window and
 * pacing react to the loss (RFC 9265).
 *
 * A repair frame: its type, the length of what follows, a bit for each covered packet from `first`
 * on, `first`, the XOR of the payloads' lengths, and after 24 bytes that of the payloads. */
#include <equic_plugin.h>

#define REPAIR 0x1fec
/* The type as a variable-length integer of two bytes. */
#define TYPE_0 0x5f
#define TYPE_1 0xec
#define HEADER 24

/* Number of packets that a repair frame covers, and the range of their packet numbers. */
#define GROUP 8
#define SPAN  32
/* Payloads outside these lengths are not covered. */
#define LONGEST	 1472
#define SHORTEST 32
#define WORDS	 (LONGEST / 8)
/* Bytes that STREAM frames leave free, for the header of a repair frame and an acknowledgement. */
#define KEPT 64
/* Packet number spaces below this one belong to the handshake. */
#define APPLICATION 2

struct payload {
	equic_u64 number; /* packet number plus one, or 0 if unused */
	equic_u64 length;
	equic_u64 words[WORDS];
};

struct repair {
	equic_u8 type[2], size[2];
	equic_u32 mask;
	equic_u64 first;
	equic_u16 lengths, spare[3];
	equic_u64 words[WORDS];
};

/* The group being built, and the previous one, whose repair frame may wait to be sent. */
static struct group {
	equic_u64 first, count, mask, lengths, longest;
	equic_u64 words[WORDS];
} groups[2];
static equic_u64 current;
/* True if the packet being written is ack-eliciting; true if it has a repair frame. */
static equic_u64 eliciting, repairs;

/* Received payloads, at the last bits of their numbers. */
static struct payload came[SPAN];
static struct payload rebuilt;

/* XORs this many bytes onto words. Bytes after them count as zeros. */
static void add(equic_u64 *words, const equic_u8 *bytes, equic_u64 length)
{
	equic_u64 whole = length / 8, at, tail = 0;

	for (at = 0; at < whole && at < WORDS; at++)
		words[at] ^= ((const equic_u64 *)bytes)[at];
	for (at = whole * 8; at < length; at++)
		tail |= (equic_u64)bytes[at] << (8 * (at & 7));
	if (whole < WORDS)
		words[whole] ^= tail;
}

static void clear(equic_u64 *words)
{
	for (equic_u64 at = 0; at < WORDS; at++) {
		words[at] = 0;
		__asm__ volatile("" ::: "memory"); /* keeps clang from calling memset */
	}
}

equic_u64 keep_room(struct equic_keep_room *call)
{
	if (call->in.space < APPLICATION)
		return EQUIC_DEFAULT;
	call->out.bytes = KEPT;
	return EQUIC_DONE;
}

equic_u64 on_frames(struct equic_generate_frames *call)
{
	eliciting = call->out.ack_eliciting;
	return 0;
}

equic_u64 on_sent(struct equic_protect_packet *call, const equic_u8 *bytes, equic_u64 length)
{
	struct group *group = &groups[current & 1];
	equic_u64 covered = eliciting && !repairs, number = call->in.number;

	if (call->in.space < APPLICATION)
		return EQUIC_DEFAULT;
	repairs = 0;
	if (!covered || length < SHORTEST || length > LONGEST)
		return EQUIC_DEFAULT;
	if (!group->count || number - group->first >= SPAN) {
		group->first = number;
		group->count = group->mask = group->lengths = group->longest = 0;
		clear(group->words);
	}
	add(group->words, bytes, length);
	group->mask |= 1ull << ((number - group->first) & (SPAN - 1));
	group->lengths ^= length;
	if (length > group->longest)
		group->longest = length;
	if (++group->count < GROUP && equic_get(EQUIC_BYTES_UNSENT))
		return EQUIC_DEFAULT;
	if (equic_queue_frame(REPAIR, current))
		current++;
	groups[current & 1].count = 0;
	return EQUIC_DEFAULT;
}

equic_u64 write_repair(struct equic_write_frame *call, equic_u8 *bytes, equic_u64 room)
{
	struct group *group = &groups[call->in.token & 1];
	struct repair *repair = (struct repair *)bytes;
	equic_u64 words = (group->longest + 7) / 8, length = HEADER + 8 * words;

	call->out.length = 0;
	/* A later group has replaced this one, or the packet has no room. */
	if (call->in.token + 1 != current || room < length || words > WORDS)
		return EQUIC_DONE;
	repair->type[0] = TYPE_0;
	repair->type[1] = TYPE_1;
	repair->size[0] = 0x40 | (length - 4) >> 8;
	repair->size[1] = length - 4;
	repair->mask = group->mask;
	repair->first = group->first;
	repair->lengths = group->lengths;
	for (equic_u64 at = 0; at < words; at++)
		repair->words[at] = group->words[at];
	call->out.length = length;
	repairs = 1;
	return EQUIC_DONE;
}

equic_u64 parse_repair(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length)
{
	equic_u64 size = length < HEADER ? 0 : 4 + ((bytes[2] & 0x3f) << 8) + bytes[3];

	call->out.length = size < HEADER || size > length ? 0 : size;
	return EQUIC_DONE;
}

equic_u64 on_received(struct equic_after_packet_read *call, const equic_u8 *bytes, equic_u64 length)
{
	struct payload *kept = &came[call->in.number & (SPAN - 1)];

	if (call->in.space < APPLICATION || length > LONGEST)
		return 0;
	kept->number = call->in.number + 1;
	kept->length = length;
	clear(kept->words);
	add(kept->words, bytes, length);
	return 0;
}

equic_u64 on_repair(struct equic_process_frame *call, const equic_u8 *bytes, equic_u64 size)
{
	const struct repair *repair = (const struct repair *)bytes;
	equic_u64 length = repair->lengths, missing = 0, lost = 0;

	call->out.accept = 1;
	clear(rebuilt.words);
	add(rebuilt.words, bytes + HEADER, size - HEADER);
	for (equic_u64 at = 0; at < SPAN; at++) {
		equic_u64 number = repair->first + at;
		struct payload *kept = &came[number & (SPAN - 1)];

		if (!(repair->mask >> at & 1))
			continue;
		if (kept->number != number + 1) {
			missing++;
			lost = number;
			continue;
		}
		length ^= kept->length;
		add(rebuilt.words, (const equic_u8 *)kept->words, kept->length);
	}
	/* With two packets missing, neither can be recovered. */
	if (missing == 1 && length <= size - HEADER)
		equic_process_payload(lost, rebuilt.words, length);
	return EQUIC_DONE;
}
