//! Documents the words of operations by their names, for [`Operation`](super::Operation).

macro_rules! meaning {
    (accept) => { "`accept`: 1, or 0 with the effect that the operation documents" };
    (accepted) => { "`accepted`: 1 if the server takes early data, else 0" };
    (ack_delay) => { "`ack_delay`: time that the peer waited before it acknowledged, in nanoseconds" };
    (ack_eliciting) => { "`ack_eliciting`: 1 if the packet elicits an acknowledgment, else 0" };
    (active) => { "`active`: number of the active path" };
    (again) => { "`again`: 1 if the frames are sent again, else 0" };
    (allowed) => { "`allowed`: 1 or 0" };
    (answer) => { "`answer`: 1 if it is answered, else 0" };
    (app_limited) => { "`app_limited`: 1 if the packets were sent while the window was not full, else 0" };
    (application) => { "`application`: 1 if the error is the application's, 0 if it is the transport's" };
    (arrived) => { "`arrived`: 1 if the probe was acknowledged, 0 if it was lost" };
    (at) => { "`at`: a time in nanoseconds on the connection's clock; all ones: none" };
    (available) => { "`available`: number of ranges to report" };
    (bit) => { "`bit`: 1 or 0" };
    (bytes) => { "`bytes`: a number of bytes" };
    (ce) => { "`ce`: the peer's count of packets marked CE" };
    (code) => { "`code`: the error code" };
    (copy) => { "`copy`: 1 if the data is also sent there, else 0" };
    (congested) => { "`congested`: 1 if there is new congestion, else 0" };
    (count) => { "`count`: how many" };
    (delay) => { "`delay`: a time in nanoseconds" };
    (direction) => { "`direction`: 0: bidirectional, 1: unidirectional" };
    (due) => { "`due`: 1 or 0" };
    (duplicate) => { "`duplicate`: 1 or 0" };
    (duration) => { "`duration`: a time in nanoseconds; all ones: none, where the operation permits it" };
    (ecn) => { "`ecn`: the codepoint in the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE" };
    (ect0) => { "`ect0`: the peer's count of packets marked ECT(0)" };
    (ect1) => { "`ect1`: the peer's count of packets marked ECT(1)" };
    (factor) => { "`factor`: factor of the timeout" };
    (follow) => { "`follow`: 1 or 0" };
    (found) => { "`found`: 1 if the losses are persistent congestion by RFC 9002, else 0" };
    (in_flight) => { "`in_flight`: bytes in flight on the path" };
    (interval) => { "`interval`: a time in nanoseconds; all ones: none" };
    (keep) => { "`keep`: 1 or 0" };
    (largest) => { "`largest`: the largest packet number so far, received or acknowledged; all ones: none" };
    (largest_sent) => { "`largest_sent`: time at which the last of the packets was sent, in nanoseconds on the connection's clock" };
    (length) => { "`length`: a number of bytes" };
    (limit) => { "`limit`: the limit that the operation is about, in bytes or connection IDs" };
    (mark) => { "`mark`: 1 or 0" };
    (marked) => { "`marked`: number of marked packets; for a congestion event, 1 if it is caused by marks and 0 if by loss" };
    (max_delay) => { "`max_delay`: longest delay of an acknowledgment, in nanoseconds" };
    (may_count) => { "`may_count`: 1 if window and pacing permit a packet that counts as in flight, else 0" };
    (next) => { "`next`: the number after the last one used" };
    (number) => { "`number`: packet number" };
    (obey) => { "`obey`: 1 or 0" };
    (other) => { "`other`: number of another path" };
    (packets) => { "`packets`: a number of packets" };
    (parameter) => { "`parameter`: number of a transport parameter" };
    (path) => { "`path`: number of the path" };
    (persistent) => { "`persistent`: 1 or 0" };
    (probe) => { "`probe`: 1 if the packet is probed, 0 if it is lost" };
    (probes) => { "`probes`: how many packets" };
    (rate) => { "`rate`: bytes a second" };
    (raw_delay) => { "`raw_delay`: the ACK Delay field, in the sender's units (RFC 9000 s.19.3)" };
    (reordering) => { "`reordering`: reordering, in packets, that is reported at once; 0: never, 1: any" };
    (reset) => { "`reset`: 1 or 0" };
    (room) => { "`room`: bytes that are left in the packet" };
    (sample) => { "`sample`: the RTT sample, in nanoseconds" };
    (sequence) => { "`sequence`: sequence number of the connection ID" };
    (side) => { "`side`: 0: client, 1: server" };
    (size) => { "`size`: bytes of the packet or datagram" };
    (space) => { "`space`: packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up" };
    (stream) => { "`stream`: stream ID; all ones: none" };
    (threshold) => { "`threshold`: an acknowledgment is due when more ack-eliciting packets than this wait for one" };
    (token) => { "`token`: the word that the frame was queued with ([`HookContext::queue_frame`](super::HookContext::queue_frame)); 0: the transport's" };
    (truncated) => { "`truncated`: the packet number's bits in the header" };
    (version) => { "`version`: version of QUIC (RFC 9000 s.15)" };
    (waited) => { "`waited`: time since the packet with the largest number arrived, in nanoseconds" };
    (wanted) => { "`wanted`: smallest number of bytes of padding" };
    (worn) => { "`worn`: 1 if the keys have protected half of the packets that they may, 0 if the application requests an update" };
    (yes) => { "`yes`: 1 or 0" };
}

/// Generates the heading above a list of words in the documentation.
macro_rules! heading {
    ($what:literal) => {
        concat!("\n", $what, ": none.")
    };
    ($what:literal $($word:ident)+) => {
        concat!("\n", $what, ":")
    };
}

/// Generates the sentence about the bytes that a call carries, for rustdoc.
macro_rules! carried {
    (Words) => {
        ""
    };
    (Bytes) => {
        "\nThe call has bytes to read."
    };
    (Buffer) => {
        "\nThe call has a buffer to write."
    };
    (Frame) => {
        "\nThere is one such operation for each frame type."
    };
}

pub(super) use {carried, heading, meaning};
