//! The server.

use std::collections::HashMap;

use anyhow::Result;
use equic_bench_contract::perf::Request;

use crate::{CHUNK, Loop, Place, Stack};

/// Requests of all connections, by connection and stream ID.
type Requests = HashMap<u64, HashMap<u64, Request>>;

/// Serves until the process ends.
pub fn serve<S: Stack>(mut running: Loop<S>) -> Result<()> {
    let mut requests = Requests::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        running.turn(None, false)?;
        let stack = &mut running.stack;
        stack.serve_others();
        while let Some(at) = stack.poll_readable() {
            match read(stack, &mut requests, at, &mut buffer) {
                Ok(true) => answer(stack, &mut requests, at),
                Ok(false) => {}
                Err(error) => eprintln!("stream: {error:#}"),
            }
        }
        while let Some(at) = stack.poll_writable() {
            answer(stack, &mut requests, at);
        }
        while let Some(connection) = stack.poll_closed() {
            requests.remove(&connection);
        }
    }
}

/// Reads the available data of a stream. Returns true if that was all.
fn read<S: Stack>(
    stack: &mut S,
    requests: &mut Requests,
    at: Place,
    buffer: &mut [u8],
) -> Result<bool> {
    let request = requests.entry(at.0).or_default().entry(at.1).or_default();
    while let Some((count, end)) = stack.read(at, buffer)? {
        request.received(&buffer[..count]);
        if end {
            request.finished()?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes as much of the response as the stack accepts.
fn answer<S: Stack>(stack: &mut S, requests: &mut Requests, at: Place) {
    let Some(streams) = requests.get_mut(&at.0) else { return };
    let Some(request) = streams.get_mut(&at.1).filter(|request| request.is_finished()) else {
        return;
    };
    loop {
        let piece = request.next();
        let len = piece.len();
        let end = len as u64 == request.left();
        let Ok(count) = stack.write(at, piece, end) else {
            // The client does not want the rest of the response.
            streams.remove(&at.1);
            return;
        };
        request.sent(count);
        if end && count == len {
            streams.remove(&at.1);
            return;
        }
        if count < len {
            return;
        }
    }
}
