//! The client's workloads, except those of HTTP/3.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use equic_bench_contract::perf::{HEAD, Received, pattern, request, shares};
use equic_bench_contract::{
    Answer, BULK, Effective, FirstByte, SMALL_EXCHANGE, Work, held, unsupported,
};

use crate::{CHUNK, Loop, Place, Stack};

/// A client that runs a workload.
struct ConnectionStage<S> {
    running: Loop<S>,
    /// Data received on streams that have not ended.
    streams: HashMap<Place, Received>,
    buffer: Vec<u8>,
}

/// Runs the workload of the client.
pub fn run<S: Stack>(running: Loop<S>, work: Work, mut effective: Effective) -> Result<Answer> {
    let mut stage = ConnectionStage { running, streams: HashMap::new(), buffer: vec![0; CHUNK] };
    let seen = &mut effective;
    let answer = match work {
        Work::Download { bytes, streams, connections } => {
            stage.download(bytes, streams, connections, seen)?
        }
        Work::Upload { bytes } => stage.upload(bytes, seen)?,
        Work::Handshakes { time, parallel, resume } => {
            stage.handshakes(time, parallel, resume, seen)?
        }
        Work::FirstByte { time } => stage.first_byte(time, seen)?,
        Work::Loaded { time } => stage.loaded(time, seen)?,
        Work::Hold { count } => stage.hold(count, seen)?,
        Work::Requests { .. } => unsupported("requests"),
    };
    Ok(Answer { effective, ..answer })
}

impl<S: Stack> ConnectionStage<S> {
    fn stack(&mut self) -> &mut S {
        &mut self.running.stack
    }

    fn turn(&mut self) -> Result<()> {
        self.running.turn(None, false).map(drop)
    }

    /// Requests this number of bytes on a new stream. Returns false if no stream can be opened now.
    fn ask(&mut self, connection: u64, wanted: u64) -> Result<bool> {
        Ok(self.request(connection, wanted)?.is_some())
    }

    /// Like [`ConnectionStage::ask`], but returns the stream, or `None` if no stream can be opened
    /// now.
    fn request(&mut self, connection: u64, wanted: u64) -> Result<Option<Place>> {
        let Some(stream) = self.stack().open(connection)? else { return Ok(None) };
        let head = Bytes::copy_from_slice(&request(wanted));
        let sent = self.stack().write((connection, stream), head, true)?;
        ensure!(sent == HEAD, "the QUIC stack accepted only a part of a request");
        self.streams.insert((connection, stream), Received::default());
        Ok(Some((connection, stream)))
    }

    /// Reads the available data of a stream. Returns all of its data once the stream has ended.
    fn read(&mut self, at: Place) -> Result<Option<Received>> {
        let ConnectionStage { running, streams, buffer } = self;
        while let Some((count, end)) = running.stack.read(at, buffer)? {
            let received = streams.entry(at).or_default();
            received.take(&buffer[..count]);
            if end {
                received.finish();
                return Ok(streams.remove(&at));
            }
        }
        Ok(None)
    }

    fn download(
        &mut self,
        bytes: u64,
        streams: u64,
        connections: u64,
        effective: &mut Effective,
    ) -> Result<Answer> {
        let start = Instant::now();
        let open = self.running.connect_all(usize::try_from(connections)?)?;
        let handshake_seconds = (connections == 1).then(|| start.elapsed().as_secs_f64());
        let start = Instant::now();
        let asked = open.iter().zip(shares(bytes, connections));
        let asked = asked.flat_map(|(at, share)| shares(share, streams).map(move |one| (*at, one)));
        let mut waiting: VecDeque<(u64, u64)> = asked.collect();
        let wanted = waiting.len() as u64;
        let (mut bytes, mut count) = (0, 0);
        while count < wanted {
            for _ in 0..waiting.len() {
                let Some((connection, share)) = waiting.pop_front() else { break };
                if !self.ask(connection, share)? {
                    waiting.push_back((connection, share));
                }
            }
            self.turn()?;
            while let Some(at) = self.stack().poll_readable() {
                if let Some(received) = self.read(at)? {
                    bytes += received.bytes;
                    count += 1;
                }
            }
            if let Some(connection) = self.stack().poll_closed() {
                bail!("connection {connection} was lost");
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.running.close_all(&open, effective)?;
        Ok(Answer { bytes, count, seconds, handshake_seconds, ..Answer::default() })
    }

    fn upload(&mut self, bytes: u64, effective: &mut Effective) -> Result<Answer> {
        let start = Instant::now();
        let open = self.running.connect_all(1)?;
        let handshake_seconds = Some(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let connection = open[0];
        let stream = self.stack().open(connection)?;
        let at = (connection, stream.unwrap_or_default());
        let head = Bytes::copy_from_slice(&request(HEAD as u64));
        let mut sent = self.stack().write(at, head, bytes == 0)? as u64;
        ensure!(
            stream.is_some() && sent == HEAD as u64,
            "the QUIC stack did not accept a whole request at once"
        );
        let all = bytes + HEAD as u64;
        let received = 'all: loop {
            while sent < all {
                let piece = pattern(sent - HEAD as u64, all - sent);
                let len = piece.len();
                let count = self.stack().write(at, piece, sent + len as u64 == all)?;
                sent += count as u64;
                if count < len {
                    break;
                }
            }
            self.turn()?;
            // These events are not needed, because each turn tries to write.
            while self.stack().poll_writable().is_some() {}
            while let Some(readable) = self.stack().poll_readable() {
                if let Some(received) = self.read(readable)? {
                    break 'all received;
                }
            }
            self.running.must_be_open(connection)?;
        };
        let seconds = start.elapsed().as_secs_f64();
        self.running.close_all(&open, effective)?;
        let bytes = received.at_server();
        Ok(Answer { bytes, count: 1, seconds, handshake_seconds, ..Answer::default() })
    }

    /// Runs one small exchange on each of the connections until one exchange is complete. Returns
    /// that connection and the received data.
    fn exchange(&mut self, opening: &mut Vec<u64>, wanted: u64) -> Result<(u64, Received)> {
        loop {
            let mut index = 0;
            while let Some(connection) = opening.get(index).copied() {
                if self.stack().is_established(connection) {
                    ensure!(self.ask(connection, wanted)?, "cannot open a stream");
                    opening.swap_remove(index);
                } else {
                    self.running.must_be_open(connection)?;
                    index += 1;
                }
            }
            while let Some(at) = self.stack().poll_readable() {
                if let Some(received) = self.read(at)? {
                    return Ok((at.0, received));
                }
            }
            while let Some(connection) = self.stack().poll_closed() {
                let lost = self.streams.keys().any(|at| at.0 == connection);
                ensure!(!lost, "a connection was lost");
            }
            self.turn()?;
        }
    }

    fn handshakes(
        &mut self,
        time: Duration,
        parallel: usize,
        resume: bool,
        effective: &mut Effective,
    ) -> Result<Answer> {
        // The first exchange gets a session ticket.
        let mut opening = vec![self.stack().connect(resume)?];
        let (first, _) = self.exchange(&mut opening, HEAD as u64)?;
        self.running.close_all(&[first], effective)?;
        let start = Instant::now();
        for _ in 0..parallel {
            opening.push(self.stack().connect(resume)?);
        }
        let (mut bytes, mut count, mut resumed, mut open) = (0, 0, 0, parallel);
        while open > 0 {
            let (connection, received) = self.exchange(&mut opening, HEAD as u64)?;
            bytes += received.bytes;
            count += 1;
            resumed += u64::from(self.stack().is_resumed(connection));
            self.stack().close(connection);
            open -= 1;
            if start.elapsed() < time {
                opening.push(self.stack().connect(resume)?);
                open += 1;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.running.flush()?;
        Ok(Answer { bytes, count, resumed: Some(resumed), seconds, ..Answer::default() })
    }

    fn first_byte(&mut self, time: Duration, effective: &mut Effective) -> Result<Answer> {
        let mut opening = vec![self.stack().connect(false)?];
        let (first, _) = self.exchange(&mut opening, 1)?;
        self.running.close_all(&[first], effective)?;
        let mut times = Vec::new();
        let mut bytes = 0;
        let start = Instant::now();
        while start.elapsed() < time {
            let begun = Instant::now();
            opening.push(self.stack().connect(false)?);
            let (connection, received) = self.exchange(&mut opening, 1)?;
            times.push(begun.elapsed().as_secs_f64());
            bytes += received.bytes;
            self.stack().close(connection);
            self.running.flush()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let count = times.len() as u64;
        let first_byte_seconds = FirstByte::of(times);
        Ok(Answer { bytes, count, seconds, first_byte_seconds, ..Answer::default() })
    }

    fn loaded(&mut self, time: Duration, effective: &mut Effective) -> Result<Answer> {
        let start = Instant::now();
        let open = self.running.connect_all(1)?;
        let handshake_seconds = Some(start.elapsed().as_secs_f64());
        let connection = open[0];
        let unloaded = self.exchanges(connection, time)?;
        let bulk = self.request(connection, BULK)?.context("cannot open a stream")?;
        // The bulk download requests more than can arrive, so the stream is still open at the end.
        let bytes = |stage: &Self| stage.streams.get(&bulk).map_or(0, |bulk| bulk.bytes);
        while bytes(self) == 0 {
            self.turn()?;
            while let Some(at) = self.stack().poll_readable() {
                self.read(at)?;
            }
            self.running.must_be_open(connection)?;
        }
        let before = bytes(self);
        let start = Instant::now();
        let loaded = self.exchanges(connection, time)?;
        let seconds = start.elapsed().as_secs_f64();
        let bulk_bytes =
            bytes(self).checked_sub(before).context("the bulk download ended too early")?;
        if let Some(bulk) = self.streams.get(&bulk) {
            bulk.finish();
        }
        self.running.close_all(&open, effective)?;
        Ok(Answer { handshake_seconds, ..Answer::of_loaded(unloaded, loaded, bulk_bytes, seconds) })
    }

    /// Returns the durations of exchanges one after the other, from the opening of a stream to its
    /// end. Also reads the other streams in the meantime.
    fn exchanges(&mut self, connection: u64, time: Duration) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let begun = Instant::now();
            let stream =
                self.request(connection, SMALL_EXCHANGE)?.context("cannot open a stream")?;
            while self.streams.contains_key(&stream) {
                self.turn()?;
                while let Some(at) = self.stack().poll_readable() {
                    let Some(received) = self.read(at)?.filter(|_| at == stream) else { continue };
                    times.push(begun.elapsed().as_secs_f64());
                    let bytes = received.bytes;
                    ensure!(
                        bytes == SMALL_EXCHANGE,
                        "a small exchange had {bytes} bytes instead of {SMALL_EXCHANGE}"
                    );
                }
                self.running.must_be_open(connection)?;
            }
        }
        Ok(times)
    }

    fn hold(&mut self, count: usize, effective: &mut Effective) -> Result<Answer> {
        let start = Instant::now();
        let connections = self.running.connect_all(count)?;
        let seconds = start.elapsed().as_secs_f64();
        if let Some(first) = connections.first() {
            self.stack().observe(*first, effective);
        }
        held()?;
        while !self.running.turn(None, true)? {}
        let open = connections.into_iter().filter(|one| self.running.stack.is_open(*one));
        Ok(Answer { count: open.count() as u64, seconds, ..Answer::default() })
    }
}
