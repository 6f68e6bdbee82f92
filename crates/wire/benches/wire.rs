//! Measures how long parsing and writing take, in nanoseconds per packet, frame or other item. Run
//! it with `make bench-wire`. It prints the smallest result of many rounds and asserts nothing.

use equic_wire::frame::{Frame, Frames};
use equic_wire::packet::{Datagram, ParseOptions, ShortHeader};
use equic_wire::params::TransportParameters;
use equic_wire::{
    ConnectionId, PacketNumber, PacketNumberLen, Side, StreamId, VarInt, VarIntLen, Writer,
};
use std::hint::black_box;
use std::time::Instant;

/// Number of rounds. With many short rounds, at least one round is not disturbed by other load.
const ROUNDS: usize = 2_000;
const REPEAT: u32 = 500;

/// Runs `work` many times in each round. Returns the mean time of one run in the fastest round, in
/// nanoseconds.
fn nanos(mut work: impl FnMut()) -> f64 {
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..REPEAT {
                work();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(REPEAT)
        })
        .fold(f64::INFINITY, f64::min)
}

fn report(what: &str, items: usize, work: impl FnMut()) {
    println!("{what:<46} {:>8.1} ns", nanos(work) / items as f64);
}

fn payload(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut buffer = vec![0; frames.iter().map(Frame::encoded_len).sum()];
    let mut writer = Writer::new(&mut buffer);
    frames.iter().for_each(|frame| frame.write(&mut writer).expect("as long as it says"));
    buffer
}

fn bench_packets() {
    let options = ParseOptions { dcid_len: 8, greased_fixed_bit: false };
    let initial =
        [&[0xc3, 0, 0, 0, 1, 8][..], &[1; 8], &[8], &[2; 8], &[0, 0x44, 0x96], &[3; 0x496]]
            .concat();
    let short = [&[0x43][..], &[1; 8], &[7; 1191]].concat();
    report("Initial of 1200 bytes: parse", 1, || {
        black_box(Datagram::new(black_box(&initial), options).next());
    });
    report("short header of 1200 bytes: parse", 1, || {
        black_box(Datagram::new(black_box(&short), options).next());
    });
    let header = ShortHeader {
        dcid: ConnectionId::new(&[1; 8]).expect("20 bytes or less"),
        spin: false,
        key_phase: false,
        fixed_bit: true,
    };
    let number = PacketNumber::default().truncate_to(PacketNumberLen::Two);
    let mut buffer = [0; 64];
    report("short header: write and finish", 1, || {
        let mut writer = Writer::new(black_box(&mut buffer));
        let open = header.open(&mut writer, number).expect("it fits");
        writer.zeros(20).expect("it fits");
        black_box(open.finish(&mut writer, 16)).expect("it fits");
    });
}

fn bench_frames() {
    let data = [5; 1100];
    let id = StreamId::from(VarInt::from_u32(4));
    let stream = equic_wire::frame::Stream::new(id, VarInt::from_u32(1 << 20), &data, false)
        .expect("it ends within 2^62-1");
    let read_all = |payload: &[u8]| {
        for frame in Frames::new(black_box(payload)).expect("it is not empty") {
            black_box(frame).expect("it parses");
        }
    };
    let one = payload(&[Frame::Stream(stream)]);
    report("STREAM with 1100 bytes: parse", 1, || read_all(&one));
    let mut buffer = [0; 1200];
    report("STREAM with 1100 bytes: write", 1, || {
        Frame::Stream(stream).write(&mut Writer::new(black_box(&mut buffer))).expect("it fits");
    });
    let credits = payload(&[Frame::MaxData(VarInt::from_u32(1 << 24)); 32]);
    report("MAX_DATA, of 32 in a packet: parse", 32, || read_all(&credits));
    let mut ack = vec![0x02, 0x80, 0x00, 0x40, 0x00, 0x10, 32, 1];
    ack.extend([1, 2].repeat(32));
    report("ACK with 33 ranges: parse", 1, || read_all(&ack));
    let Some(Ok(Frame::Ack(parsed))) = Frames::new(&ack).expect("it is not empty").next() else {
        unreachable!("it is an ACK")
    };
    report("ACK, of 33 ranges: iterate", 33, || {
        black_box(black_box(&parsed).ranges().map(|range| range.smallest().get()).sum::<u64>());
    });
    let padding = vec![0; 1100];
    report("PADDING of 1100 bytes: parse", 1, || read_all(&padding));
}

fn bench_parameters() {
    let mut set = TransportParameters::client(ConnectionId::EMPTY);
    set.initial_max_data = VarInt::from_u32(1 << 24);
    set.initial_max_stream_data_bidi_local = VarInt::from_u32(1 << 20);
    set.initial_max_stream_data_bidi_remote = VarInt::from_u32(1 << 20);
    set.max_idle_timeout_ms = VarInt::from_u32(30_000);
    let mut buffer = vec![0; set.encoded_len()];
    set.write(&mut Writer::new(&mut buffer)).expect("as long as it says");
    report("transport parameters, five of them: parse", 1, || {
        black_box(TransportParameters::parse(black_box(&buffer), Side::Client)).expect("legal");
    });
}

fn bench_varints() {
    let mut buffer = [0; 8 * 64];
    for len in [VarIntLen::One, VarIntLen::Two, VarIntLen::Four, VarIntLen::Eight] {
        let mut writer = Writer::new(&mut buffer);
        (0..64).for_each(|_| writer.varint_of_len(VarInt::ZERO, len).expect("it fits"));
        let encoded = &buffer[..len.bytes() * 64];
        report(&format!("integer of {} bytes, of 64: parse", len.bytes()), 64, || {
            let mut reader = equic_wire::Reader::new(black_box(encoded));
            while let Ok(value) = reader.varint() {
                black_box(value);
            }
        });
    }
}

fn main() {
    bench_varints();
    bench_packets();
    bench_frames();
    bench_parameters();
}
