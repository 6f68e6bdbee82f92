//! Generates random inputs. `mod.rs` describes their format.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

use crate::frames::Generator;

pub(crate) fn input(seed: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    // Usually, begin the case after the handshake, because fewer things can go wrong before that.
    // Such cases do not begin with Version Negotiation.
    let (mask, always) = if rng.random_bool(0.8) { (0x1f, 2) } else { (0x3f, 0) };
    let configuration = rng.random::<u8>() & mask | always;
    let mut frames = Generator::of(seed, configuration & 1 != 0, rng.random_bool(0.7));
    let mut input = vec![configuration];
    let mut offset = 0;
    for _ in 0..rng.random_range(1..60) {
        record(&mut rng, &mut frames, &mut input);
        if rng.random_bool(0.02) {
            row(&mut rng, &mut frames, (configuration & 1, &mut offset), &mut input);
        }
    }
    input
}

/// Generates packets of a long transfer on the peer's first unidirectional stream, in order from
/// `offset` on, with occasional other records between them. If `server` is 1, the peer is the
/// server.
fn row(
    rng: &mut StdRng,
    frames: &mut Generator,
    (server, offset): (u8, &mut u16),
    input: &mut Vec<u8>,
) {
    for _ in 0..rng.random_range(3..12) {
        if *offset >= 1 << 14 {
            // Stop at this offset: larger offsets only have longer headers, which would not test
            // anything new.
            return;
        }
        let length = rng.random_range(500..900);
        let header = match *offset {
            0 => vec![0x08, 2 | server],
            1..64 => vec![0x0c, 2 | server, *offset as u8],
            _ => vec![0x0c, 2 | server, 0x40 | (*offset >> 8) as u8, *offset as u8],
        };
        let mut payload = header;
        payload.resize(payload.len() + usize::from(length), rng.random());
        input.push(0);
        input.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        input.extend_from_slice(&payload);
        *offset += length;
        if rng.random_bool(0.1) {
            record(rng, frames, input);
        }
    }
}

fn record(rng: &mut StdRng, frames: &mut Generator, input: &mut Vec<u8>) {
    let kind: u8 = *[0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 7].choose(rng).unwrap_or(&0);
    let flags = if rng.random_bool(0.8) { 0 } else { rng.random::<u8>() & 0xf8 };
    input.push(kind | flags);
    let mut block = |bytes: &[u8]| {
        input.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        input.extend_from_slice(bytes);
    };
    match kind {
        0 => block(&frames.payload()),
        1 => {
            let how: u8 = rng.random();
            input.push(if rng.random_bool(0.7) { how & 0x3b } else { how });
            if input.last().is_some_and(|how| how & 4 != 0) {
                input.extend_from_slice(&rng.random_range(0..500u16).to_be_bytes());
            }
            let payload = frames.payload();
            input.extend_from_slice(&(payload.len() as u16).to_be_bytes());
            input.extend_from_slice(&payload);
        }
        2 => {
            let how = rng.random::<u8>() & 7;
            input.extend_from_slice(&[how, rng.random()]);
            if how & 4 != 0 {
                input.extend_from_slice(&rng.random_range(0..3000u16).to_be_bytes());
            }
            let mut more = vec![0; *[0, 0, 2, 10, 100].choose(rng).unwrap_or(&0)];
            rng.fill_bytes(&mut more);
            // Write a transport parameter whose ID and length have one byte each.
            if let [id, length, rest @ ..] = &mut more[..] {
                (*id, *length) = (*id & 0x3f, (rest.len() as u8).min(63));
            }
            input.extend_from_slice(&(more.len() as u16).to_be_bytes());
            input.extend_from_slice(&more);
        }
        3 => {
            let mut datagram = vec![0; rng.random_range(0..1400)];
            rng.fill_bytes(&mut datagram);
            block(&datagram);
        }
        4 => input.extend_from_slice(&rng.random::<[u8; 3]>()),
        5 => input.extend_from_slice(&rng.random_range(0..2000u16).to_be_bytes()),
        6 => input.push(rng.random()),
        _ => special(rng, input),
    }
}

fn special(rng: &mut StdRng, input: &mut Vec<u8>) {
    let what = *[0, 2, 18, 18, 18, 4, 5, 6].choose(rng).unwrap_or(&0) | rng.random::<u8>() & 0x28;
    input.push(what);
    match what & 7 {
        4 => {
            let length = rng.random_range(0..60u16);
            input.extend_from_slice(&length.to_be_bytes());
            input.extend((0..length).map(|_| rng.random::<u8>()));
        }
        5 => {
            for _ in 0..what >> 3 {
                let versions = [1u32, 0x6b33_43cf, 0x6e75_6c6c, 0x1a2a_3a4a, 0];
                let version = versions.choose(rng).unwrap_or(&1);
                input.extend_from_slice(&version.to_be_bytes());
            }
        }
        _ => {}
    }
}
