/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Forward error correction by random linear codes over a sliding window (after RFC 8681). A repair
 * frame is the sum of the last sixteen packets' payloads, each times a factor of GF(2^8) derived
 * from the frame's key and the packet's number. One is sent after every eight packets, and two
 * when no data is left. The peer, with the same plugin, can recover two missing packets. Recovery
 * does not acknowledge them, so window and pacing react to the loss (RFC 9265). */
#include <equic_plugin.h>

#define REPAIR	    0x1fed
#define GROUP	    8	 /* packets per repair frame */
#define SPAN	    32	 /* range of the packet numbers in a sum */
#define LONGEST	    1456 /* maximum bytes of a covered payload */
#define WORDS	    (1 + LONGEST / 8)
#define HEADER	    40 /* bytes of a frame before its sum; the type and the length take eight */
#define APPLICATION 2  /* packet number spaces below this one belong to the handshake */

typedef equic_u64 u64;

/* A sum of payloads (each is a word with its length, and then its bytes): its key, a bit for each
 * of its packets from `first` on, and its words. Also a single payload. Then the key is its packet
 * number plus one. */
struct sum {
	u64 key, first, mask, used, words[WORDS];
};

/* Sums being built, at the last bits of their keys. A packet is added to the two sums after
 * `current`. Earlier sums may wait to be sent. `work` is for calculations. */
static struct sum sums[4], work;
static u64 current, count;
/* True if the packet being written is ack-eliciting; true if it has a repair frame. */
static u64 eliciting, repairs;
/* Received payloads, at the last bits of their numbers, and the last two received sums. Then the
 * packets that are missing in the sum that was reduced last. */
static struct sum came[SPAN], rows[2];
static u64 newest, missing[2];

static u64 factor(u64 key, u64 number)
{
	key = key * 0x9e3779b97f4a7c15 ^ (number + 1) * 0xd6e8feb86659fd93;
	return 1 + ((key ^ key >> 32) * 0xd6e8feb86659fd93 >> 32) % 255;
}

/* Adds `by` times these words, each with eight products of GF(2^8). */
static void add(u64 *sum, const u64 *words, u64 used, u64 by)
{
	for (u64 at = 0; at < used && at < WORDS; at++) {
		u64 word = words[at], total = sum[at];

		for (int bit = 0; bit < 8; bit++) {
			total ^= word & -(by >> bit & 1);
			word = (word & ~0ull / 255 * 127) << 1 ^ (word >> 7 & ~0ull / 255) * 0x1d;
		}
		sum[at] = total;
	}
}

static void begin(struct sum *sum, u64 key, u64 first)
{
	sum->key = key, sum->first = first, sum->mask = sum->used = 0;
	for (u64 at = 0; at < WORDS; at++)
		((volatile u64 *)sum->words)[at] = 0; /* keeps clang from calling memset */
}

static void keep(struct sum *kept, u64 number, const equic_u8 *bytes, u64 length)
{
	begin(kept, number + 1, number);
	kept->words[0] = length, kept->used = 1 + (length + 7) / 8;
	for (u64 at = 0; at < length / 8; at++)
		kept->words[1 + at] = ((const u64 *)bytes)[at];
	for (u64 at = length & ~7ull; at < length; at++)
		kept->words[1 + at / 8] |= (u64)bytes[at] << 8 * (at & 7);
}

u64 keep_room(struct equic_keep_room *call)
{
	call->out.bytes = HEADER + 48; /* for an ACK frame, too */
	return call->in.space < APPLICATION ? EQUIC_DEFAULT : EQUIC_DONE;
}

u64 on_frames(struct equic_generate_frames *call)
{
	return eliciting = call->out.ack_eliciting;
}

u64 on_sent(struct equic_protect_packet *call, const equic_u8 *bytes, u64 length)
{
	u64 covered = eliciting && !repairs && call->in.space >= APPLICATION;
	u64 number = call->in.number, last = !equic_get(EQUIC_BYTES_UNSENT);

	repairs = 0;
	if (!covered || length > LONGEST)
		return EQUIC_DEFAULT;
	keep(&work, number, bytes, length);
	for (u64 key = current + 1; key < current + 3; key++) {
		struct sum *sum = &sums[key & 3];

		if (sum->key != key || number - sum->first >= SPAN)
			begin(sum, key, number);
		add(sum->words, work.words, work.used, factor(key, number));
		sum->mask |= 1ull << ((number - sum->first) & (SPAN - 1));
		sum->used = work.used > sum->used ? work.used : sum->used;
	}
	if (++count < GROUP && !last)
		return EQUIC_DEFAULT;
	for (count = last + 1; count; count--)
		equic_queue_frame(REPAIR, ++current);
	return EQUIC_DEFAULT;
}

u64 write_repair(struct equic_write_frame *call, u64 *frame, u64 room)
{
	struct sum *sum = &sums[call->in.token & 3];
	u64 length = HEADER + 8 * sum->used;

	call->out.length = 0; /* a later sum has replaced this one, or there is no room */
	if (sum->key != call->in.token || sum->used > WORDS || room < length)
		return EQUIC_DONE;
	/* Two variable-length integers of two bytes each. */
	frame[0] = 0x40ed5f | (length - 4) >> 8 << 16 | ((length - 4) & 0xff) << 24;
	for (u64 at = 1; at < length / 8; at++)
		frame[at] = (&sum->key)[at - 1];
	call->out.length = length;
	return repairs = EQUIC_DONE;
}

u64 parse_repair(struct equic_parse_frame *call, const equic_u8 *bytes, u64 length)
{
	u64 size = 4 + ((bytes[2] & 0x3f) << 8) + bytes[3];

	call->out.length = size < HEADER || size > length ? 0 : size;
	return EQUIC_DONE;
}

u64 on_received(struct equic_after_packet_read *call, const equic_u8 *bytes, u64 length)
{
	if (call->in.space >= APPLICATION && length <= LONGEST)
		keep(&came[call->in.number % SPAN], call->in.number, bytes, length);
	return 0;
}

/* Recovers a packet: divides the sum by the packet's factor, which is not 0. */
static void give(struct sum *sum, u64 number, u64 by)
{
	struct sum *made = &came[number % SPAN];
	u64 inverse = 0;

	for (u64 one = 0; one != 1 && inverse < 255;)
		one = 0, add(&one, &by, 1, ++inverse);
	begin(made, number + 1, number);
	add(made->words, sum->words, WORDS, inverse);
	if (made->words[0] <= LONGEST)
		equic_process_payload(number, made->words + 1, made->words[0]);
}

/* Removes known packets from a sum. Returns how many are missing, and recovers a single one. */
static u64 reduce(struct sum *sum)
{
	u64 lost = 0;

	for (u64 at = 0; at < SPAN; at++) {
		u64 number = sum->first + at, bit = sum->mask & 1ull << at;
		struct sum *here = &came[number % SPAN];

		if (bit && here->key == number + 1) {
			add(sum->words, here->words, sum->used, factor(sum->key, number));
			sum->mask ^= bit;
		} else if (bit) {
			missing[lost++ & 1] = number;
		}
	}
	if (lost == 1)
		give(sum, missing[0], factor(sum->key, missing[0]));
	return lost;
}

u64 on_repair(struct equic_process_frame *call, const u64 *frame, u64 size)
{
	struct sum *sum = &rows[++newest & 1], *old = &rows[~newest & 1];
	u64 a, b, s, o, left = 0;

	begin(sum, 0, 0);
	for (u64 at = 1; at < size / 8 && at <= 4 + WORDS; at++)
		(&sum->key)[at - 1] = frame[at];
	if (reduce(sum) == 2 && (a = missing[0], b = missing[1], reduce(old) == 2) &&
	    missing[0] == a && missing[1] == b) {
		s = factor(sum->key, a), o = factor(old->key, a);
		a = factor(sum->key, b), add(&left, &a, 1, o);
		a = factor(old->key, b), add(&left, &a, 1, s);
		begin(&work, 0, 0);
		add(work.words, sum->words, WORDS, o);
		add(work.words, old->words, WORDS, s);
		if (left)
			give(&work, b, left);
	}
	reduce(old);
	reduce(sum);
	return call->out.accept = EQUIC_DONE;
}
