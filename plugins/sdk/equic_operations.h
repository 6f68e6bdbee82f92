/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Operations of QUIC connections: for each a structure of the words that a plugin's function is called with, `in` to
 * read and `out` to write. equic_plugin.h includes this; it says how a function is called.
 *
 * Made of the tables of the transport by `make header`.
 */
#ifndef EQUIC_PLUGIN_H
#error "include equic_plugin.h instead"
#endif
#ifndef EQUIC_OPERATIONS_H
#define EQUIC_OPERATIONS_H

/* HandleDatagram (RFC 9000 s.12.2): A datagram came. Output 0: it is dropped unread. Bytes to read
 * go with it. */
struct equic_handle_datagram {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the codepoint in the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
	struct {
		equic_u64 accept; /* 1, or 0: the operation's documentation says what becomes of it then */
	} out;
};

/* RestorePacketNumber (RFC 9000 A.3): The whole packet number from its truncated form. */
struct equic_restore_packet_number {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 truncated; /* the packet number's bits in the header */
		equic_u64 length; /* a number of bytes */
		equic_u64 largest; /* the largest packet number so far, received or acknowledged; all ones: none */
	} in;
	struct {
		equic_u64 number; /* packet number */
	} out;
};

/* IsDuplicate (RFC 9000 s.12.3): Whether a packet was received before. One that was, was. */
struct equic_is_duplicate {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
	} in;
	struct {
		equic_u64 duplicate; /* 1 or 0 */
	} out;
};

/* AfterPacketRead (RFC 9000 s.12.3): A packet is opened; its payload has not been looked at. Bytes
 * to read go with it. */
struct equic_after_packet_read {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the codepoint in the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* ParseFrames (RFC 9000 s.12.4): All frames of a packet. Output 0: it is treated as lost. Bytes to
 * read go with it. */
struct equic_parse_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 accept; /* 1, or 0: the operation's documentation says what becomes of it then */
	} out;
};

/* ParseFrame (RFC 9000 s.19): How many bytes a frame takes, of those given, its type included; 0:
 * it is malformed. Of a type that the transport knows no other answer than 0 counts. Replaced for
 * a type that it does not know by the hook whose own that is. It is there for each frame type. */
struct equic_parse_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* CheckFrame (RFC 9000 s.12.4 table 3): Whether such a frame may come in this space. What the RFC
 * forbids may not; a hook's own frames come in 1-RTT packets alone. It is there for each frame
 * type. */
struct equic_check_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* ProcessFrame (RFC 9000 s.19): What a frame does. Output 0: its packet is treated as lost. It is
 * there for each frame type. */
struct equic_process_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 accept; /* 1, or 0: the operation's documentation says what becomes of it then */
	} out;
};

/* AfterParseFrames (RFC 9000 s.13.1): All frames of a packet are processed. */
struct equic_after_parse_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 ack_eliciting; /* 1 if the packet is to be acknowledged, else 0 */
	} in;
};

/* RecordPacket (RFC 9000 s.13.2): Remembers a packet for acknowledgement. That is done whatever is
 * answered. */
struct equic_record_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 ack_eliciting; /* 1 if the packet is to be acknowledged, else 0 */
		equic_u64 ecn; /* the codepoint in the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* ProcessAck (RFC 9002 A.7): An ACK frame: what is acknowledged, lost, and what follows for the
 * path. */
struct equic_process_ack {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 largest; /* the largest packet number so far, received or acknowledged; all ones: none */
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} in;
};

/* AckDelay (RFC 9002 s.5.3): What the peer waited before it acknowledged, from the field of the
 * frame. */
struct equic_ack_delay {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} in;
	struct {
		equic_u64 delay; /* a time in nanoseconds */
	} out;
};

/* UpdateRtt (RFC 9002 s.5.3): Takes a sample of the round-trip time. */
struct equic_update_rtt {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 sample; /* the round trip measured, in nanoseconds */
		equic_u64 ack_delay; /* time that the peer waited before it acknowledged, in nanoseconds */
	} in;
};

/* ValidateEcn (RFC 9000 s.13.4.2): Whether counts of marked packets are new congestion; checks that
 * they can be. */
struct equic_validate_ecn {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 marked; /* of packets, how many were marked; of one event, 1 if marks tell of it and 0 if loss does */
		equic_u64 ect0; /* the peer's count of packets marked ECT(0) */
		equic_u64 ect1; /* the peer's count of packets marked ECT(1) */
		equic_u64 ce; /* the peer's count of packets marked CE */
	} in;
	struct {
		equic_u64 congested; /* 1 if there is new congestion, else 0 */
	} out;
};

/* PacketAcked (RFC 9002 A.7): A packet is acknowledged. */
struct equic_packet_acked {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* bytes of the packet or datagram */
		equic_u64 path; /* number of the path */
	} in;
};

/* FrameAcked (RFC 9000 s.13.3): A frame that a hook wrote is acknowledged. For that hook alone; of
 * each frame that is acknowledged at all this or FrameLost is said once. It is there for each
 * frame type. */
struct equic_frame_acked {
	struct {
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0: the transport's */
	} in;
};

/* AckIsDue (RFC 9000 s.13.2.1): Whether an ACK frame must be sent now. Never where there is nothing
 * to tell, always where the peer was told that it would be. */
struct equic_ack_is_due {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 due; /* 1 or 0 */
	} out;
};

/* AckDeadline (RFC 9000 s.13.2.1): When one must be; not later than the default. */
struct equic_ack_deadline {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 at; /* a moment in nanoseconds on the connection's clock; all ones: none */
	} out;
};

/* SelectACKPath (RFC 9000 s.9.3): On which path acknowledgements of a space go. Without multipath
 * another than the active one counts as that; with it (RFC 10069), one on which nothing can be
 * sent counts as the default. */
struct equic_select_ack_path {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 path; /* number of the path */
	} out;
};

/* AckRangeCount (RFC 9000 s.13.2.3): How many ranges an ACK frame has, of those there are. */
struct equic_ack_range_count {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 available; /* ranges that there are */
	} in;
	struct {
		equic_u64 count; /* how many */
	} out;
};

/* EncodeAckDelay (RFC 9000 s.19.3): The ACK Delay field, from the time waited. */
struct equic_encode_ack_delay {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 waited; /* time since the largest packet came, in nanoseconds */
	} in;
	struct {
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} out;
};

/* AckPolicy (RFC 9000 s.13.2.2): How often to acknowledge; max_delay is not above what the peer was
 * told. */
struct equic_ack_policy {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 threshold; /* an acknowledgement is due once more ack-eliciting packets than that wait for one */
		equic_u64 max_delay; /* longest time that an acknowledgement waits, in nanoseconds */
		equic_u64 reordering; /* packets by which one must be late to be reported at once; 0: never, 1: any */
	} out;
};

/* LossThresholds (RFC 9002 s.6.1): When a packet counts as lost: 3 packets at least, a millisecond
 * at least, and a second above the default at most. */
struct equic_loss_thresholds {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 packets; /* a number of packets */
		equic_u64 delay; /* a time in nanoseconds */
	} out;
};

/* DetectLost (RFC 9002 A.10): Gives up what is lost by now. That is done whatever is answered. */
struct equic_detect_lost {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* PacketLost (RFC 9002 s.6.1): A packet is given up. */
struct equic_packet_lost {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* bytes of the packet or datagram */
		equic_u64 path; /* number of the path */
	} in;
};

/* SelectRetransmission (RFC 9000 s.13.3): Whether what was in a lost or probed packet is sent
 * again. Of a lost one it is in any case. */
struct equic_select_retransmission {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 probe; /* 1 if the packet is probed, 0: it is lost */
	} in;
	struct {
		equic_u64 again; /* 1 if the frames are sent again, else 0 */
	} out;
};

/* FrameLost (RFC 9000 s.13.3): A frame that a hook wrote is given up; that is not taken back if it
 * arrived after all. It is there for each frame type. */
struct equic_frame_lost {
	struct {
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0: the transport's */
	} in;
};

/* ProbeTimeout (RFC 9002 s.6.2.1): The probe timeout, without backoff: a round trip at least, and a
 * second above the default at most. */
struct equic_probe_timeout {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 duration; /* a time in nanoseconds; all ones, where there can be none: none */
	} out;
};

/* PtoBackoff (RFC 9002 s.6.2.1): How many times as long it is after so many in a row: 1 to 1,024. */
struct equic_pto_backoff {
	struct {
		equic_u64 count; /* how many */
	} in;
	struct {
		equic_u64 factor; /* how many times as long the timeout is */
	} out;
};

/* SetTimer (RFC 9002 A.8): When loss detection is to look again: not sooner than the default or a
 * round trip after what was sent, and a second later than the default at most; where that is none,
 * none. */
struct equic_set_timer {
	struct {
		equic_u64 at; /* a moment in nanoseconds on the connection's clock; all ones: none */
	} out;
};

/* OnTimer (RFC 9002 A.9): A timer has run out. What is due is done whatever is answered. */
struct equic_on_timer {
};

/* ProbeCount (RFC 9002 s.6.2.4): How many probes a probe timeout sends: one or two. */
struct equic_probe_count {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 count; /* how many */
	} in;
	struct {
		equic_u64 probes; /* how many packets */
	} out;
};

/* PersistentCongestion (RFC 9002 s.7.6): Whether losses so far apart are persistent congestion. */
struct equic_persistent_congestion {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 found; /* 1 if the losses are persistent congestion by RFC 9002, else 0 */
	} in;
	struct {
		equic_u64 persistent; /* 1 or 0 */
	} out;
};

/* SpuriousLoss (RFC 9002 s.6.1): Packets given up turned out to have arrived. */
struct equic_spurious_loss {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 packets; /* a number of packets */
	} in;
};

/* CongestionWindow (RFC 9002 s.7): The congestion window in bytes; two datagrams at least. */
struct equic_congestion_window {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* CongestionSent (RFC 9002 B.4): Bytes that count were sent. */
struct equic_congestion_sent {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 bytes; /* a number of bytes */
		equic_u64 in_flight; /* bytes in flight on the path */
	} in;
};

/* CongestionAcked (RFC 9002 B.5): Bytes that count were acknowledged. */
struct equic_congestion_acked {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 bytes; /* a number of bytes */
		equic_u64 in_flight; /* bytes in flight on the path */
		equic_u64 app_limited; /* 1 if the window was not used up when the packets were sent, else 0 */
	} in;
};

/* CongestionEvent (RFC 9002 B.6): Loss or marks. */
struct equic_congestion_event {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 largest_sent; /* when the latest of the packets was sent, in nanoseconds on the connection's clock */
		equic_u64 marked; /* of packets, how many were marked; of one event, 1 if marks tell of it and 0 if loss does */
		equic_u64 bytes; /* a number of bytes */
	} in;
};

/* PacingRate (RFC 9002 s.7.7): Bytes a second to send at; two datagrams at least. */
struct equic_pacing_rate {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 rate; /* bytes a second */
	} out;
};

/* PaceUntil (RFC 9002 s.7.7): When a datagram may leave at that rate; none: now. A second after it
 * was first put off it may. */
struct equic_pace_until {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 rate; /* bytes a second */
		equic_u64 size; /* bytes of the packet or datagram */
	} in;
	struct {
		equic_u64 at; /* a moment in nanoseconds on the connection's clock; all ones: none */
	} out;
};

/* AppLimited (RFC 9002 s.7.8): There was too little to send to fill the window. */
struct equic_app_limited {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 in_flight; /* bytes in flight on the path */
	} in;
};

/* SelectPath (RFC 9000 s.9): On which path the next datagram goes: the packet scheduler. The active
 * one, or one that has something to send which probes it; any other answer stands for the default.
 * With multipath (RFC 10069): any on which data can go, unless nothing was heard of what was sent
 * there last and another is better off. If it has no room, it is asked again, and an answer that
 * was given before means that data waits. A path that has room for data that waits gets a datagram
 * in a second at least, unless it is a backup or its cost is not 0. Acknowledgements, probes and
 * challenges of the others go all the same. */
struct equic_select_path {
	struct {
		equic_u64 path; /* number of the path */
	} out;
};

/* HasContent (RFC 9000 s.12.2): Whether a packet of a space is to be sent now. None where there is
 * nothing to send; where there is something, it can be put off for a second. */
struct equic_has_content {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
		equic_u64 may_count; /* 1 if window and pace let a packet go that counts as in flight, else 0 */
	} in;
	struct {
		equic_u64 yes; /* 1 or 0 */
	} out;
};

/* DatagramSize (RFC 9000 s.14): How large the datagram may be: 1,200 bytes at least, and what the
 * path is known to take at most. */
struct equic_datagram_size {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* NextPacketNumber (RFC 9000 s.17.1): The number of the next packet; not below next, and at most 64
 * above. */
struct equic_next_packet_number {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 next; /* the number after the last one used */
	} in;
	struct {
		equic_u64 number; /* packet number */
	} out;
};

/* SpinBit (RFC 9000 s.17.4): The value of the spin bit. */
struct equic_spin_bit {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bit; /* 1 or 0 */
	} out;
};

/* GenerateHeader (RFC 9000 s.17): The header of a packet is written, its payload not yet. */
struct equic_generate_header {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
};

/* GenerateFrames (RFC 9000 s.12.4): The frames of a packet. Output 0: nothing in it is
 * ack-eliciting. They are written whatever is answered. */
struct equic_generate_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 room; /* bytes that are left in the packet */
	} in;
	struct {
		equic_u64 ack_eliciting; /* 1 if the packet is to be acknowledged, else 0 */
	} out;
};

/* WriteFrame (RFC 9000 s.19): A frame as it goes out. Of the transport's own, to look at: its
 * bytes, and how many they are. Of a hook's own, for that hook to write: a buffer, and the token
 * that it queued the frame with. What it writes must be one frame of the type, as its own
 * ParseFrame reads it. It is there for each frame type. */
struct equic_write_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0: the transport's */
		equic_u64 length; /* a number of bytes */
	} in;
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* PadPacket (RFC 9000 s.14.1): Bytes of PADDING at the end of a packet; not below what is wanted,
 * and not more if it is not ack-eliciting. */
struct equic_pad_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 wanted; /* bytes of padding that there must be */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* SendPacket (RFC 9002 A.5): A packet was sent. It is remembered whatever is answered. */
struct equic_send_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* bytes of the packet or datagram */
		equic_u64 ack_eliciting; /* 1 if the packet is to be acknowledged, else 0 */
		equic_u64 path; /* number of the path */
	} in;
};

/* SendDatagram (RFC 9000 s.12.2): A datagram is about to leave, as it is on the wire. Bytes to read
 * go with it. */
struct equic_send_datagram {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the codepoint in the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* MarkEcn (RFC 9000 s.13.4): Whether a packet is marked ECT(0). */
struct equic_mark_ecn {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 mark; /* 1 or 0 */
	} out;
};

/* ScheduleStream (RFC 9000 s.2.3): Which stream goes next; none: whose turn it is. */
struct equic_schedule_stream {
	struct {
		equic_u64 room; /* bytes that are left in the packet */
	} in;
	struct {
		equic_u64 stream; /* stream ID; all ones: none */
	} out;
};

/* WindowUpdate (RFC 9000 s.4.2): The limit to tell the peer for a stream, or, where that is none,
 * for the connection; not below the default, and no more room than the window may ever have. */
struct equic_window_update {
	struct {
		equic_u64 stream; /* stream ID; all ones: none */
		equic_u64 limit; /* the most that may be, of what the operation is about: bytes, connection IDs */
	} in;
	struct {
		equic_u64 limit; /* the most that may be, of what the operation is about: bytes, connection IDs */
	} out;
};

/* OpenStream (RFC 9000 s.4.6): Whether the application may open a stream now: 0 bidirectional, 1
 * unidirectional. */
struct equic_open_stream {
	struct {
		equic_u64 direction; /* 0: bidirectional, 1: unidirectional */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* ConnectionIdCount (RFC 9000 s.5.1.1): How many connection IDs the peer is given, of what it and
 * we keep. */
struct equic_connection_id_count {
	struct {
		equic_u64 limit; /* the most that may be, of what the operation is about: bytes, connection IDs */
	} in;
	struct {
		equic_u64 count; /* how many */
	} out;
};

/* RetireConnectionId (RFC 9000 s.5.1.2): The peer retires one of ours. */
struct equic_retire_connection_id {
	struct {
		equic_u64 sequence; /* sequence number of the connection ID */
	} in;
};

/* ProbeMtu (RFC 9000 s.14.3): The size of a probe for larger datagrams, if one is due; 0: none. Of
 * a hook's answers 0 counts, any other stands for the default. */
struct equic_probe_mtu {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 size; /* bytes of the packet or datagram */
	} out;
};

/* MtuProbeDone (RFC 8899 s.4): A probe arrived (1) or was lost (0). */
struct equic_mtu_probe_done {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 arrived; /* 1 if the probe was acknowledged, 0: it was lost */
	} in;
};

/* AnswerChallenge (RFC 9000 s.8.2.2): PATH_CHALLENGE came. Output 0: it is not answered. */
struct equic_answer_challenge {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 answer; /* 1 if it is answered, else 0 */
	} out;
};

/* FollowPeer (RFC 9000 s.9.3): Whether the active path follows the peer, whose latest packet came
 * from elsewhere. */
struct equic_follow_peer {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 active; /* number of the active path */
	} in;
	struct {
		equic_u64 follow; /* 1 or 0 */
	} out;
};

/* ChallengePath (RFC 9000 s.8.2.1): A path is to be validated: a challenge is chosen. */
struct equic_challenge_path {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* PathValidated (RFC 9000 s.8.2.3): The peer has answered on a path. */
struct equic_path_validated {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* InitOpaqueData (The Case for Protocol Plugins s.3): The connection begins: what a plugin keeps is
 * set up. */
struct equic_init_opaque_data {
	struct {
		equic_u64 side; /* 0: client, 1: server */
	} in;
};

/* KeysReady (RFC 9001 s.4.1.4): Keys of a space are there. */
struct equic_keys_ready {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* DiscardKeys (RFC 9001 s.4.9): Keys of a space are thrown away. */
struct equic_discard_keys {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* UpdateKeys (RFC 9001 s.6): Whether keys are updated now: the application wishes it, or (worn)
 * they have protected half of the packets that they may. From three quarters on nobody is asked. */
struct equic_update_keys {
	struct {
		equic_u64 worn; /* 1 if the keys have protected half of what they may, 0: the application wishes it */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* HandshakeComplete (RFC 9001 s.4.1.1): The handshake is complete. */
struct equic_handshake_complete {
};

/* HandshakeConfirmed (RFC 9001 s.4.1.2): It is confirmed. */
struct equic_handshake_confirmed {
};

/* IdleTimeout (RFC 9000 s.10.1): How long nothing may come before the connection is dropped; none:
 * for ever. Not longer than the default. */
struct equic_idle_timeout {
	struct {
		equic_u64 duration; /* a time in nanoseconds; all ones, where there can be none: none */
	} out;
};

/* CloseConnection (RFC 9000 s.10.2): We close the connection. */
struct equic_close_connection {
	struct {
		equic_u64 application; /* 1 if the error is the application's, 0: the transport's */
		equic_u64 code; /* the error code */
	} in;
};

/* PeerClosed (RFC 9000 s.10.2.2): The peer has closed it. */
struct equic_peer_closed {
	struct {
		equic_u64 application; /* 1 if the error is the application's, 0: the transport's */
		equic_u64 code; /* the error code */
	} in;
};

/* ChooseVersion (RFC 9368 s.2.3): The version that a server answers in: the client's, or what it
 * likes better. */
struct equic_choose_version {
	struct {
		equic_u64 version; /* version of QUIC (RFC 9000 s.15) */
	} in;
	struct {
		equic_u64 version; /* version of QUIC (RFC 9000 s.15) */
	} out;
};

/* EarlyDataAnswered (RFC 9001 s.4.6.2): It is known whether early data is taken. */
struct equic_early_data_answered {
	struct {
		equic_u64 accepted; /* 1 if the server takes early data, else 0 */
	} in;
};

/* KeepPacket (RFC 9001 s.5.7): Whether a packet is kept that came before its keys. */
struct equic_keep_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 size; /* bytes of the packet or datagram */
	} in;
	struct {
		equic_u64 keep; /* 1 or 0 */
	} out;
};

/* AcceptDatagram (RFC 9221 s.5): An unreliable datagram came. Output 0: it is dropped. Bytes to
 * read go with it. */
struct equic_accept_datagram {
	struct {
		equic_u64 accept; /* 1, or 0: the operation's documentation says what becomes of it then */
	} out;
};

/* RequestAckFrequency (draft-ietf-quic-ack-frequency s.7): How often the peer is asked to
 * acknowledge, if that is far from what it does. The delay is a second more than by default at
 * most. */
struct equic_request_ack_frequency {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 threshold; /* an acknowledgement is due once more ack-eliciting packets than that wait for one */
		equic_u64 max_delay; /* longest time that an acknowledgement waits, in nanoseconds */
		equic_u64 reordering; /* packets by which one must be late to be reported at once; 0: never, 1: any */
	} out;
};

/* ObeyAckFrequency (draft-ietf-quic-ack-frequency s.4): The peer asks us to acknowledge so often.
 * Output 0: we go on as before. */
struct equic_obey_ack_frequency {
	struct {
		equic_u64 threshold; /* an acknowledgement is due once more ack-eliciting packets than that wait for one */
		equic_u64 max_delay; /* longest time that an acknowledgement waits, in nanoseconds */
		equic_u64 reordering; /* packets by which one must be late to be reported at once; 0: never, 1: any */
	} in;
	struct {
		equic_u64 obey; /* 1 or 0 */
	} out;
};

/* KeepAlive (RFC 9000 s.10.1.2): After how long without a word a PING is sent; none: never. */
struct equic_keep_alive {
	struct {
		equic_u64 interval; /* a time in nanoseconds; all ones: none */
	} out;
};

/* HookTimer (The Case for Protocol Plugins s.3): The timer that the hook set has run out; it was
 * set to at. */
struct equic_hook_timer {
	struct {
		equic_u64 at; /* a moment in nanoseconds on the connection's clock; all ones: none */
	} in;
};

/* HookMessage (The Case for Protocol Plugins s.3): The application has a message for the hook.
 * Bytes to read go with it. */
struct equic_hook_message {
};

/* ProtectPacket (RFC 9001 s.5.3): A packet is complete but for its protection: the bytes of its
 * frames, PADDING among them. Bytes to read go with it. */
struct equic_protect_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
};

/* KeepRoom (RFC 9000 s.12.4): Bytes of a packet that STREAM frames leave free: 128 at most, and a
 * quarter of the room. Other frames may use them. */
struct equic_keep_room {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 room; /* bytes that are left in the packet */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* PathAdded (RFC 9000 s.9): A path is new: there are addresses between which no datagram came or
 * went before. */
struct equic_path_added {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* PathRemoved (RFC 9000 s.9): A path is gone. Its number is never another's. */
struct equic_path_removed {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* ApplicationWrote (RFC 9000 s.2.2): The application has written so many bytes to streams since
 * this was said last. It is said before the next datagram is made. */
struct equic_application_wrote {
	struct {
		equic_u64 bytes; /* a number of bytes */
	} in;
};

/* WriteParameters (RFC 9000 s.7.4.2): The hook may declare transport parameters of its own, encoded
 * one behind the other: numbers from 0x40 up that the transport does not know, eight of them at
 * most. It is said when the hook is attached before the first packet, to a hook that no other
 * brought; a session of TLS that the client would have resumed may be used up by that. A buffer to
 * write goes with it. */
struct equic_write_parameters {
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* PeerParameter (RFC 9000 s.7.4.2): The peer declared a transport parameter with a number that this
 * hook wrote: the bytes are its value. Bytes to read go with it. */
struct equic_peer_parameter {
	struct {
		equic_u64 parameter; /* number of a transport parameter */
	} in;
};

/* CopyStreamData (RFC 10069 s.5.5): Whether a piece of stream data that was sent on a path goes on
 * another one, too. It does so when that one has room, if the piece was not acknowledged by then;
 * of pieces that wait the last 1,024 are kept for each path. */
struct equic_copy_stream_data {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 other; /* number of another path */
		equic_u64 stream; /* stream ID; all ones: none */
		equic_u64 bytes; /* a number of bytes */
	} in;
	struct {
		equic_u64 copy; /* 1 if it goes there, too, else 0 */
	} out;
};

#endif
