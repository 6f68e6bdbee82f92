//! Compares two ways to open a packet: in place, with a copy of its data to the buffer of a stream,
//! or both in one pass (`equic_transport::crypto::PacketKey`).

use std::hint::black_box;
use std::io;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::{DATAGRAM, Row, thread_time};

/// Datagrams of a measurement: as many as in four GRO messages. Each has separate memory.
const BATCH: usize = 4 * 44;
/// A short header: one byte, a connection ID of 13, a packet number of 2.
const HEADER: usize = 16;
const TAG: usize = 16;
/// The header of a STREAM frame.
const FRAME: usize = 10;
const DATA: usize = DATAGRAM - HEADER - TAG - FRAME;
/// Size of the buffer in which received data wraps around: as many bytes as a connection keeps
/// pages for.
const PAGES: usize = 256 * 1024;

fn nonce(number: usize) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&(number as u64).to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn wrong(_: aws_lc_rs::error::Unspecified) -> io::Error {
    io::Error::other("a packet was not sealed or opened")
}

/// Returns a row for opening packets. The time of sealing them does not count.
fn row(
    name: &'static str,
    open: fn(&LessSafeKey, &mut [u8], usize, &mut [u8]) -> bool,
) -> io::Result<Row> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).map_err(wrong)?);
    let (mut datagrams, mut pages) = (vec![0; BATCH * DATAGRAM], vec![0; PAGES + FRAME + DATA]);
    let measure = move || {
        for (number, datagram) in datagrams.chunks_exact_mut(DATAGRAM).enumerate() {
            let (header, rest) = datagram.split_at_mut(HEADER);
            let (payload, tag) = rest.split_at_mut(FRAME + DATA);
            let aad = Aad::from(&*header);
            key.seal_in_place_scatter(nonce(number), aad, payload, &[], tag).map_err(wrong)?;
        }
        let start = thread_time()?;
        let mut opened = true;
        for (number, datagram) in datagrams.chunks_exact_mut(DATAGRAM).enumerate() {
            let at = number * DATA % PAGES;
            opened &= open(&key, datagram, number, &mut pages[at..at + FRAME + DATA]);
        }
        let taken = thread_time()? - start;
        if !opened {
            return Err(wrong(aws_lc_rs::error::Unspecified));
        }
        Ok(vec![taken as f64 / BATCH as f64])
    };
    Ok(Row { name, columns: &["open"], measure: Box::new(measure) })
}

fn in_place(key: &LessSafeKey, datagram: &mut [u8], number: usize, page: &mut [u8]) -> bool {
    let (header, rest) = datagram.split_at_mut(HEADER);
    let (payload, tag) = rest.split_at_mut(FRAME + DATA);
    let aad = Aad::from(&*header);
    let opened = key.open_in_place_separate_tag(nonce(number), aad, tag, payload).is_ok();
    page[FRAME..].copy_from_slice(black_box(&payload[FRAME..]));
    opened
}

fn elsewhere(key: &LessSafeKey, datagram: &mut [u8], number: usize, page: &mut [u8]) -> bool {
    let (header, rest) = datagram.split_at_mut(HEADER);
    let (payload, tag) = rest.split_at_mut(FRAME + DATA);
    // The header of the frame overwrites data that may not have been read, so it is restored.
    let mut kept = [0; FRAME];
    kept.copy_from_slice(&page[..FRAME]);
    let aad = Aad::from(&*header);
    let opened = key.open_separate_gather(nonce(number), aad, payload, tag, page);
    black_box(&page[..FRAME]);
    page[..FRAME].copy_from_slice(&kept);
    opened.is_ok()
}

pub(crate) fn rows() -> io::Result<[Row; 2]> {
    Ok([
        row("AES-128-GCM, AWS-LC, opened in place and copied", in_place)?,
        row("AES-128-GCM, AWS-LC, opened to a page", elsewhere)?,
    ])
}
