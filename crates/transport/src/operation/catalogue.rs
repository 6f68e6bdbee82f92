//! The catalogue of operations. [`Operation`] is made of it, with its documentation; `meaning.rs` says what the
//! words are, and their units.

use super::meaning::{carried, heading, meaning};

/// Bytes or buffer that a call carries beside its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadKind {
    /// Nothing.
    Words,
    /// Bytes to read.
    Bytes,
    /// A buffer to write.
    Buffer,
    /// One operation for each frame type; bytes to read or write where the inputs say so.
    Frame,
}

/// Entry of the catalogue for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Name of the operation.
    pub name: &'static str,
    /// Number of the operation in the interface to plugins.
    pub id: u8,
    /// Section of the specification that describes the default behaviour.
    pub section: &'static str,
    /// Bytes or buffer that a call carries beside its words.
    pub carries: PayloadKind,
    /// Names of the input words, in order.
    pub inputs: &'static [&'static str],
    /// Names of the output words, in order.
    pub outputs: &'static [&'static str],
    /// Meanings of the input words, in order: ``"`name`: text"``, with the unit where there is one.
    pub input_meanings: &'static [&'static str],
    /// Meanings of the output words, in order.
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
        /// An operation of a connection: what it decides or does, what goes in and what comes out, how far a
        /// hook's answer holds, and where its default is specified.
        ///
        /// Inputs and outputs are words of 64 bits. Numbers are part of the interface to plugins: one is never
        /// given to another operation.
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
            /// All of them.
            pub const ALL: &[Operation] = &[$(Operation::$name),+];

            /// The operation's entry in the catalogue.
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
    // Receiving.
    /// A datagram came. Output 0: it is dropped unread.
    HandleDatagram = 1, "RFC 9000 s.12.2", Bytes(path, ecn) -> (accept);
    /// The whole packet number from its truncated form.
    RestorePacketNumber = 2, "RFC 9000 A.3", Words(space, truncated, length, largest) -> (number);
    /// Whether a packet was received before. One that was, was.
    IsDuplicate = 3, "RFC 9000 s.12.3", Words(space, number) -> (duplicate);
    /// A packet is opened; its payload has not been looked at.
    AfterPacketRead = 4, "RFC 9000 s.12.3", Bytes(space, number, path, ecn) -> ();
    /// All frames of a packet. Output 0: it is treated as lost.
    ParseFrames = 5, "RFC 9000 s.12.4", Bytes(space, number, path) -> (accept);
    /// How many bytes a frame takes, of those given, its type included; 0: it is malformed. Of a type that
    /// the transport knows no other answer than 0 counts. Replaced for a type that it does not know by the
    /// hook whose own that is.
    ParseFrame = 6, "RFC 9000 s.19", Frame(space) -> (length);
    /// Whether such a frame may come in this space. What the RFC forbids may not; a hook's own frames come
    /// in 1-RTT packets alone.
    CheckFrame = 7, "RFC 9000 s.12.4 table 3", Frame(space) -> (allowed);
    /// What a frame does. Output 0: its packet is treated as lost.
    ProcessFrame = 8, "RFC 9000 s.19", Frame(space, number, path) -> (accept);
    /// All frames of a packet are processed.
    AfterParseFrames = 9, "RFC 9000 s.13.1", Words(space, number, ack_eliciting) -> ();
    /// Remembers a packet for acknowledgement. That is done whatever is answered.
    RecordPacket = 10, "RFC 9000 s.13.2", Words(space, number, ack_eliciting, ecn) -> ();
    /// Whether a datagram that opened nothing is a stateless reset. One that is none is none.
    IsStatelessReset = 11, "RFC 9000 s.10.3.1", Bytes() -> (reset);

    // Acknowledgements.
    /// An ACK frame: what is acknowledged, lost, and what follows for the path.
    ProcessAck = 12, "RFC 9002 A.7", Words(space, largest, raw_delay) -> ();
    /// What the peer waited before it acknowledged, from the field of the frame.
    AckDelay = 13, "RFC 9002 s.5.3", Words(space, raw_delay) -> (delay);
    /// Takes a sample of the round-trip time.
    UpdateRtt = 14, "RFC 9002 s.5.3", Words(path, sample, ack_delay) -> ();
    /// Whether counts of marked packets are new congestion; checks that they can be.
    ValidateEcn = 15, "RFC 9000 s.13.4.2", Words(path, marked, ect0, ect1, ce) -> (congested);
    /// A packet is acknowledged.
    PacketAcked = 16, "RFC 9002 A.7", Words(space, number, size, path) -> ();
    /// A frame that a hook wrote is acknowledged. For that hook alone; of each frame that is acknowledged at
    /// all this or [`Operation::FrameLost`] is said once.
    FrameAcked = 17, "RFC 9000 s.13.3", Frame(token) -> ();
    /// Whether an ACK frame must be sent now. Never where there is nothing to tell, always where the peer was
    /// told that it would be.
    AckIsDue = 18, "RFC 9000 s.13.2.1", Words(space) -> (due);
    /// When one must be; not later than the default.
    AckDeadline = 19, "RFC 9000 s.13.2.1", Words(space) -> (at);
    /// On which path acknowledgements of a space go. Without multipath another than the active one counts as that; with
    /// it (RFC 10069), one on which nothing can be sent counts as the default.
    SelectACKPath = 20, "RFC 9000 s.9.3", Words(space, path) -> (path);
    /// How many ranges an ACK frame has, of those there are.
    AckRangeCount = 21, "RFC 9000 s.13.2.3", Words(space, available) -> (count);
    /// The ACK Delay field, from the time waited.
    EncodeAckDelay = 22, "RFC 9000 s.19.3", Words(space, waited) -> (raw_delay);
    /// How often to acknowledge; `max_delay` is not above what the peer was told.
    AckPolicy = 23, "RFC 9000 s.13.2.2", Words(space) -> (threshold, max_delay, reordering);

    // Loss.
    /// When a packet counts as lost: 3 packets at least, a millisecond at least, and a second above the
    /// default at most.
    LossThresholds = 24, "RFC 9002 s.6.1", Words(path) -> (packets, delay);
    /// Gives up what is lost by now. That is done whatever is answered.
    DetectLost = 25, "RFC 9002 A.10", Words(space) -> ();
    /// A packet is given up.
    PacketLost = 26, "RFC 9002 s.6.1", Words(space, number, size, path) -> ();
    /// Whether what was in a lost or probed packet is sent again. Of a lost one it is in any case.
    SelectRetransmission = 27, "RFC 9000 s.13.3", Words(space, number, probe) -> (again);
    /// A frame that a hook wrote is given up; that is not taken back if it arrived after all.
    FrameLost = 28, "RFC 9000 s.13.3", Frame(token) -> ();
    /// The probe timeout, without backoff: a round trip at least, and a second above the default at most.
    ProbeTimeout = 29, "RFC 9002 s.6.2.1", Words(space, path) -> (duration);
    /// How many times as long it is after so many in a row: 1 to 1,024.
    PtoBackoff = 30, "RFC 9002 s.6.2.1", Words(count) -> (factor);
    /// When loss detection is to look again: not sooner than the default or a round trip after what was sent,
    /// and a second later than the default at most; where that is none, none.
    SetTimer = 31, "RFC 9002 A.8", Words() -> (at);
    /// A timer has run out. What is due is done whatever is answered.
    OnTimer = 32, "RFC 9002 A.9", Words() -> ();
    /// How many probes a probe timeout sends: one or two.
    ProbeCount = 33, "RFC 9002 s.6.2.4", Words(space, count) -> (probes);
    /// Whether losses so far apart are persistent congestion.
    PersistentCongestion = 34, "RFC 9002 s.7.6", Words(path, found) -> (persistent);
    /// Packets given up turned out to have arrived.
    SpuriousLoss = 35, "RFC 9002 s.6.1", Words(space, packets) -> ();

    // Congestion control.
    /// The congestion window in bytes; two datagrams at least.
    CongestionWindow = 36, "RFC 9002 s.7", Words(path) -> (bytes);
    /// Bytes that count were sent.
    CongestionSent = 37, "RFC 9002 B.4", Words(path, bytes, in_flight) -> ();
    /// Bytes that count were acknowledged.
    CongestionAcked = 38, "RFC 9002 B.5", Words(path, bytes, in_flight, app_limited) -> ();
    /// Loss or marks.
    CongestionEvent = 39, "RFC 9002 B.6", Words(path, largest_sent, marked, bytes) -> ();
    /// Bytes a second to send at; two datagrams at least.
    PacingRate = 40, "RFC 9002 s.7.7", Words(path) -> (rate);
    /// When a datagram may leave at that rate; none: now. A second after it was first put off it may.
    PaceUntil = 41, "RFC 9002 s.7.7", Words(path, rate, size) -> (at);
    /// There was too little to send to fill the window.
    AppLimited = 42, "RFC 9002 s.7.8", Words(path, in_flight) -> ();

    // Sending.
    /// On which path the next datagram goes: the packet scheduler. The active one, or one that has something
    /// to send which probes it; any other answer stands for the default. With multipath (RFC 10069): any on which data
    /// can go, unless nothing was heard of what was sent there last and another is better off. If it has no room, it is
    /// asked again, and an answer that was given before means that data waits. A path that has room for data
    /// that waits gets a datagram in a second at least, unless it is a backup or its cost is not 0. Acknowledgements,
    /// probes and challenges of the others go all the same.
    SelectPath = 43, "RFC 9000 s.9", Words() -> (path);
    /// Whether a packet of a space is to be sent now. None where there is nothing to send; where there is
    /// something, it can be put off for a second.
    HasContent = 44, "RFC 9000 s.12.2", Words(space, path, may_count) -> (yes);
    /// How large the datagram may be: 1,200 bytes at least, and what the path is known to take at most.
    DatagramSize = 45, "RFC 9000 s.14", Words(path) -> (bytes);
    /// The number of the next packet; not below `next`, and at most 64 above.
    NextPacketNumber = 46, "RFC 9000 s.17.1", Words(space, next) -> (number);
    /// The value of the spin bit.
    SpinBit = 47, "RFC 9000 s.17.4", Words(path) -> (bit);
    /// The header of a packet is written, its payload not yet.
    GenerateHeader = 48, "RFC 9000 s.17", Words(space, number, path) -> ();
    /// The frames of a packet. Output 0: nothing in it is ack-eliciting. They are written whatever is
    /// answered.
    GenerateFrames = 49, "RFC 9000 s.12.4", Words(space, number, room) -> (ack_eliciting);
    /// A frame as it goes out. Of the transport's own, to look at: its bytes, and how many they are. Of a
    /// hook's own, for that hook to write: a buffer, and the `token` that it queued the frame with. What it
    /// writes must be one frame of the type, as its own [`Operation::ParseFrame`] reads it.
    WriteFrame = 50, "RFC 9000 s.19", Frame(space, token, length) -> (length);
    /// Bytes of PADDING at the end of a packet; not below what is wanted, and not more if it is not ack-eliciting.
    PadPacket = 51, "RFC 9000 s.14.1", Words(space, wanted) -> (bytes);
    /// A packet was sent. It is remembered whatever is answered.
    SendPacket = 52, "RFC 9002 A.5", Words(space, number, size, ack_eliciting, path) -> ();
    /// A datagram is about to leave, as it is on the wire.
    SendDatagram = 53, "RFC 9000 s.12.2", Bytes(path, ecn) -> ();
    /// Whether a packet is marked ECT(0).
    MarkEcn = 54, "RFC 9000 s.13.4", Words(path, space) -> (mark);
    /// Which stream goes next; none: whose turn it is.
    ScheduleStream = 55, "RFC 9000 s.2.3", Words(room) -> (stream);
    /// The limit to tell the peer for a stream, or, where that is none, for the connection; not below the
    /// default, and no more room than the window may ever have.
    WindowUpdate = 56, "RFC 9000 s.4.2", Words(stream, limit) -> (limit);
    /// Whether the application may open a stream now: 0 bidirectional, 1 unidirectional.
    OpenStream = 57, "RFC 9000 s.4.6", Words(direction) -> (allowed);

    // Connection IDs.
    /// How many connection IDs the peer is given, of what it and we keep.
    ConnectionIdCount = 58, "RFC 9000 s.5.1.1", Words(limit) -> (count);
    /// The peer retires one of ours.
    RetireConnectionId = 59, "RFC 9000 s.5.1.2", Words(sequence) -> ();

    // Paths.
    /// The size of a probe for larger datagrams, if one is due; 0: none. Of a hook's answers 0 counts, any
    /// other stands for the default.
    ProbeMtu = 60, "RFC 9000 s.14.3", Words(path) -> (size);
    /// A probe arrived (1) or was lost (0).
    MtuProbeDone = 61, "RFC 8899 s.4", Words(path, arrived) -> ();
    /// PATH_CHALLENGE came. Output 0: it is not answered.
    AnswerChallenge = 62, "RFC 9000 s.8.2.2", Words(path) -> (answer);

    /// Whether the active path follows the peer, whose latest packet came from elsewhere.
    FollowPeer = 80, "RFC 9000 s.9.3", Words(path, active) -> (follow);
    /// A path is to be validated: a challenge is chosen.
    ChallengePath = 81, "RFC 9000 s.8.2.1", Words(path) -> ();
    /// The peer has answered on a path.
    PathValidated = 82, "RFC 9000 s.8.2.3", Words(path) -> ();

    // Life.
    /// The connection begins: what a plugin keeps is set up.
    InitOpaqueData = 63, "The Case for Protocol Plugins s.3", Words(side) -> ();
    /// The peer's transport parameters. Output 0: they do not do.
    ReadParameters = 64, "RFC 9000 s.7.4", Bytes() -> (accept);
    /// Keys of a space are there.
    KeysReady = 65, "RFC 9001 s.4.1.4", Words(space) -> ();
    /// Keys of a space are thrown away.
    DiscardKeys = 66, "RFC 9001 s.4.9", Words(space) -> ();
    /// Whether keys are updated now: the application wishes it, or (`worn`) they have protected half of the
    /// packets that they may. From three quarters on nobody is asked.
    UpdateKeys = 67, "RFC 9001 s.6", Words(worn) -> (allowed);
    /// The handshake is complete.
    HandshakeComplete = 68, "RFC 9001 s.4.1.1", Words() -> ();
    /// It is confirmed.
    HandshakeConfirmed = 69, "RFC 9001 s.4.1.2", Words() -> ();
    /// How long nothing may come before the connection is dropped; none: for ever. Not longer than the
    /// default.
    IdleTimeout = 70, "RFC 9000 s.10.1", Words() -> (duration);
    /// We close the connection.
    CloseConnection = 71, "RFC 9000 s.10.2", Words(application, code) -> ();
    /// The peer has closed it.
    PeerClosed = 72, "RFC 9000 s.10.2.2", Words(application, code) -> ();

    // The handshake's turns.
    /// A sound Retry packet came; its token. Output 0: it is not followed.
    FollowRetry = 90, "RFC 9000 s.17.2.5.2", Bytes() -> (follow);
    /// A Version Negotiation packet came that matters; its versions. Output 0: it is not followed.
    FollowVersions = 91, "RFC 9000 s.6.2", Bytes() -> (follow);
    /// The version that a server answers in: the client's, or what it likes better.
    ChooseVersion = 92, "RFC 9368 s.2.3", Words(version) -> (version);
    /// A token for the next connection came.
    NewToken = 93, "RFC 9000 s.8.1.3", Bytes() -> ();
    /// It is known whether early data is taken.
    EarlyDataAnswered = 94, "RFC 9001 s.4.6.2", Words(accepted) -> ();
    /// Whether a packet is kept that came before its keys.
    KeepPacket = 95, "RFC 9001 s.5.7", Words(space, size) -> (keep);

    // Extensions, and keeping alive.
    /// An unreliable datagram came. Output 0: it is dropped.
    AcceptDatagram = 100, "RFC 9221 s.5", Bytes() -> (accept);
    /// How often the peer is asked to acknowledge, if that is far from what it does. The delay is a second more than by default
    /// at most.
    RequestAckFrequency = 101, "draft-ietf-quic-ack-frequency s.7", Words(path) -> (threshold, max_delay, reordering);
    /// The peer asks us to acknowledge so often. Output 0: we go on as before.
    ObeyAckFrequency = 102, "draft-ietf-quic-ack-frequency s.4", Words(threshold, max_delay, reordering) -> (obey);
    /// After how long without a word a PING is sent; none: never.
    KeepAlive = 103, "RFC 9000 s.10.1.2", Words() -> (interval);

    // Of a hook's own: that one alone is called.
    /// The timer that the hook set has run out; it was set to `at`.
    HookTimer = 104, "The Case for Protocol Plugins s.3", Words(at) -> ();
    /// The application has a message for the hook.
    HookMessage = 105, "The Case for Protocol Plugins s.3", Bytes() -> ();

    // Redundancy.
    /// A packet is complete but for its protection: the bytes of its frames, PADDING among them.
    ProtectPacket = 106, "RFC 9001 s.5.3", Bytes(space, number, path) -> ();
    /// Bytes of a packet that STREAM frames leave free: 128 at most, and a quarter of the room. Other frames may
    /// use them.
    KeepRoom = 107, "RFC 9000 s.12.4", Words(space, room) -> (bytes);

    // More of paths, and of the application.
    /// A path is new: there are addresses between which no datagram came or went before.
    PathAdded = 108, "RFC 9000 s.9", Words(path) -> ();
    /// A path is gone. Its number is never another's.
    PathRemoved = 109, "RFC 9000 s.9", Words(path) -> ();
    /// The application has written so many bytes to streams since this was said last. It is said before the next
    /// datagram is made.
    ApplicationWrote = 110, "RFC 9000 s.2.2", Words(bytes) -> ();

    // Transport parameters of a hook's own: that one alone is called.
    /// The hook may declare transport parameters of its own, encoded one behind the other: numbers from 0x40 up that the
    /// transport does not know, eight of them at most. It is said when the hook is attached before the first packet, to a
    /// hook that no other brought; a session of TLS that the client would have resumed may be used up by that.
    WriteParameters = 111, "RFC 9000 s.7.4.2", Buffer() -> (length);
    /// The peer declared a transport parameter with a number that this hook wrote: the bytes are its value.
    PeerParameter = 112, "RFC 9000 s.7.4.2", Bytes(parameter) -> ();

    // Redundancy over several paths.
    /// Whether a piece of stream data that was sent on a path goes on another one, too. It does so when that one
    /// has room, if the piece was not acknowledged by then; of pieces that wait the last 1,024 are kept for each path.
    CopyStreamData = 113, "RFC 10069 s.5.5", Words(path, other, stream, bytes) -> (copy);
}

impl Operation {
    /// The operation with this number.
    pub fn of(id: u64) -> Option<Operation> {
        Operation::ALL.iter().copied().find(|operation| u64::from(*operation as u8) == id)
    }

    /// Whether a hook in its place can be given the default's answer ([`AttachPoint::with_default`](super::AttachPoint)): the
    /// operation decides something, in words, and to ask the default decides nothing yet.
    pub const fn offers_default(self) -> bool {
        let described = self.describe();
        let acts = matches!(
            self,
            Operation::GenerateFrames | Operation::NextPacketNumber | Operation::ProbeMtu
        );
        matches!(described.carries, PayloadKind::Words) && !described.outputs.is_empty() && !acts
    }

    /// Whether of several hooks' answers the least holds: those that cap what is sent.
    pub(crate) const fn takes_least(self) -> bool {
        matches!(self, Operation::CongestionWindow | Operation::PacingRate)
    }

    /// Its bit in a set of operations.
    pub(crate) const fn bit(self) -> u128 {
        1 << (self as u8)
    }

    /// The bits of several.
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
    fn the_catalogue_is_sound() {
        assert!(Operation::ALL.len() >= 60);
        let ids: BTreeSet<u8> = Operation::ALL.iter().map(|one| one.describe().id).collect();
        assert_eq!(ids.len(), Operation::ALL.len());
        for operation in Operation::ALL {
            let described = operation.describe();
            assert!(described.id < 128, "{operation}: a set of them is 128 bits");
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
