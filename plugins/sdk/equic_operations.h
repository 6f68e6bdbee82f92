/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Operations of QUIC connections. Each has a structure with the words of a call: a plugin's function reads `in` and
 * writes `out`. equic_plugin.h includes this header and describes how functions are called.
 *
 * Generated from the tables of the transport: `make header` writes it again.
 */
#ifndef EQUIC_PLUGIN_H
#error "include equic_plugin.h instead"
#endif
#ifndef EQUIC_OPERATIONS_H
#define EQUIC_OPERATIONS_H

/* HandleDatagram (RFC 9000 s.12.2): Receives a datagram. Output 0 drops it unread. The call has
 * bytes to read. */
struct equic_handle_datagram {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the ECN codepoint of the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
	struct {
		equic_u64 accept; /* 1 to accept, or 0 with the effect that the operation documents */
	} out;
};

/* RestorePacketNumber (RFC 9000 A.3): Decodes the full packet number from its truncated form. */
struct equic_restore_packet_number {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 truncated; /* the truncated packet number in the header */
		equic_u64 length; /* a number of bytes */
		equic_u64 largest; /* the largest packet number so far, received or acknowledged; all ones for no packet */
	} in;
	struct {
		equic_u64 number; /* packet number */
	} out;
};

/* IsDuplicate (RFC 9000 s.12.3): Decides whether a packet is a duplicate. A hook cannot declare a
 * duplicate to be a new packet. */
struct equic_is_duplicate {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
	} in;
	struct {
		equic_u64 duplicate; /* 1 or 0 */
	} out;
};

/* AfterPacketRead (RFC 9000 s.12.3): Notifies that a packet was decrypted. Its frames have not been
 * parsed yet. The call has bytes to read. */
struct equic_after_packet_read {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the ECN codepoint of the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* ParseFrames (RFC 9000 s.12.4): Processes all frames of a packet. Output 0 treats the packet as
 * lost. The call has bytes to read. */
struct equic_parse_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 accept; /* 1 to accept, or 0 with the effect that the operation documents */
	} out;
};

/* ParseFrame (RFC 9000 s.19): Returns the length of the frame at the beginning of the given bytes,
 * including its type, or 0 if the frame is malformed. For a frame type of the transport, only the
 * answer 0 has an effect. For any other type, only the hook that owns the type can replace this
 * operation. The operation exists for each frame type. */
struct equic_parse_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* CheckFrame (RFC 9000 s.12.4 table 3): Decides whether the frame is permitted in this packet
 * number space. A hook can forbid a frame, but cannot permit what the RFC forbids. A hook's own
 * frames are permitted in 1-RTT packets only. The operation exists for each frame type. */
struct equic_check_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* ProcessFrame (RFC 9000 s.19): Processes a frame. Output 0 treats its packet as lost. The
 * operation exists for each frame type. */
struct equic_process_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 accept; /* 1 to accept, or 0 with the effect that the operation documents */
	} out;
};

/* AfterParseFrames (RFC 9000 s.13.1): Notifies that all frames of a packet were processed. */
struct equic_after_parse_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 ack_eliciting; /* 1 if the packet elicits an acknowledgment, else 0 */
	} in;
};

/* RecordPacket (RFC 9000 s.13.2): Records a packet for acknowledgment. The packet is recorded
 * whatever a hook answers. */
struct equic_record_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 ack_eliciting; /* 1 if the packet elicits an acknowledgment, else 0 */
		equic_u64 ecn; /* the ECN codepoint of the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* ProcessAck (RFC 9002 A.7): Processes an ACK frame: finds acknowledged and lost packets, and
 * updates the path. */
struct equic_process_ack {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 largest; /* the largest packet number so far, received or acknowledged; all ones for no packet */
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} in;
};

/* AckDelay (RFC 9002 s.5.3): Returns how long the peer delayed its acknowledgment, computed from
 * the ACK Delay field. */
struct equic_ack_delay {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} in;
	struct {
		equic_u64 delay; /* a time in nanoseconds */
	} out;
};

/* UpdateRtt (RFC 9002 s.5.3): Adds an RTT sample. */
struct equic_update_rtt {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 sample; /* the RTT sample, in nanoseconds */
		equic_u64 ack_delay; /* time by which the peer delayed its acknowledgment, in nanoseconds */
	} in;
};

/* ValidateEcn (RFC 9000 s.13.4.2): Validates ECN counts, and decides whether they report new
 * congestion. */
struct equic_validate_ecn {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 marked; /* number of marked packets; for a congestion event, 1 if marks caused it and 0 if losses did */
		equic_u64 ect0; /* the peer's count of packets marked ECT(0) */
		equic_u64 ect1; /* the peer's count of packets marked ECT(1) */
		equic_u64 ce; /* the peer's count of packets marked CE */
	} in;
	struct {
		equic_u64 congested; /* 1 if there is new congestion, else 0 */
	} out;
};

/* PacketAcked (RFC 9002 A.7): Notifies that a packet was acknowledged. */
struct equic_packet_acked {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* length of the packet or datagram in bytes */
		equic_u64 path; /* number of the path */
	} in;
};

/* FrameAcked (RFC 9000 s.13.3): Notifies the hook that wrote a frame that the frame was
 * acknowledged. For each frame that elicits an acknowledgment, either this operation or FrameLost
 * is called once. The operation exists for each frame type. */
struct equic_frame_acked {
	struct {
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0 for a frame of the transport */
	} in;
};

/* AckIsDue (RFC 9000 s.13.2.1): Decides whether an ACK frame must be sent now. The answer has no
 * effect if there is nothing to acknowledge, or if the delay that was promised to the peer is
 * over. */
struct equic_ack_is_due {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 due; /* 1 or 0 */
	} out;
};

/* AckDeadline (RFC 9000 s.13.2.1): Returns the time at which an ACK frame must be sent. It cannot
 * be later than the default. */
struct equic_ack_deadline {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 at; /* a time in nanoseconds on the connection's clock; all ones for no time */
	} out;
};

/* SelectACKPath (RFC 9000 s.9.3): Chooses the path for acknowledgments of a packet number space.
 * Without multipath, any answer of a hook selects the active path. With multipath (RFC 10069), the
 * default applies if nothing can be sent on the chosen path. */
struct equic_select_ack_path {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 path; /* number of the path */
	} out;
};

/* AckRangeCount (RFC 9000 s.13.2.3): Returns how many of the available ranges an ACK frame
 * contains. */
struct equic_ack_range_count {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 available; /* number of ranges to report */
	} in;
	struct {
		equic_u64 count; /* a number of items */
	} out;
};

/* EncodeAckDelay (RFC 9000 s.19.3): Returns the ACK Delay field for the time since the packet
 * arrived. */
struct equic_encode_ack_delay {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 waited; /* time since the packet with the largest number arrived, in nanoseconds */
	} in;
	struct {
		equic_u64 raw_delay; /* the ACK Delay field, in the sender's units (RFC 9000 s.19.3) */
	} out;
};

/* AckPolicy (RFC 9000 s.13.2.2): Returns how often and how soon to acknowledge packets. max_delay
 * is limited to the value that was declared to the peer. */
struct equic_ack_policy {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 threshold; /* an acknowledgment is due when more ack-eliciting packets than this wait for one */
		equic_u64 max_delay; /* longest delay of an acknowledgment, in nanoseconds */
		equic_u64 reordering; /* smallest reordering, in packets, that is acknowledged at once; 0: never, 1: any reordering */
	} out;
};

/* LossThresholds (RFC 9002 s.6.1): Returns after how many packets, and after which time, a packet
 * counts as lost. The number is at least 3. The time is at least a millisecond, and at most a
 * second above the default. */
struct equic_loss_thresholds {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 packets; /* a number of packets */
		equic_u64 delay; /* a time in nanoseconds */
	} out;
};

/* DetectLost (RFC 9002 A.10): Declares packets lost. They are declared lost whatever a hook
 * answers. */
struct equic_detect_lost {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* PacketLost (RFC 9002 s.6.1): Notifies that a packet was declared lost. */
struct equic_packet_lost {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* length of the packet or datagram in bytes */
		equic_u64 path; /* number of the path */
	} in;
};

/* SelectRetransmission (RFC 9000 s.13.3): Decides whether the contents of a lost or probed packet
 * are sent again. Lost contents are always sent again. */
struct equic_select_retransmission {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 probe; /* 1 if the packet is probed, 0 if it was lost */
	} in;
	struct {
		equic_u64 again; /* 1 if the frames are sent again, else 0 */
	} out;
};

/* FrameLost (RFC 9000 s.13.3): Notifies the hook that wrote a frame that the frame was declared
 * lost. This is not revoked if the frame arrives later. The operation exists for each frame type. */
struct equic_frame_lost {
	struct {
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0 for a frame of the transport */
	} in;
};

/* ProbeTimeout (RFC 9002 s.6.2.1): Returns the PTO without backoff, at least an RTT and at most a
 * second above the default. A longer PTO also lengthens periods of several PTOs, such as the
 * closing period. A shorter one does not shorten them. */
struct equic_probe_timeout {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 duration; /* a time in nanoseconds; all ones for no timeout, if the operation permits that */
	} out;
};

/* PtoBackoff (RFC 9002 s.6.2.1): Returns the factor by which the PTO is multiplied after this
 * number of consecutive PTOs: 1 to 1,024. */
struct equic_pto_backoff {
	struct {
		equic_u64 count; /* a number of items */
	} in;
	struct {
		equic_u64 factor; /* factor by which the timeout is multiplied */
	} out;
};

/* SetTimer (RFC 9002 A.8): Returns the time at which the loss detection timer expires. The lower
 * limit is the default, or an RTT after the last ack-eliciting packet if that is earlier. The
 * upper limit is a second after the default. Without a default, there is no timer. */
struct equic_set_timer {
	struct {
		equic_u64 at; /* a time in nanoseconds on the connection's clock; all ones for no time */
	} out;
};

/* OnTimer (RFC 9002 A.9): Processes an expired timer. The due actions are carried out whatever a
 * hook answers. */
struct equic_on_timer {
};

/* ProbeCount (RFC 9002 s.6.2.4): Returns how many packets are sent for a PTO: one or two. */
struct equic_probe_count {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 count; /* a number of items */
	} in;
	struct {
		equic_u64 probes; /* number of packets */
	} out;
};

/* PersistentCongestion (RFC 9002 s.7.6): Decides whether losses establish persistent congestion. */
struct equic_persistent_congestion {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 found; /* 1 if the losses are persistent congestion according to RFC 9002, else 0 */
	} in;
	struct {
		equic_u64 persistent; /* 1 or 0 */
	} out;
};

/* SpuriousLoss (RFC 9002 s.6.1): Notifies that packets arrived which had been declared lost. */
struct equic_spurious_loss {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 packets; /* a number of packets */
	} in;
};

/* CongestionWindow (RFC 9002 s.7): Returns the congestion window in bytes; at least two datagrams. */
struct equic_congestion_window {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* CongestionSent (RFC 9002 B.4): Notifies the congestion controller of sent bytes that count as in
 * flight. */
struct equic_congestion_sent {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 bytes; /* a number of bytes */
		equic_u64 in_flight; /* bytes in flight on the path */
	} in;
};

/* CongestionAcked (RFC 9002 B.5): Notifies the congestion controller of acknowledged bytes that
 * were in flight. */
struct equic_congestion_acked {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 bytes; /* a number of bytes */
		equic_u64 in_flight; /* bytes in flight on the path */
		equic_u64 app_limited; /* 1 if the packets were sent while the window was not full, else 0 */
	} in;
};

/* CongestionEvent (RFC 9002 B.6): Notifies the congestion controller of losses or ECN marks. */
struct equic_congestion_event {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 largest_sent; /* time at which the last of the packets was sent, in nanoseconds on the connection's clock */
		equic_u64 marked; /* number of marked packets; for a congestion event, 1 if marks caused it and 0 if losses did */
		equic_u64 bytes; /* a number of bytes */
	} in;
};

/* PacingRate (RFC 9002 s.7.7): Returns the pacing rate in bytes per second. It is at least two
 * datagrams per second. */
struct equic_pacing_rate {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 rate; /* bytes per second */
	} out;
};

/* PaceUntil (RFC 9002 s.7.7): Returns the time at which a datagram may be sent at that rate, or no
 * time if it may be sent now. The datagram is sent at the latest a second after it was first
 * delayed. */
struct equic_pace_until {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 rate; /* bytes per second */
		equic_u64 size; /* length of the packet or datagram in bytes */
	} in;
	struct {
		equic_u64 at; /* a time in nanoseconds on the connection's clock; all ones for no time */
	} out;
};

/* AppLimited (RFC 9002 s.7.8): Notifies that there was too little data to fill the congestion
 * window. */
struct equic_app_limited {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 in_flight; /* bytes in flight on the path */
	} in;
};

/* SelectPath (RFC 9000 s.9): Chooses the path of the next datagram: the packet scheduler. Without
 * multipath, the answer can be the active path, or a path that must be probed; any other answer
 * counts as the default. With multipath (RFC 10069), it can be any path on which data can be sent.
 * If the peer has not acknowledged the last packets on a path and another path works, that path
 * cannot be chosen. If the chosen path has no room, the operation is called again; the same answer
 * then means that the data waits. While data waits, a path with room gets at least one datagram
 * per second, unless it is a backup or its cost is not 0. Acknowledgments, probes and challenges
 * of other paths are sent independently. */
struct equic_select_path {
	struct {
		equic_u64 path; /* number of the path */
	} out;
};

/* HasContent (RFC 9000 s.12.2): Decides whether a packet of this space is sent now. A hook cannot
 * send a packet without content, and can delay a packet by at most a second. */
struct equic_has_content {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 path; /* number of the path */
		equic_u64 may_count; /* 1 if window and pacing permit a packet that counts as in flight, else 0 */
	} in;
	struct {
		equic_u64 yes; /* 1 or 0 */
	} out;
};

/* DatagramSize (RFC 9000 s.14): Returns the largest size of the datagram. It is at least 1,200
 * bytes, and at most the size that the path is known to carry. */
struct equic_datagram_size {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* NextPacketNumber (RFC 9000 s.17.1): Returns the number of the next packet: from next to 64 above
 * it. */
struct equic_next_packet_number {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 next; /* the packet number after the last one used */
	} in;
	struct {
		equic_u64 number; /* packet number */
	} out;
};

/* SpinBit (RFC 9000 s.17.4): Returns the value of the spin bit. */
struct equic_spin_bit {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 bit; /* 1 or 0 */
	} out;
};

/* GenerateHeader (RFC 9000 s.17): Notifies that the header of a packet was written, before its
 * payload. */
struct equic_generate_header {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
};

/* GenerateFrames (RFC 9000 s.12.4): Writes the frames of a packet. They are written whatever a hook
 * answers. Output 0 means that none of the frames elicits an acknowledgment. */
struct equic_generate_frames {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 room; /* number of bytes left in the packet */
	} in;
	struct {
		equic_u64 ack_eliciting; /* 1 if the packet elicits an acknowledgment, else 0 */
	} out;
};

/* WriteFrame (RFC 9000 s.19): Writes a frame. For a frame of the transport, a hook can only observe
 * its bytes and its length. For a frame type that a hook owns, that hook writes the frame into a
 * buffer; token is the word with which the frame was queued. The result must be a single frame of
 * that type, as the hook's ParseFrame parses it. The operation exists for each frame type. */
struct equic_write_frame {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 token; /* the word that the frame was queued with (equic_queue_frame); 0 for a frame of the transport */
		equic_u64 length; /* a number of bytes */
	} in;
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* PadPacket (RFC 9000 s.14.1): Returns the number of PADDING bytes at the end of a packet. It is at
 * least wanted, and exactly wanted if the packet elicits no acknowledgment. */
struct equic_pad_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 wanted; /* smallest number of bytes of PADDING */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* SendPacket (RFC 9002 A.5): Records a sent packet. The packet is recorded whatever a hook answers. */
struct equic_send_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 size; /* length of the packet or datagram in bytes */
		equic_u64 ack_eliciting; /* 1 if the packet elicits an acknowledgment, else 0 */
		equic_u64 path; /* number of the path */
	} in;
};

/* SendDatagram (RFC 9000 s.12.2): Notifies that a datagram is about to be sent, with its final
 * bytes. The call has bytes to read. */
struct equic_send_datagram {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 ecn; /* the ECN codepoint of the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE */
	} in;
};

/* MarkEcn (RFC 9000 s.13.4): Decides whether a packet is marked ECT(0). */
struct equic_mark_ecn {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
	struct {
		equic_u64 mark; /* 1 or 0 */
	} out;
};

/* ScheduleStream (RFC 9000 s.2.3): Chooses the stream that is sent next, or no stream for the
 * default order. */
struct equic_schedule_stream {
	struct {
		equic_u64 room; /* number of bytes left in the packet */
	} in;
	struct {
		equic_u64 stream; /* stream ID; all ones for no stream */
	} out;
};

/* WindowUpdate (RFC 9000 s.4.2): Returns the flow control limit for a stream, or for the connection
 * if there is no stream ID. It is at least the default, and at most what the largest window
 * permits. */
struct equic_window_update {
	struct {
		equic_u64 stream; /* stream ID; all ones for no stream */
		equic_u64 limit; /* a limit, in bytes or connection IDs */
	} in;
	struct {
		equic_u64 limit; /* a limit, in bytes or connection IDs */
	} out;
};

/* OpenStream (RFC 9000 s.4.6): Decides whether the application may open a stream now: direction 0
 * is bidirectional, 1 unidirectional. */
struct equic_open_stream {
	struct {
		equic_u64 direction; /* 0 for bidirectional, 1 for unidirectional */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* ConnectionIdCount (RFC 9000 s.5.1.1): Returns how many connection IDs the peer gets, within the
 * limits of both ends. */
struct equic_connection_id_count {
	struct {
		equic_u64 limit; /* a limit, in bytes or connection IDs */
	} in;
	struct {
		equic_u64 count; /* a number of items */
	} out;
};

/* RetireConnectionId (RFC 9000 s.5.1.2): Notifies that the peer retires one of this end's
 * connection IDs. */
struct equic_retire_connection_id {
	struct {
		equic_u64 sequence; /* sequence number of the connection ID */
	} in;
};

/* ProbeMtu (RFC 9000 s.14.3): Returns the size of a PMTU probe if one is due, or 0. A hook can only
 * answer 0; any other answer counts as the default. */
struct equic_probe_mtu {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 size; /* length of the packet or datagram in bytes */
	} out;
};

/* MtuProbeDone (RFC 8899 s.4): Notifies that a PMTU probe arrived (1) or was lost (0). */
struct equic_mtu_probe_done {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 arrived; /* 1 if the probe was acknowledged, 0 if it was lost */
	} in;
};

/* AnswerChallenge (RFC 9000 s.8.2.2): Processes a PATH_CHALLENGE frame. Output 0 sends no
 * PATH_RESPONSE. */
struct equic_answer_challenge {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 answer; /* 1 if the challenge is answered, else 0 */
	} out;
};

/* FollowPeer (RFC 9000 s.9.3): Decides whether the active path follows the peer, whose latest
 * packet came from another address. */
struct equic_follow_peer {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 active; /* number of the active path */
	} in;
	struct {
		equic_u64 follow; /* 1 or 0 */
	} out;
};

/* ChallengePath (RFC 9000 s.8.2.1): Begins path validation: chooses the data of a PATH_CHALLENGE. */
struct equic_challenge_path {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* PathValidated (RFC 9000 s.8.2.3): Notifies that the peer has answered a challenge on a path. */
struct equic_path_validated {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* InitOpaqueData (The Case for Protocol Plugins s.3): Notifies that the connection begins, so that
 * a plugin can initialise its state. */
struct equic_init_opaque_data {
	struct {
		equic_u64 side; /* 0 for the client, 1 for the server */
	} in;
};

/* KeysReady (RFC 9001 s.4.1.4): Notifies that the keys of a space are installed. */
struct equic_keys_ready {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* DiscardKeys (RFC 9001 s.4.9): Notifies that the keys of a space are discarded. */
struct equic_discard_keys {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
	} in;
};

/* UpdateKeys (RFC 9001 s.6): Decides whether keys are updated now. The reason is a request of the
 * application, or, if worn is 1, that the keys have protected half of the packets that they may.
 * From three quarters on, keys are always updated. */
struct equic_update_keys {
	struct {
		equic_u64 worn; /* 1 if the keys have protected half of the packets that they may, 0 if the application requests an update */
	} in;
	struct {
		equic_u64 allowed; /* 1 or 0 */
	} out;
};

/* HandshakeComplete (RFC 9001 s.4.1.1): Notifies that the handshake is complete. */
struct equic_handshake_complete {
};

/* HandshakeConfirmed (RFC 9001 s.4.1.2): Notifies that the handshake is confirmed. */
struct equic_handshake_confirmed {
};

/* IdleTimeout (RFC 9000 s.10.1): Returns the idle timeout, or no time for no timeout. It cannot be
 * longer than the default. */
struct equic_idle_timeout {
	struct {
		equic_u64 duration; /* a time in nanoseconds; all ones for no timeout, if the operation permits that */
	} out;
};

/* CloseConnection (RFC 9000 s.10.2): Notifies that this end closes the connection. */
struct equic_close_connection {
	struct {
		equic_u64 application; /* 1 if the error is the application's, 0 if it is the transport's */
		equic_u64 code; /* the error code */
	} in;
};

/* PeerClosed (RFC 9000 s.10.2.2): Notifies that the peer has closed the connection. */
struct equic_peer_closed {
	struct {
		equic_u64 application; /* 1 if the error is the application's, 0 if it is the transport's */
		equic_u64 code; /* the error code */
	} in;
};

/* ChooseVersion (RFC 9368 s.2.3): Returns the version in which a server answers: the client's, or
 * one that the server prefers. */
struct equic_choose_version {
	struct {
		equic_u64 version; /* version of QUIC (RFC 9000 s.15) */
	} in;
	struct {
		equic_u64 version; /* version of QUIC (RFC 9000 s.15) */
	} out;
};

/* EarlyDataAnswered (RFC 9001 s.4.6.2): Notifies whether the server accepts early data. */
struct equic_early_data_answered {
	struct {
		equic_u64 accepted; /* 1 if the server accepts early data, else 0 */
	} in;
};

/* KeepPacket (RFC 9001 s.5.7): Decides whether a packet that arrived before its keys is kept. */
struct equic_keep_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 size; /* length of the packet or datagram in bytes */
	} in;
	struct {
		equic_u64 keep; /* 1 or 0 */
	} out;
};

/* AcceptDatagram (RFC 9221 s.5): Receives a DATAGRAM frame. Output 0 drops its data. The call has
 * bytes to read. */
struct equic_accept_datagram {
	struct {
		equic_u64 accept; /* 1 to accept, or 0 with the effect that the operation documents */
	} out;
};

/* RequestAckFrequency (draft-ietf-quic-ack-frequency s.7): Returns how often the peer should
 * acknowledge packets. A request is sent if this differs much from the current request. The delay
 * is at most a second above the default. */
struct equic_request_ack_frequency {
	struct {
		equic_u64 path; /* number of the path */
	} in;
	struct {
		equic_u64 threshold; /* an acknowledgment is due when more ack-eliciting packets than this wait for one */
		equic_u64 max_delay; /* longest delay of an acknowledgment, in nanoseconds */
		equic_u64 reordering; /* smallest reordering, in packets, that is acknowledged at once; 0: never, 1: any reordering */
	} out;
};

/* ObeyAckFrequency (draft-ietf-quic-ack-frequency s.4): Processes an ACK_FREQUENCY frame. Output 0
 * ignores the request. */
struct equic_obey_ack_frequency {
	struct {
		equic_u64 threshold; /* an acknowledgment is due when more ack-eliciting packets than this wait for one */
		equic_u64 max_delay; /* longest delay of an acknowledgment, in nanoseconds */
		equic_u64 reordering; /* smallest reordering, in packets, that is acknowledged at once; 0: never, 1: any reordering */
	} in;
	struct {
		equic_u64 obey; /* 1 or 0 */
	} out;
};

/* KeepAlive (RFC 9000 s.10.1.2): Returns the time without packets after which a PING frame is sent,
 * or no time to send none. */
struct equic_keep_alive {
	struct {
		equic_u64 interval; /* a time in nanoseconds; all ones for no time */
	} out;
};

/* HookTimer (The Case for Protocol Plugins s.3): Notifies a hook that its timer has expired. at is
 * the time to which the hook had set it. */
struct equic_hook_timer {
	struct {
		equic_u64 at; /* a time in nanoseconds on the connection's clock; all ones for no time */
	} in;
};

/* HookMessage (The Case for Protocol Plugins s.3): Delivers a message of the application to a hook.
 * The call has bytes to read. */
struct equic_hook_message {
};

/* ProtectPacket (RFC 9001 s.5.3): Notifies that a packet is complete, before its protection; the
 * bytes are its frames with PADDING. The call has bytes to read. */
struct equic_protect_packet {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 number; /* packet number */
		equic_u64 path; /* number of the path */
	} in;
};

/* KeepRoom (RFC 9000 s.12.4): Returns how many bytes of a packet STREAM frames leave free for other
 * frames: at most 128, and at most a quarter of the room. */
struct equic_keep_room {
	struct {
		equic_u64 space; /* packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up */
		equic_u64 room; /* number of bytes left in the packet */
	} in;
	struct {
		equic_u64 bytes; /* a number of bytes */
	} out;
};

/* PathAdded (RFC 9000 s.9): Notifies of a new path: the first datagram between two addresses was
 * sent or received. */
struct equic_path_added {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* PathRemoved (RFC 9000 s.9): Notifies that a path was removed. Its number is never used again. */
struct equic_path_removed {
	struct {
		equic_u64 path; /* number of the path */
	} in;
};

/* ApplicationWrote (RFC 9000 s.2.2): Notifies how many bytes the application has written to streams
 * since the last call. The operation is called before the next datagram is built. */
struct equic_application_wrote {
	struct {
		equic_u64 bytes; /* a number of bytes */
	} in;
};

/* WriteParameters (RFC 9000 s.7.4.2): Lets a hook declare its own transport parameters, encoded one
 * after the other. It can declare at most eight, with numbers from 0x40 up that the transport does
 * not know. The operation is called for a hook that the application attaches before the first
 * packet. It may use up a TLS session that the client would have resumed. The call has a buffer to
 * write. */
struct equic_write_parameters {
	struct {
		equic_u64 length; /* a number of bytes */
	} out;
};

/* PeerParameter (RFC 9000 s.7.4.2): Notifies that the peer declared a transport parameter with a
 * number that this hook wrote; the bytes are its value. The call has bytes to read. */
struct equic_peer_parameter {
	struct {
		equic_u64 parameter; /* number of a transport parameter */
	} in;
};

/* CopyStreamData (RFC 10069 s.5.5): Decides whether stream data that was sent on a path is also
 * sent on another one. The copy is sent when the other path has room, unless the data was
 * acknowledged before. The last 1,024 waiting pieces are kept for each path. */
struct equic_copy_stream_data {
	struct {
		equic_u64 path; /* number of the path */
		equic_u64 other; /* number of another path */
		equic_u64 stream; /* stream ID; all ones for no stream */
		equic_u64 bytes; /* a number of bytes */
	} in;
	struct {
		equic_u64 copy; /* 1 if the data is also sent on the other path, else 0 */
	} out;
};

#endif
