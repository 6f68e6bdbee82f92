//! The catalogue of operations, from which [`Operation`] and its documentation are generated.
//! `meaning.rs` documents the input and output words of operations, and their units.

use super::meaning::{carried, heading, meaning};

/// The kind of data that a call of an operation carries in addition to its input words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// The call carries only its input words.
    Words,
    /// The call carries bytes, which hooks can read.
    Bytes,
    /// The call carries a buffer, which hooks can write.
    Buffer,
    /// The operation is called separately for each frame type, and carries bytes to read or write.
    Frame,
}

/// Describes one operation: an entry of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Name of the operation.
    pub name: &'static str,
    /// Number of the operation in the plugin interface.
    pub id: u8,
    /// Section of the specification that describes the operation's default behaviour.
    pub section: &'static str,
    /// The kind of data that a call of the operation carries in addition to its input words.
    pub carries: PayloadKind,
    /// Names of the operation's input words, in order.
    pub inputs: &'static [&'static str],
    /// Names of the operation's output words, in order.
    pub outputs: &'static [&'static str],
    /// Meanings of the operation's input words, in order. Each has the form ``"`name`: text"`` and
    /// includes the unit, if there is one.
    pub input_meanings: &'static [&'static str],
    /// Meanings of the operation's output words, in order, in the same form as those of the input
    /// words.
    pub output_meanings: &'static [&'static str],
    /// Description of what the operation does or decides.
    pub does: &'static str,
}

macro_rules! operations {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $id:literal, $section:literal,
        $carries:ident($($input:ident),*) -> ($($output:ident),*);
    )+) => {
        /// An operation of a connection. Its documentation has its effect, its inputs and outputs,
        /// the limits of a hook's answer, and the specification of its default.
        ///
        /// Inputs and outputs are words of 64 bits. Numbers are part of the plugin interface and
        /// are never reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Operation {
            $(
                $(#[doc = $doc])+
                #[doc = carried!($carries)]
                #[doc = heading!("Inputs" $($input)*)]
                $(#[doc = concat!("* ", meaning!($input))])*
                #[doc = heading!("Outputs" $($output)*)]
                $(#[doc = concat!("* ", meaning!($output))])*
                #[doc = concat!("\nDefault: ", $section, ".")]
                $name = $id,
            )+
        }

        impl Operation {
            /// All operations of the catalogue.
            pub const ALL: &[Operation] = &[$(Operation::$name),+];

            /// Returns the operation's entry in the catalogue.
            pub const fn describe(self) -> Description {
                match self {
                    $(Operation::$name => Description {
                        name: stringify!($name),
                        id: $id,
                        section: $section,
                        carries: PayloadKind::$carries,
                        inputs: &[$(stringify!($input)),*],
                        outputs: &[$(stringify!($output)),*],
                        input_meanings: &[$(meaning!($input)),*],
                        output_meanings: &[$(meaning!($output)),*],
                        does: concat!($($doc),+),
                    },)+
                }
            }
        }
    };
}

operations! {
    // Operations that receive packets.
    /// Receives a datagram. Output 0 drops it unread.
    HandleDatagram = 1, "RFC 9000 s.12.2", Bytes(path, ecn) -> (accept);
    /// Decodes the full packet number from its truncated form.
    RestorePacketNumber = 2, "RFC 9000 A.3", Words(space, truncated, length, largest) -> (number);
    /// Decides whether a packet is a duplicate. A hook cannot declare a duplicate to be a new
    /// packet.
    IsDuplicate = 3, "RFC 9000 s.12.3", Words(space, number) -> (duplicate);
    /// Notifies that a packet was decrypted. Its frames have not been parsed yet.
    AfterPacketRead = 4, "RFC 9000 s.12.3", Bytes(space, number, path, ecn) -> ();
    /// Processes all frames of a packet. Output 0 treats the packet as lost.
    ParseFrames = 5, "RFC 9000 s.12.4", Bytes(space, number, path) -> (accept);
    /// Returns the length of the frame at the beginning of the given bytes, including its type, or
    /// 0 if the frame is malformed. For a frame type of the transport, only the answer 0 has an
    /// effect. For any other type, only the hook that owns the type can replace this operation.
    ParseFrame = 6, "RFC 9000 s.19", Frame(space) -> (length);
    /// Decides whether the frame is permitted in this packet number space. A hook can forbid a
    /// frame, but cannot permit what the RFC forbids. A hook's own frames are permitted in 1-RTT
    /// packets only.
    CheckFrame = 7, "RFC 9000 s.12.4 table 3", Frame(space) -> (allowed);
    /// Processes a frame. Output 0 treats its packet as lost.
    ProcessFrame = 8, "RFC 9000 s.19", Frame(space, number, path) -> (accept);
    /// Notifies that all frames of a packet were processed.
    AfterParseFrames = 9, "RFC 9000 s.13.1", Words(space, number, ack_eliciting) -> ();
    /// Records a packet for acknowledgment. The packet is recorded whatever a hook answers.
    RecordPacket = 10, "RFC 9000 s.13.2", Words(space, number, ack_eliciting, ecn) -> ();
    /// Decides whether a datagram that could not be decrypted is a stateless reset. A hook can only
    /// reject a reset, not declare another datagram to be one.
    IsStatelessReset = 11, "RFC 9000 s.10.3.1", Bytes() -> (reset);

    // Operations on acknowledgments.
    /// Processes an ACK frame: finds acknowledged and lost packets, and updates the path.
    ProcessAck = 12, "RFC 9002 A.7", Words(space, largest, raw_delay) -> ();
    /// Returns how long the peer delayed its acknowledgment, computed from the ACK Delay field.
    AckDelay = 13, "RFC 9002 s.5.3", Words(space, raw_delay) -> (delay);
    /// Adds an RTT sample.
    UpdateRtt = 14, "RFC 9002 s.5.3", Words(path, sample, ack_delay) -> ();
    /// Validates ECN counts, and decides whether they report new congestion.
    ValidateEcn = 15, "RFC 9000 s.13.4.2", Words(path, marked, ect0, ect1, ce) -> (congested);
    /// Notifies that a packet was acknowledged.
    PacketAcked = 16, "RFC 9002 A.7", Words(space, number, size, path) -> ();
    /// Notifies the hook that wrote a frame that the frame was acknowledged. For each frame that
    /// elicits an acknowledgment, either this operation or [`Operation::FrameLost`] is called once.
    FrameAcked = 17, "RFC 9000 s.13.3", Frame(token) -> ();
    /// Decides whether an ACK frame must be sent now. The answer has no effect if there is nothing
    /// to acknowledge, or if the delay that was promised to the peer is over.
    AckIsDue = 18, "RFC 9000 s.13.2.1", Words(space) -> (due);
    /// Returns the time at which an ACK frame must be sent. It cannot be later than the default.
    AckDeadline = 19, "RFC 9000 s.13.2.1", Words(space) -> (at);
    /// Chooses the path for acknowledgments of a packet number space. Without multipath, any answer
    /// of a hook selects the active path. With multipath (RFC 10069), the default applies if
    /// nothing can be sent on the chosen path.
    SelectACKPath = 20, "RFC 9000 s.9.3", Words(space, path) -> (path);
    /// Returns how many of the available ranges an ACK frame contains.
    AckRangeCount = 21, "RFC 9000 s.13.2.3", Words(space, available) -> (count);
    /// Returns the ACK Delay field for the time since the packet arrived.
    EncodeAckDelay = 22, "RFC 9000 s.19.3", Words(space, waited) -> (raw_delay);
    /// Returns how often and how soon to acknowledge packets. `max_delay` is limited to the value
    /// that was declared to the peer.
    AckPolicy = 23, "RFC 9000 s.13.2.2", Words(space) -> (threshold, max_delay, reordering);

    // Operations of loss detection.
    /// Returns after how many packets, and after which time, a packet counts as lost. The number is
    /// at least 3. The time is at least a millisecond, and at most a second above the default.
    LossThresholds = 24, "RFC 9002 s.6.1", Words(path) -> (packets, delay);
    /// Declares packets lost. They are declared lost whatever a hook answers.
    DetectLost = 25, "RFC 9002 A.10", Words(space) -> ();
    /// Notifies that a packet was declared lost.
    PacketLost = 26, "RFC 9002 s.6.1", Words(space, number, size, path) -> ();
    /// Decides whether the contents of a lost or probed packet are sent again. Lost contents are
    /// always sent again.
    SelectRetransmission = 27, "RFC 9000 s.13.3", Words(space, number, probe) -> (again);
    /// Notifies the hook that wrote a frame that the frame was declared lost. This is not revoked
    /// if the frame arrives later.
    FrameLost = 28, "RFC 9000 s.13.3", Frame(token) -> ();
    /// Returns the PTO without backoff, at least an RTT and at most a second above the default. A
    /// longer PTO also lengthens periods of several PTOs, such as the closing period. A shorter one
    /// does not shorten them.
    ProbeTimeout = 29, "RFC 9002 s.6.2.1", Words(space, path) -> (duration);
    /// Returns the factor by which the PTO is multiplied after this number of consecutive PTOs: 1
    /// to 1,024.
    PtoBackoff = 30, "RFC 9002 s.6.2.1", Words(count) -> (factor);
    /// Returns the time at which the loss detection timer expires. The lower limit is the default,
    /// or an RTT after the last ack-eliciting packet if that is earlier. The upper limit is a
    /// second after the default. Without a default, there is no timer.
    SetTimer = 31, "RFC 9002 A.8", Words() -> (at);
    /// Processes an expired timer. The due actions are carried out whatever a hook answers.
    OnTimer = 32, "RFC 9002 A.9", Words() -> ();
    /// Returns how many packets are sent for a PTO: one or two.
    ProbeCount = 33, "RFC 9002 s.6.2.4", Words(space, count) -> (probes);
    /// Decides whether losses establish persistent congestion.
    PersistentCongestion = 34, "RFC 9002 s.7.6", Words(path, found) -> (persistent);
    /// Notifies that packets arrived which had been declared lost.
    SpuriousLoss = 35, "RFC 9002 s.6.1", Words(space, packets) -> ();

    // Operations of congestion control.
    /// Returns the congestion window in bytes; at least two datagrams.
    CongestionWindow = 36, "RFC 9002 s.7", Words(path) -> (bytes);
    /// Notifies the congestion controller of sent bytes that count as in flight.
    CongestionSent = 37, "RFC 9002 B.4", Words(path, bytes, in_flight) -> ();
    /// Notifies the congestion controller of acknowledged bytes that were in flight.
    CongestionAcked = 38, "RFC 9002 B.5", Words(path, bytes, in_flight, app_limited) -> ();
    /// Notifies the congestion controller of losses or ECN marks.
    CongestionEvent = 39, "RFC 9002 B.6", Words(path, largest_sent, marked, bytes) -> ();
    /// Returns the pacing rate in bytes per second. It is at least two datagrams per second.
    PacingRate = 40, "RFC 9002 s.7.7", Words(path) -> (rate);
    /// Returns the time at which a datagram may be sent at that rate, or no time if it may be sent
    /// now. The datagram is sent at the latest a second after it was first delayed.
    PaceUntil = 41, "RFC 9002 s.7.7", Words(path, rate, size) -> (at);
    /// Notifies that there was too little data to fill the congestion window.
    AppLimited = 42, "RFC 9002 s.7.8", Words(path, in_flight) -> ();

    // Operations that send packets.
    /// Chooses the path of the next datagram: the packet scheduler. Without multipath, the answer
    /// can be the active path, or a path that must be probed; any other answer counts as the
    /// default. With multipath (RFC 10069), it can be any path on which data can be sent. If the
    /// peer has not acknowledged the last packets on a path and another path works, that path
    /// cannot be chosen. If the chosen path has no room, the operation is called again; the same
    /// answer then means that the data waits. While data waits, a path with room gets at least one
    /// datagram per second, unless it is a backup or its cost is not 0. Acknowledgments, probes and
    /// challenges of other paths are sent independently.
    SelectPath = 43, "RFC 9000 s.9", Words() -> (path);
    /// Decides whether a packet of this space is sent now. A hook cannot send a packet without
    /// content, and can delay a packet by at most a second.
    HasContent = 44, "RFC 9000 s.12.2", Words(space, path, may_count) -> (yes);
    /// Returns the largest size of the datagram. It is at least 1,200 bytes, and at most the size
    /// that the path is known to carry.
    DatagramSize = 45, "RFC 9000 s.14", Words(path) -> (bytes);
    /// Returns the number of the next packet: from `next` to 64 above it.
    NextPacketNumber = 46, "RFC 9000 s.17.1", Words(space, next) -> (number);
    /// Returns the value of the spin bit.
    SpinBit = 47, "RFC 9000 s.17.4", Words(path) -> (bit);
    /// Notifies that the header of a packet was written, before its payload.
    GenerateHeader = 48, "RFC 9000 s.17", Words(space, number, path) -> ();
    /// Writes the frames of a packet. They are written whatever a hook answers. Output 0 means that
    /// none of the frames elicits an acknowledgment.
    GenerateFrames = 49, "RFC 9000 s.12.4", Words(space, number, room) -> (ack_eliciting);
    /// Writes a frame. For a frame of the transport, a hook can only observe its bytes and its
    /// length. For a frame type that a hook owns, that hook writes the frame into a buffer; `token`
    /// is the word with which the frame was queued. The result must be a single frame of that type,
    /// as the hook's [`Operation::ParseFrame`] parses it.
    WriteFrame = 50, "RFC 9000 s.19", Frame(space, token, length) -> (length);
    /// Returns the number of PADDING bytes at the end of a packet. It is at least `wanted`, and
    /// exactly `wanted` if the packet elicits no acknowledgment.
    PadPacket = 51, "RFC 9000 s.14.1", Words(space, wanted) -> (bytes);
    /// Records a sent packet. The packet is recorded whatever a hook answers.
    SendPacket = 52, "RFC 9002 A.5", Words(space, number, size, ack_eliciting, path) -> ();
    /// Notifies that a datagram is about to be sent, with its final bytes.
    SendDatagram = 53, "RFC 9000 s.12.2", Bytes(path, ecn) -> ();
    /// Decides whether a packet is marked ECT(0).
    MarkEcn = 54, "RFC 9000 s.13.4", Words(path, space) -> (mark);
    /// Chooses the stream that is sent next, or no stream for the default order.
    ScheduleStream = 55, "RFC 9000 s.2.3", Words(room) -> (stream);
    /// Returns the flow control limit for a stream, or for the connection if there is no stream ID.
    /// It is at least the default, and at most what the largest window permits.
    WindowUpdate = 56, "RFC 9000 s.4.2", Words(stream, limit) -> (limit);
    /// Decides whether the application may open a stream now: direction 0 is bidirectional, 1
    /// unidirectional.
    OpenStream = 57, "RFC 9000 s.4.6", Words(direction) -> (allowed);

    // Operations on connection IDs.
    /// Returns how many connection IDs the peer gets, within the limits of both ends.
    ConnectionIdCount = 58, "RFC 9000 s.5.1.1", Words(limit) -> (count);
    /// Notifies that the peer retires one of this end's connection IDs.
    RetireConnectionId = 59, "RFC 9000 s.5.1.2", Words(sequence) -> ();

    // Operations on paths.
    /// Returns the size of a PMTU probe if one is due, or 0. A hook can only answer 0; any other
    /// answer counts as the default.
    ProbeMtu = 60, "RFC 9000 s.14.3", Words(path) -> (size);
    /// Notifies that a PMTU probe arrived (1) or was lost (0).
    MtuProbeDone = 61, "RFC 8899 s.4", Words(path, arrived) -> ();
    /// Processes a PATH_CHALLENGE frame. Output 0 sends no PATH_RESPONSE.
    AnswerChallenge = 62, "RFC 9000 s.8.2.2", Words(path) -> (answer);

    /// Decides whether the active path follows the peer, whose latest packet came from another
    /// address.
    FollowPeer = 80, "RFC 9000 s.9.3", Words(path, active) -> (follow);
    /// Begins path validation: chooses the data of a PATH_CHALLENGE.
    ChallengePath = 81, "RFC 9000 s.8.2.1", Words(path) -> ();
    /// Notifies that the peer has answered a challenge on a path.
    PathValidated = 82, "RFC 9000 s.8.2.3", Words(path) -> ();

    // Operations for the beginning, the keys and the end of a connection.
    /// Notifies that the connection begins, so that a plugin can initialise its state.
    InitOpaqueData = 63, "The Case for Protocol Plugins s.3", Words(side) -> ();
    /// Checks the peer's transport parameters. Output 0 rejects them.
    ReadParameters = 64, "RFC 9000 s.7.4", Bytes() -> (accept);
    /// Notifies that the keys of a space are installed.
    KeysReady = 65, "RFC 9001 s.4.1.4", Words(space) -> ();
    /// Notifies that the keys of a space are discarded.
    DiscardKeys = 66, "RFC 9001 s.4.9", Words(space) -> ();
    /// Decides whether keys are updated now. The reason is a request of the application, or, if
    /// `worn` is 1, that the keys have protected half of the packets that they may. From three
    /// quarters on, keys are always updated.
    UpdateKeys = 67, "RFC 9001 s.6", Words(worn) -> (allowed);
    /// Notifies that the handshake is complete.
    HandshakeComplete = 68, "RFC 9001 s.4.1.1", Words() -> ();
    /// Notifies that the handshake is confirmed.
    HandshakeConfirmed = 69, "RFC 9001 s.4.1.2", Words() -> ();
    /// Returns the idle timeout, or no time for no timeout. It cannot be longer than the default.
    IdleTimeout = 70, "RFC 9000 s.10.1", Words() -> (duration);
    /// Notifies that this end closes the connection.
    CloseConnection = 71, "RFC 9000 s.10.2", Words(application, code) -> ();
    /// Notifies that the peer has closed the connection.
    PeerClosed = 72, "RFC 9000 s.10.2.2", Words(application, code) -> ();

    // Operations for events of the handshake.
    /// Decides whether to follow a valid Retry packet; the bytes are its token. Output 0 ignores
    /// the packet.
    FollowRetry = 90, "RFC 9000 s.17.2.5.2", Bytes() -> (follow);
    /// Decides whether to follow a Version Negotiation packet; the bytes are its versions. Output 0
    /// ignores the packet.
    FollowVersions = 91, "RFC 9000 s.6.2", Bytes() -> (follow);
    /// Returns the version in which a server answers: the client's, or one that the server prefers.
    ChooseVersion = 92, "RFC 9368 s.2.3", Words(version) -> (version);
    /// Notifies that the server sent a token for the next connection.
    NewToken = 93, "RFC 9000 s.8.1.3", Bytes() -> ();
    /// Notifies whether the server accepts early data.
    EarlyDataAnswered = 94, "RFC 9001 s.4.6.2", Words(accepted) -> ();
    /// Decides whether a packet that arrived before its keys is kept.
    KeepPacket = 95, "RFC 9001 s.5.7", Words(space, size) -> (keep);

    // Operations for extensions of QUIC, and for keep-alive.
    /// Receives a DATAGRAM frame. Output 0 drops its data.
    AcceptDatagram = 100, "RFC 9221 s.5", Bytes() -> (accept);
    /// Returns how often the peer should acknowledge packets. A request is sent if this differs
    /// much from the current request. The delay is at most a second above the default.
    RequestAckFrequency = 101, "draft-ietf-quic-ack-frequency s.7", Words(path) -> (threshold, max_delay, reordering);
    /// Processes an ACK_FREQUENCY frame. Output 0 ignores the request.
    ObeyAckFrequency = 102, "draft-ietf-quic-ack-frequency s.4", Words(threshold, max_delay, reordering) -> (obey);
    /// Returns the time without packets after which a PING frame is sent, or no time to send none.
    KeepAlive = 103, "RFC 9000 s.10.1.2", Words() -> (interval);

    // Operations that are called for one hook only.
    /// Notifies a hook that its timer has expired. `at` is the time to which the hook had set it.
    HookTimer = 104, "The Case for Protocol Plugins s.3", Words(at) -> ();
    /// Delivers a message of the application to a hook.
    HookMessage = 105, "The Case for Protocol Plugins s.3", Bytes() -> ();

    // Operations for redundancy within a path, such as forward error correction.
    /// Notifies that a packet is complete, before its protection; the bytes are its frames with
    /// PADDING.
    ProtectPacket = 106, "RFC 9001 s.5.3", Bytes(space, number, path) -> ();
    /// Returns how many bytes of a packet STREAM frames leave free for other frames: at most 128,
    /// and at most a quarter of the room.
    KeepRoom = 107, "RFC 9000 s.12.4", Words(space, room) -> (bytes);

    // Further operations on paths, and for the application.
    /// Notifies of a new path: the first datagram between two addresses was sent or received.
    PathAdded = 108, "RFC 9000 s.9", Words(path) -> ();
    /// Notifies that a path was removed. Its number is never used again.
    PathRemoved = 109, "RFC 9000 s.9", Words(path) -> ();
    /// Notifies how many bytes the application has written to streams since the last call. The
    /// operation is called before the next datagram is built.
    ApplicationWrote = 110, "RFC 9000 s.2.2", Words(bytes) -> ();

    // Operations for transport parameters that a hook declares. They are called for that hook only.
    /// Lets a hook declare its own transport parameters, encoded one after the other. It can
    /// declare at most eight, with numbers from 0x40 up that the transport does not know. The
    /// operation is called for a hook that the application attaches before the first packet. It may
    /// use up a TLS session that the client would have resumed.
    WriteParameters = 111, "RFC 9000 s.7.4.2", Buffer() -> (length);
    /// Notifies that the peer declared a transport parameter with a number that this hook wrote;
    /// the bytes are its value.
    PeerParameter = 112, "RFC 9000 s.7.4.2", Bytes(parameter) -> ();

    // Operations for redundancy over several paths.
    /// Decides whether stream data that was sent on a path is also sent on another one. The copy is
    /// sent when the other path has room, unless the data was acknowledged before. The last 1,024
    /// waiting pieces are kept for each path.
    CopyStreamData = 113, "RFC 10069 s.5.5", Words(path, other, stream, bytes) -> (copy);
}

impl Operation {
    /// Returns the operation with this number.
    pub fn of(id: u64) -> Option<Operation> {
        Operation::ALL.iter().copied().find(|operation| u64::from(*operation as u8) == id)
    }

    /// Returns true if a replacing hook can get the default's answer
    /// ([`AttachPoint::with_default`](super::AttachPoint)). That requires an operation whose answer
    /// is words, and whose default has no side effects.
    pub const fn offers_default(self) -> bool {
        let described = self.describe();
        let acts = matches!(
            self,
            Operation::GenerateFrames | Operation::NextPacketNumber | Operation::ProbeMtu
        );
        matches!(described.carries, PayloadKind::Words) && !described.outputs.is_empty() && !acts
    }

    /// Returns true if the smallest answer applies when several hooks answer. This holds for
    /// operations that limit what is sent.
    pub(crate) const fn takes_least(self) -> bool {
        matches!(self, Operation::CongestionWindow | Operation::PacingRate)
    }

    /// Returns the bit of the operation in a set of operations.
    pub(crate) const fn bit(self) -> u128 {
        1 << (self as u8)
    }

    /// Returns the bits of several operations.
    pub(crate) const fn bits(mut operations: &[Operation]) -> u128 {
        let mut bits = 0;
        while let [first, others @ ..] = operations {
            bits |= first.bit();
            operations = others;
        }
        bits
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.describe().name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn hook_catalogue_is_consistent() {
        assert!(Operation::ALL.len() >= 60);
        let ids: BTreeSet<u8> = Operation::ALL.iter().map(|one| one.describe().id).collect();
        assert_eq!(ids.len(), Operation::ALL.len());
        for operation in Operation::ALL {
            let described = operation.describe();
            assert!(described.id < 128, "{operation}: a set of operations has 128 bits");
            assert_eq!(Operation::of(described.id.into()), Some(*operation));
            assert!(
                described.section.contains(" s.")
                    || described.section.contains(" A.")
                    || described.section.contains(" B."),
                "{operation}"
            );
            assert!(described.does.trim().ends_with('.'), "{operation}");
        }
    }
}
