//! What protecting a packet takes: AEAD, header protection, and one copy of what is in it.

use std::hint::black_box;
use std::io;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::quic::{Keys, Version};
use rustls::{Error, Side};

use crate::{DATAGRAM, PAYLOAD, Row, thread_time};

/// Datagrams of a measurement: as many as a GSO batch has, in memory of their own as there.
const BATCH: usize = 44;
/// Passes over them.
const PASSES: usize = 8;
/// A short header: first byte, connection ID of 8 bytes, packet number of 2.
pub(crate) const HEADER: usize = 11;
const TAG: usize = 16;
/// Offset of the packet number, and of the sample for header protection (RFC 9001 s.5.4.2).
pub(crate) const NUMBER: usize = 9;
pub(crate) const SAMPLE: usize = NUMBER + 4;

pub(crate) fn wrong(error: Error) -> io::Error {
    io::Error::other(error)
}

pub(crate) fn keys(suite: SupportedCipherSuite, side: Side) -> io::Result<Keys> {
    let suite = suite.tls13().and_then(|suite| suite.quic_suite());
    let suite = suite.ok_or_else(|| io::Error::other("the suite does not do QUIC"))?;
    // Whatever the secret: the time is the same.
    Ok(suite.keys(&[7; 8], side, Version::V1))
}

fn packets() -> Vec<[u8; DATAGRAM]> {
    (0..BATCH).map(|index| [index as u8; DATAGRAM]).collect()
}

/// Nanoseconds for each datagram of a pass over all of them.
fn time(mut pass: impl FnMut(u64) -> io::Result<()>) -> io::Result<Vec<f64>> {
    let start = thread_time()?;
    for round in 0..PASSES {
        pass((round * BATCH) as u64)?;
    }
    let taken = thread_time()? - start;
    Ok(vec![taken as f64 / (PASSES * BATCH) as f64])
}

/// Seals all packets in place, with numbers from `first` on.
fn seal(keys: &Keys, packets: &mut [[u8; DATAGRAM]], first: u64) -> io::Result<()> {
    for (number, packet) in (first..).zip(packets) {
        seal_one(keys, packet, number)?;
    }
    Ok(())
}

/// Seals a datagram's packet in place, header protection apart.
pub(crate) fn seal_one(keys: &Keys, packet: &mut [u8], number: u64) -> io::Result<()> {
    let (header, rest) = packet.split_at_mut(HEADER);
    let (payload, tag) = rest.split_at_mut(DATAGRAM - HEADER - TAG);
    let sealed = keys.local.packet.encrypt_in_place(number, header, payload).map_err(wrong)?;
    tag.copy_from_slice(sealed.as_ref());
    Ok(())
}

/// Rows of one cipher suite.
fn suite(suite: SupportedCipherSuite, names: [&'static str; 3]) -> io::Result<[Row; 3]> {
    let (client, server) = (keys(suite, Side::Client)?, keys(suite, Side::Server)?);
    let again = keys(suite, Side::Client)?;
    let header = keys(suite, Side::Client)?;
    let (mut sealed, mut plain) = (packets(), packets());
    let seal_row = Row {
        name: names[0],
        columns: &["seal"],
        measure: Box::new(move || time(|first| seal(&again, &mut sealed, first))),
    };
    let open_row = Row {
        name: names[1],
        columns: &["open"],
        measure: Box::new(move || {
            // What was opened has to be sealed again, which does not count.
            let mut taken = 0;
            for round in 0..PASSES {
                let first = (round * BATCH) as u64;
                seal(&client, &mut plain, first)?;
                let start = thread_time()?;
                for (number, packet) in (first..).zip(&mut plain) {
                    let (header, payload) = packet.split_at_mut(HEADER);
                    server
                        .remote
                        .packet
                        .decrypt_in_place(number, header, payload)
                        .map_err(wrong)?;
                }
                taken += thread_time()? - start;
            }
            Ok(vec![taken as f64 / (PASSES * BATCH) as f64])
        }),
    };
    let mut masked = packets();
    let header_row = Row {
        name: names[2],
        columns: &["one way"],
        measure: Box::new(move || {
            time(|_| {
                for packet in &mut masked {
                    let (head, sample) = packet.split_at_mut(SAMPLE);
                    let (first, number) = head.split_at_mut(NUMBER);
                    let Some(first) = first.first_mut() else { continue };
                    let (sample, number) = (&sample[..16], &mut number[..2]);
                    header.local.header.encrypt_in_place(sample, first, number).map_err(wrong)?;
                }
                Ok(())
            })
        }),
    };
    Ok([seal_row, open_row, header_row])
}

pub(crate) fn rows() -> io::Result<Vec<Row>> {
    let aes = ["AES-128-GCM", "AES-128-GCM", "header protection, AES"];
    let mut rows: Vec<Row> = suite(TLS13_AES_128_GCM_SHA256, aes)?.into();
    let chacha = ["ChaCha20-Poly1305", "ChaCha20-Poly1305", "header protection, ChaCha20"];
    rows.extend(suite(TLS13_CHACHA20_POLY1305_SHA256, chacha)?);
    let (from, mut to) = (vec![1u8; BATCH * PAYLOAD], packets());
    rows.push(Row {
        name: "one copy of its stream data",
        columns: &["copy"],
        measure: Box::new(move || {
            time(|_| {
                for (packet, data) in to.iter_mut().zip(from.chunks_exact(PAYLOAD)) {
                    packet[HEADER..HEADER + PAYLOAD].copy_from_slice(black_box(data));
                }
                black_box(&mut to);
                Ok(())
            })
        }),
    });
    Ok(rows)
}
