//! Drives connections with arbitrary segments, for tests and for the fuzz target.

use std::time::Duration;

use equic_tcp::{Connection, Flags, Outgoing, Segment, TcpConfig, Timestamp, Timestamps};

/// Drives a client and a server with segments made from `bytes`. Each step either sends one end a
/// segment, often one that the end almost accepts, or advances the clock. Returns both ends, so
/// that the caller can check their state.
///
/// # Panics
/// Panics if an end sends without end, or sets a timer in the past.
pub(crate) fn drive(config: &TcpConfig, written: u64, bytes: &[u8]) -> [Connection; 2] {
    let start = Timestamp::START;
    let syn = Segment { flags: Flags::SYN, window: 65_535, ..Segment::default() };
    let mut server_syn = syn;
    server_syn.options.sack_permitted = true;
    server_syn.options.window_scale = Some(10);
    let mut client = Connection::connect(start, config, [7; 32]);
    let Some(mut server) = Connection::accept(start, config, &server_syn, [9; 32]) else {
        unreachable!("it is a SYN")
    };
    client.write(written);
    server.write(written);
    let answer = |outgoing: Option<Outgoing>| outgoing.map_or(0, |o| o.segment.sequence);
    let client_start = answer(client.poll_transmit(start));
    let server_start = answer(server.poll_transmit(start));
    let mut ends = [End::new(client, client_start), End::new(server, server_start)];
    // Completes the client's handshake, so that the following steps reach an open connection.
    let mut reply = syn;
    reply.flags = Flags::SYN.with(Flags::ACK);
    reply.acknowledgment = client_start.wrapping_add(1);
    reply.options = server_syn.options;
    ends[0].connection.handle_segment(start, &reply, false);
    let first = Segment {
        sequence: 1,
        acknowledgment: server_start.wrapping_add(1),
        flags: Flags::ACK,
        window: 65_535,
        ..Segment::default()
    };
    ends[1].connection.handle_segment(start, &first, false);
    let mut now = start;
    for step in bytes.chunks(STEP) {
        let mut padded = [0; STEP];
        padded[..step.len()].copy_from_slice(step);
        let end = &mut ends[usize::from(padded[0] & 1)];
        now += Duration::from_micros(1 << (padded[1] % 28));
        end.step(now, &padded);
    }
    ends.map(|end| end.connection)
}

/// Number of input bytes that make up one step.
const STEP: usize = 24;

struct End {
    connection: Connection,
    /// The initial sequence number of this end. The peer's is zero.
    start: u32,
    /// The last segment that the end sent.
    said: Segment,
}

impl End {
    fn new(connection: Connection, start: u32) -> End {
        End { connection, start, said: Segment::default() }
    }

    fn step(&mut self, now: Timestamp, bytes: &[u8; STEP]) {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        // Most sequence numbers are close to those that the end expects.
        let near = |kind: u8, base: u32, offset: usize| match kind & 3 {
            0 => base,
            1 => base.wrapping_add(half(offset)),
            2 => base.wrapping_sub(half(offset)),
            _ => word(offset),
        };
        let mut segment = Segment {
            sequence: near(bytes[2], self.said.acknowledgment, 4),
            acknowledgment: near(bytes[2] >> 2, self.said.sequence, 8),
            flags: Flags(bytes[3] | if bytes[2] & 0x80 == 0 { Flags::ACK.0 } else { 0 }),
            window: half(12) as u16,
            payload: if bytes[2] & 0x40 == 0 { half(14) % 3_000 } else { word(12) },
            ..Segment::default()
        };
        if bytes[2] & 0x30 != 0 {
            // Only a few segments may end the connection.
            segment.flags.0 &= !(Flags::RST.0 | Flags::SYN.0 | Flags::FIN.0);
        }
        segment.options.timestamps = self.said.options.timestamps.map(|own| Timestamps {
            value: now.as_nanos() as u32 / 1_000_000,
            echo: near(bytes[1] >> 5, own.value, 16),
        });
        for at in [16, 18, 20] {
            let left = self.start.wrapping_add(half(at));
            segment.options.sack.push(left, left.wrapping_add(u32::from(bytes[at])));
        }
        self.connection.handle_segment(now, &segment, bytes[0] & 2 != 0);
        if self.connection.poll_timeout().is_some_and(|at| at <= now) || bytes[0] & 4 != 0 {
            self.connection.handle_timeout(now);
        }
        if bytes[0] & 8 != 0 {
            self.connection.read();
        }
        while self.connection.poll_event().is_some() {}
        let mut sent = 0;
        while let Some(outgoing) = self.connection.poll_transmit(now) {
            self.said = outgoing.segment;
            sent += 1;
            assert!(sent < 100_000, "it sends without end: {:?}", self.connection);
        }
        let timeout = self.connection.poll_timeout();
        self.connection.handle_timeout(now);
        assert!(
            timeout.is_none_or(|at| at > now || !self.connection.is_connected()) || {
                self.connection.poll_timeout().is_none_or(|at| at > now)
            }
        );
    }
}
