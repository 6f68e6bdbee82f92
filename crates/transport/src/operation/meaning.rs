//! Documents the input and output words of operations by their names, for
//! [`Operation`](super::Operation).

macro_rules! meaning {
    (accept) => { "`accept`: 1 to accept, or 0 with the effect that the operation documents" };
    (accepted) => { "`accepted`: 1 if the server accepts early data, else 0" };
    (ack_delay) => { "`ack_delay`: time by which the peer delayed its acknowledgment, in nanoseconds" };
    (ack_eliciting) => { "`ack_eliciting`: 1 if the packet elicits an acknowledgment, else 0" };
    (active) => { "`active`: number of the active path" };
    (again) => { "`again`: 1 if the frames are sent again, else 0" };
    (allowed) => { "`allowed`: 1 or 0" };
    (answer) => { "`answer`: 1 if the challenge is answered, else 0" };
    (app_limited) => { "`app_limited`: 1 if the packets were sent while the window was not full, else 0" };
    (application) => { "`application`: 1 if the error is the application's, 0 if it is the transport's" };
    (arrived) => { "`arrived`: 1 if the probe was acknowledged, 0 if it was lost" };
    (at) => { "`at`: a time in nanoseconds on the connection's clock; all ones for no time" };
    (available) => { "`available`: number of ranges to report" };
    (bit) => { "`bit`: 1 or 0" };
    (bytes) => { "`bytes`: a number of bytes" };
    (ce) => { "`ce`: the peer's count of packets marked CE" };
    (code) => { "`code`: the error code" };
    (copy) => { "`copy`: 1 if the data is also sent on the other path, else 0" };
    (congested) => { "`congested`: 1 if there is new congestion, else 0" };
    (count) => { "`count`: a number of items" };
    (delay) => { "`delay`: a time in nanoseconds" };
    (direction) => { "`direction`: 0 for bidirectional, 1 for unidirectional" };
    (due) => { "`due`: 1 or 0" };
    (duplicate) => { "`duplicate`: 1 or 0" };
    (duration) => { "`duration`: a time in nanoseconds; all ones for no timeout, if the operation permits that" };
    (ecn) => { "`ecn`: the ECN codepoint of the IP header (RFC 3168 s.5): 0: Not-ECT, 1: ECT(1), 2: ECT(0), 3: CE" };
    (ect0) => { "`ect0`: the peer's count of packets marked ECT(0)" };
    (ect1) => { "`ect1`: the peer's count of packets marked ECT(1)" };
    (factor) => { "`factor`: factor by which the timeout is multiplied" };
    (follow) => { "`follow`: 1 or 0" };
    (found) => { "`found`: 1 if the losses are persistent congestion according to RFC 9002, else 0" };
    (in_flight) => { "`in_flight`: bytes in flight on the path" };
    (interval) => { "`interval`: a time in nanoseconds; all ones for no time" };
    (keep) => { "`keep`: 1 or 0" };
    (largest) => { "`largest`: the largest packet number so far, received or acknowledged; all ones for no packet" };
    (largest_sent) => { "`largest_sent`: time at which the last of the packets was sent, in nanoseconds on the connection's clock" };
    (length) => { "`length`: a number of bytes" };
    (limit) => { "`limit`: a limit, in bytes or connection IDs" };
    (mark) => { "`mark`: 1 or 0" };
    (marked) => { "`marked`: number of marked packets; for a congestion event, 1 if marks caused it and 0 if losses did" };
    (max_delay) => { "`max_delay`: longest delay of an acknowledgment, in nanoseconds" };
    (may_count) => { "`may_count`: 1 if window and pacing permit a packet that counts as in flight, else 0" };
    (next) => { "`next`: the packet number after the last one used" };
    (number) => { "`number`: packet number" };
    (obey) => { "`obey`: 1 or 0" };
    (other) => { "`other`: number of another path" };
    (packets) => { "`packets`: a number of packets" };
    (parameter) => { "`parameter`: number of a transport parameter" };
    (path) => { "`path`: number of the path" };
    (persistent) => { "`persistent`: 1 or 0" };
    (probe) => { "`probe`: 1 if the packet is probed, 0 if it was lost" };
    (probes) => { "`probes`: number of packets" };
    (rate) => { "`rate`: bytes per second" };
    (raw_delay) => { "`raw_delay`: the ACK Delay field, in the sender's units (RFC 9000 s.19.3)" };
    (reordering) => { "`reordering`: smallest reordering, in packets, that is acknowledged at once; 0: never, 1: any reordering" };
    (reset) => { "`reset`: 1 or 0" };
    (room) => { "`room`: number of bytes left in the packet" };
    (sample) => { "`sample`: the RTT sample, in nanoseconds" };
    (sequence) => { "`sequence`: sequence number of the connection ID" };
    (side) => { "`side`: 0 for the client, 1 for the server" };
    (size) => { "`size`: length of the packet or datagram in bytes" };
    (space) => { "`space`: packet number space: 0: Initial, 1: Handshake, 2 and up: application data of path ID 0 and up" };
    (stream) => { "`stream`: stream ID; all ones for no stream" };
    (threshold) => { "`threshold`: an acknowledgment is due when more ack-eliciting packets than this wait for one" };
    (token) => { "`token`: the word that the frame was queued with ([`HookContext::queue_frame`](super::HookContext::queue_frame)); 0 for a frame of the transport" };
    (truncated) => { "`truncated`: the truncated packet number in the header" };
    (version) => { "`version`: version of QUIC (RFC 9000 s.15)" };
    (waited) => { "`waited`: time since the packet with the largest number arrived, in nanoseconds" };
    (wanted) => { "`wanted`: smallest number of bytes of PADDING" };
    (worn) => { "`worn`: 1 if the keys have protected half of the packets that they may, 0 if the application requests an update" };
    (yes) => { "`yes`: 1 or 0" };
}

/// Generates the heading above a list of words in the documentation of an operation.
macro_rules! heading {
    ($what:literal) => {
        concat!("\n", $what, ": none.")
    };
    ($what:literal $($word:ident)+) => {
        concat!("\n", $what, ":")
    };
}

/// Generates the sentence about the bytes that a call of an operation carries, for rustdoc.
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
