//! Packets that are decrypted directly into the buffer of a stream.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::*;
use crate::Pieces;

/// Two ends with nothing in flight, and a window that permits all data of these tests.
struct Ends {
    client: Connection,
    server: Connection,
    now: Timestamp,
    meta: DatagramMeta,
}

impl Ends {
    fn new(seed: u64) -> Ends {
        let mut network = Network::new(seed, Faults::none());
        network.connect();
        for _ in 0..10 {
            echo(&mut network, 200_000);
        }
        network.wait(Duration::from_secs(2));
        let remote = network.server().path().remote();
        let (client, server, now) = network.into_ends();
        let meta = DatagramMeta { remote, local: None, ecn: EcnCodepoint::NotEct };
        Ends { client, server, now, meta }
    }

    /// Returns all datagrams that the client sends now.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        let mut buffer = vec![0; 2_000];
        for _ in 0..200 {
            while let Some(sent) = self.client.poll_transmit(self.now, &mut buffer) {
                datagrams.push(buffer[..sent.size].to_vec());
            }
            // The pacer releases the rest a little later.
            self.now += Duration::from_micros(100);
        }
        datagrams
    }

    fn deliver(&mut self, datagram: &[u8]) {
        self.server.handle_datagram(self.now, self.meta, &mut datagram.to_vec());
    }

    fn placed(&self) -> u64 {
        self.server.stats().packets_opened_to_streams
    }

    fn dropped(&self) -> u64 {
        self.server.stats().packets_dropped
    }
}

/// Returns the datagram with one bit changed after its header.
fn forged(datagram: &[u8], rng: &mut StdRng) -> Vec<u8> {
    let mut forged = datagram.to_vec();
    let at = rng.random_range(30..forged.len());
    forged[at] ^= 1 << rng.random_range(0..8);
    forged
}

/// Datagrams arrive in order. Those whose data fits into an allocated page are not copied.
#[test]
fn in_place_decryption_into_the_stream_buffer() {
    let mut ends = Ends::new(1);
    let id = ends.client.open(Direction::Unidirectional).unwrap();
    let data: Vec<u8> = (0..60_000).map(byte).collect();
    assert_eq!(ends.client.streams().write(id, &data), Ok(data.len()));
    let before = ends.placed();
    let datagrams = ends.sent();
    assert!(datagrams.len() > 30, "{}", datagrams.len());
    for datagram in &datagrams {
        ends.deliver(datagram);
    }
    // A page holds nearly three datagrams, and the third one is copied. From the first two
    // datagrams, the receiver predicts the form of the next one.
    let placed = (ends.placed() - before) as usize;
    assert!(placed * 10 > datagrams.len() * 5, "{placed} of {}", datagrams.len());
    let mut read = Vec::new();
    let id = ends.server.accept(Direction::Unidirectional).unwrap();
    assert_eq!(
        ends.server.streams().read_to(id, &mut read, 1 << 20),
        Ok(ReadOutcome::Bytes(60_000))
    );
    assert!(read == data);
}

/// Packets that cannot be decrypted, data that came before and data of another stream do not change
/// the data that waits to be read. The order does not matter, and they take no memory.
#[test]
fn in_place_decryption_leaves_waiting_data_unchanged() {
    let (mut placed, mut forgeries) = (0, 0);
    for seed in 0..cases(40) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut ends = Ends::new(seed);
        let before = ends.placed();
        let streams: Vec<StreamId> =
            (0..3).map(|_| ends.client.open(Direction::Unidirectional).unwrap()).collect();
        let mut sent = [const { Vec::new() }; 3];
        let mut read = [const { Vec::new() }; 3];
        let mut taken = Vec::new();
        for _ in 0..12 {
            let which = rng.random_range(0..3);
            let more: Vec<u8> = (0..rng.random_range(1..12_000)).map(|_| rng.random()).collect();
            let count = ends.client.streams().write(streams[which], &more).unwrap();
            sent[which].extend_from_slice(&more[..count]);
            let mut datagrams = ends.sent();
            if rng.random_bool(0.3) {
                datagrams.shuffle(&mut rng);
            }
            for datagram in &datagrams {
                if datagram.len() > 60 && rng.random_bool(0.3) {
                    let dropped = ends.dropped();
                    ends.deliver(&forged(datagram, &mut rng));
                    assert_eq!(ends.dropped(), dropped + 1, "seed {seed}");
                    forgeries += 1;
                }
                ends.deliver(datagram);
                if rng.random_bool(0.2) {
                    let again = datagrams.choose(&mut rng).unwrap_or(datagram);
                    ends.deliver(again);
                }
                if rng.random_bool(0.2) {
                    read_some(&mut ends.server, &mut rng, &mut taken, &streams, &mut read);
                }
            }
            // The client receives the acknowledgements.
            let mut buffer = vec![0; 2_000];
            ends.now += Duration::from_millis(30);
            ends.server.handle_timeout(ends.now);
            while let Some(answer) = ends.server.poll_transmit(ends.now, &mut buffer) {
                let meta = DatagramMeta { remote: ends.client.path().remote(), ..ends.meta };
                ends.client.handle_datagram(ends.now, meta, &mut buffer[..answer.size]);
            }
        }
        for datagram in ends.sent() {
            ends.deliver(&datagram);
        }
        let mut rounds = 0;
        while rounds < 200 || !taken.is_empty() {
            read_some(&mut ends.server, &mut rng, &mut taken, &streams, &mut read);
            rounds += 1;
        }
        for (read, sent) in read.iter().zip(&sent) {
            assert_eq!(read.len(), sent.len(), "seed {seed}");
            assert!(read == sent, "seed {seed}");
        }
        placed += ends.placed() - before;
    }
    assert!(placed > 20 && forgeries > 20, "{placed} {forgeries}");
}

/// Reads some data of one of the streams, with or without taking its memory. Memory that was taken
/// is checked and returned later.
fn read_some(
    server: &mut Connection,
    rng: &mut StdRng,
    taken: &mut Vec<(usize, usize, Pieces)>,
    streams: &[StreamId],
    read: &mut [Vec<u8>; 3],
) {
    let which = rng.random_range(0..3);
    let limit = rng.random_range(1..10_000);
    if rng.random_bool(0.5) {
        let mut pieces = Pieces::default();
        if let Ok(ReadOutcome::Bytes(count)) =
            server.streams().read_pieces(streams[which], limit, &mut pieces)
        {
            let start = read[which].len();
            read[which].resize(start + count, 0);
            taken.push((which, start, pieces));
        }
    } else {
        let _ = server.streams().read_to(streams[which], &mut read[which], limit);
    }
    if rng.random_bool(0.5) {
        for (which, mut start, mut pieces) in taken.drain(..) {
            for piece in pieces.iter() {
                read[which][start..start + piece.len()].copy_from_slice(piece);
                start += piece.len();
            }
            server.streams().take_back(&mut pieces);
        }
    }
}

/// Forged packets must not make a connection allocate memory.
#[test]
fn in_place_decryption_that_fails_takes_no_memory() {
    let mut ends = Ends::new(1);
    let id = ends.client.open(Direction::Unidirectional).unwrap();
    ends.client.streams().write(id, &[7; 20_000]).unwrap();
    let datagrams = ends.sent();
    let (last, others) = datagrams.split_last().unwrap();
    for datagram in others {
        ends.deliver(datagram);
    }
    assert!(ends.placed() > 0);
    let id = ends.server.accept(Direction::Unidirectional).unwrap();
    let mut read = Vec::new();
    ends.server.streams().read_to(id, &mut read, 1 << 20).unwrap();
    let rng = &mut StdRng::seed_from_u64(7);
    let (memory, dropped) = (ends.server.streams().memory(), ends.dropped());
    for _ in 0..10 {
        ends.deliver(&forged(&others[others.len() - 1], rng));
        ends.deliver(&forged(last, rng));
    }
    assert_eq!(ends.dropped(), dropped + 20);
    assert_eq!(ends.server.streams().memory(), memory);
    ends.deliver(last);
    ends.server.streams().read_to(id, &mut read, 1 << 20).unwrap();
    assert!(read == [7; 20_000]);
}
