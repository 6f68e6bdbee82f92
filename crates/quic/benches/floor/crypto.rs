//! Measures the cost of protecting a packet: AEAD, header protection, and one copy of its content.

use std::hint::black_box;
use std::io;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::quic::{Keys, Version};
use rustls::{CipherSuite, Error, Side};

use crate::{DATAGRAM, PAYLOAD, Row, thread_time};

/// Datagrams of a pass: as many as in a GSO batch. Each has separate memory.
const BATCH: usize = 44;
/// Number of passes over the datagrams in a measurement.
const PASSES: usize = 8;
/// A short header: first byte, connection ID of 13 bytes, packet number of 2.
pub(crate) const HEADER: usize = 16;
const TAG: usize = 16;
/// Offset of the packet number, and of the sample for header protection (RFC 9001 s.5.4.2).
pub(crate) const NUMBER: usize = 14;
pub(crate) const SAMPLE: usize = NUMBER + 4;
/// Size of a datagram that is not a whole number of AES blocks.
const UNEVEN: usize = 1452;

pub(crate) fn wrong(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Creates the keys of a library and a cipher suite for one side.
type Make<'a> = &'a dyn Fn(Side) -> io::Result<Keys>;

/// Returns the transport's packet keys for AES-128-GCM.
pub(crate) fn keys(side: Side) -> io::Result<Keys> {
    keys_of(&equic_quic::aws_lc_provider(), CipherSuite::TLS13_AES_128_GCM_SHA256, side)
}

fn keys_of(provider: &CryptoProvider, suite: CipherSuite, side: Side) -> io::Result<Keys> {
    let suite = provider.cipher_suites.iter().find(|known| known.suite() == suite);
    let suite = suite.and_then(|suite| suite.tls13()).and_then(|suite| suite.quic_suite());
    let suite = suite.ok_or_else(|| io::Error::other("the suite does not do QUIC"))?;
    // The time does not depend on the secret.
    Ok(suite.keys(&[7; 8], side, Version::V1))
}

fn packets(size: usize) -> Vec<Vec<u8>> {
    (0..BATCH).map(|index| vec![index as u8; size]).collect()
}

/// Runs all passes, and returns the nanoseconds per datagram.
fn time(mut pass: impl FnMut(u64) -> io::Result<()>) -> io::Result<Vec<f64>> {
    let start = thread_time()?;
    for round in 0..PASSES {
        pass((round * BATCH) as u64)?;
    }
    let taken = thread_time()? - start;
    Ok(vec![taken as f64 / (PASSES * BATCH) as f64])
}

/// Seals all packets in place, with numbers from `first` on.
fn seal(keys: &Keys, packets: &mut [Vec<u8>], first: u64) -> io::Result<()> {
    for (number, packet) in (first..).zip(packets) {
        seal_one(keys, packet, number)?;
    }
    Ok(())
}

/// Seals the packet of a datagram in place, without header protection.
pub(crate) fn seal_one(keys: &Keys, packet: &mut [u8], number: u64) -> io::Result<()> {
    let (header, rest) = packet.split_at_mut(HEADER);
    let (payload, tag) = rest.split_at_mut(rest.len() - TAG);
    let sealed = keys.local.packet.encrypt_in_place(number, header, payload).map_err(wrong)?;
    tag.copy_from_slice(sealed.as_ref());
    Ok(())
}

/// Returns rows for sealing and opening datagrams of `size` bytes.
fn aead(make: Make<'_>, size: usize, name: &'static str) -> io::Result<[Row; 2]> {
    let (client, server, again) = (make(Side::Client)?, make(Side::Server)?, make(Side::Client)?);
    let (mut sealed, mut plain) = (packets(size), packets(size));
    let seal_row = Row {
        name,
        columns: &["seal"],
        measure: Box::new(move || time(|first| seal(&again, &mut sealed, first))),
    };
    let open_row = Row {
        name,
        columns: &["open"],
        measure: Box::new(move || {
            // Opened packets must be sealed again. The time of sealing does not count.
            let mut taken = 0;
            for round in 0..PASSES {
                let first = (round * BATCH) as u64;
                seal(&client, &mut plain, first)?;
                let start = thread_time()?;
                for (number, packet) in (first..).zip(&mut plain) {
                    let (header, payload) = packet.split_at_mut(HEADER);
                    let key = &server.remote.packet;
                    key.decrypt_in_place(number, header, payload).map_err(wrong)?;
                }
                taken += thread_time()? - start;
            }
            Ok(vec![taken as f64 / (PASSES * BATCH) as f64])
        }),
    };
    Ok([seal_row, open_row])
}

fn header_protection(make: Make<'_>, name: &'static str) -> io::Result<Row> {
    let header = make(Side::Client)?;
    let mut masked = packets(DATAGRAM);
    Ok(Row {
        name,
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
    })
}

/// True if this build uses BoringSSL for AES-GCM in the transport's keys.
const BORINGSSL: bool = cfg!(all(feature = "boringssl", target_arch = "x86_64"));
const AES: &str = if BORINGSSL { "AES-128-GCM, BoringSSL" } else { "AES-128-GCM, AWS-LC" };
const AES_UNEVEN: &str = if BORINGSSL {
    "AES-128-GCM, BoringSSL, 1,452 bytes"
} else {
    "AES-128-GCM, AWS-LC, 1,452 bytes"
};

pub(crate) fn rows() -> io::Result<Vec<Row>> {
    let (ours, rustls) = (equic_quic::aws_lc_provider(), aws_lc_rs::default_provider());
    let aes = CipherSuite::TLS13_AES_128_GCM_SHA256;
    let chacha = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    let mut rows = Vec::new();
    rows.extend(aead(&keys, DATAGRAM, AES)?);
    rows.extend(aead(&keys, UNEVEN, AES_UNEVEN)?);
    let aws_lc = |side| keys_of(&rustls, aes, side);
    rows.extend(aead(&aws_lc, DATAGRAM, "AES-128-GCM, rustls and AWS-LC")?);
    rows.extend(aead(&aws_lc, UNEVEN, "AES-128-GCM, rustls and AWS-LC, 1,452 bytes")?);
    rows.push(header_protection(&keys, "header protection, AES")?);
    let chacha = |side| keys_of(&ours, chacha, side);
    rows.extend(aead(&chacha, DATAGRAM, "ChaCha20-Poly1305")?);
    rows.push(header_protection(&chacha, "header protection, ChaCha20")?);
    let (from, mut to) = (vec![1u8; BATCH * PAYLOAD], packets(DATAGRAM));
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
