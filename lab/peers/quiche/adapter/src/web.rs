//! HTTP/3.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use bench_udp_loop::{CHUNK, Loop, Place, Stack as _};
use bytes::Bytes;
use equic_bench_contract::http3::size;
use equic_bench_contract::perf::{Check, pattern_bytes, shares};
use equic_bench_contract::{Answer, Client, Effective, SMALL_BODY, Work, unsupported};
use quiche::h3::{self, NameValue as _};

use crate::stack::{Connection, Table};

/// HTTP/3 of a connection at the server.
pub struct Answers {
    http: h3::Connection,
    open: VecDeque<Response>,
}

/// A response that is not sent completely yet.
struct Response {
    stream: u64,
    wanted: u64,
    head: bool,
    sent: u64,
}

impl Answers {
    /// Reads requests and answers them, as far as the send buffer permits.
    pub fn go_on(answers: &mut Option<Answers>, quic: &mut Connection) -> Result<()> {
        let Answers { http, open } = match answers {
            Some(answers) => answers,
            none => none.insert(Answers {
                http: h3::Connection::with_transport(quic, &h3::Config::new()?)?,
                open: VecDeque::new(),
            }),
        };
        loop {
            match http.poll(quic) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let path = list.iter().find(|header| header.name() == b":path");
                    let path = path.and_then(|path| str::from_utf8(path.value()).ok());
                    let Some(wanted) = path.and_then(size) else {
                        bail!("the path of the request is unknown");
                    };
                    open.push_back(Response { stream, wanted, head: false, sent: 0 });
                }
                Ok(_) => {}
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        for _ in 0..open.len() {
            let Some(mut response) = open.pop_front() else { break };
            if !response.write(http, quic)? {
                open.push_back(response);
            }
        }
        Ok(())
    }
}

impl Response {
    /// Writes as much of the open responses as possible. Returns true if that was everything.
    fn write(&mut self, http: &mut h3::Connection, quic: &mut Connection) -> Result<bool> {
        if !self.head {
            let head = [h3::Header::new(b":status", b"200")];
            match http.send_response(quic, self.stream, &head, self.wanted == 0) {
                Ok(()) => self.head = true,
                Err(h3::Error::StreamBlocked | h3::Error::Done) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        while self.sent < self.wanted {
            let piece = pattern_bytes(self.sent, self.wanted - self.sent);
            let end = self.sent + piece.len() as u64 == self.wanted;
            let mut piece = Bytes::from_static(piece);
            match http.send_body_zc(quic, self.stream, &mut piece, end) {
                Ok(count) => self.sent += count as u64,
                Err(h3::Error::Done) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// A pending fetch: index of the connection, and number of bytes.
type Job = (usize, u64);

/// HTTP/3 of all connections at the client.
struct Web<'a> {
    running: Loop<Table>,
    client: &'a Client,
    connections: Vec<(u64, h3::Connection)>,
    open: HashMap<Place, (u64, Check)>,
    buffer: Vec<u8>,
}

/// Runs a workload over HTTP/3.
pub fn run(mut running: Loop<Table>, client: &Client, mut effective: Effective) -> Result<Answer> {
    let count = match client.work {
        Work::Download { connections, .. } => usize::try_from(connections)?,
        _ => 1,
    };
    let start = Instant::now();
    let numbers = running.connect_all(count)?;
    let handshake_seconds = (count == 1).then(|| start.elapsed().as_secs_f64());
    let mut connections = Vec::new();
    for number in &numbers {
        let quic = &mut running.stack.get(*number)?.quic;
        connections.push((*number, h3::Connection::with_transport(quic, &h3::Config::new()?)?));
    }
    let (open, buffer) = (HashMap::new(), vec![0; CHUNK]);
    let mut web = Web { running, client, connections, open, buffer };
    let start = Instant::now();
    let (bytes, count) = match client.work {
        Work::Download { bytes, streams, connections } => {
            let jobs = shares(bytes, connections).enumerate();
            let jobs =
                jobs.flat_map(|(at, share)| shares(share, streams).map(move |one| (at, one)));
            let mut jobs: VecDeque<Job> = jobs.collect();
            web.fetch_all(&mut jobs, |_| None)?
        }
        Work::Requests { time, parallel } => {
            let another =
                move |open| (open < parallel && start.elapsed() < time).then_some((0, SMALL_BODY));
            web.fetch_all(&mut VecDeque::new(), another)?
        }
        _ => unsupported("the requested workload over HTTP/3"),
    };
    let seconds = start.elapsed().as_secs_f64();
    web.running.close_all(&numbers, &mut effective)?;
    Ok(Answer { bytes, count, seconds, handshake_seconds, effective, ..Answer::default() })
}

impl Web<'_> {
    /// Runs the listed jobs. `another` gets the number of open requests and may return one more
    /// job. Returns the sums of bytes and completions.
    fn fetch_all(
        &mut self,
        jobs: &mut VecDeque<Job>,
        another: impl Fn(usize) -> Option<Job>,
    ) -> Result<(u64, u64)> {
        let (mut bytes, mut count) = (0, 0);
        loop {
            while let Some(job) = jobs.pop_front().or_else(|| another(self.open.len())) {
                if !self.ask(job)? {
                    jobs.push_front(job);
                    break;
                }
            }
            if self.open.is_empty() && jobs.is_empty() {
                return Ok((bytes, count));
            }
            self.running.turn(None, false)?;
            // `read` polls HTTP/3, which finds the readable streams itself.
            for index in 0..self.connections.len() {
                let (more, done) = self.read(index)?;
                bytes += more;
                count += done;
            }
            while self.running.stack.poll_closed().is_some() {}
        }
    }

    /// Sends a request. Returns false if no stream can be opened now.
    fn ask(&mut self, (index, wanted): Job) -> Result<bool> {
        let (number, http) = &mut self.connections[index];
        let quic = &mut self.running.stack.get(*number)?.quic;
        let requests = matches!(self.client.work, Work::Requests { .. });
        let path = if requests { "/1k".to_owned() } else { format!("/{wanted}") };
        let head = [
            h3::Header::new(b":method", b"GET"),
            h3::Header::new(b":scheme", b"https"),
            h3::Header::new(b":authority", self.client.name.as_bytes()),
            h3::Header::new(b":path", path.as_bytes()),
        ];
        match http.send_request(quic, &head, true) {
            Ok(stream) => {
                self.open.insert((*number, stream), (wanted, Check::default()));
                Ok(true)
            }
            Err(h3::Error::StreamBlocked | h3::Error::Done) => Ok(false),
            Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the available data of a connection. Returns bytes and completions.
    fn read(&mut self, index: usize) -> Result<(u64, u64)> {
        let (number, http) = &mut self.connections[index];
        self.running.must_be_open(*number)?;
        let quic = &mut self.running.stack.get(*number)?.quic;
        let (mut bytes, mut count) = (0, 0);
        loop {
            match http.poll(quic) {
                Ok((_, h3::Event::Headers { list, .. })) => {
                    let status = list.iter().find(|header| header.name() == b":status");
                    let good = status.is_some_and(|status| status.value() == b"200");
                    ensure!(good, "the server did not answer 200: {list:?}");
                }
                Ok((stream, h3::Event::Data)) => {
                    let Some((_, check)) = self.open.get_mut(&(*number, stream)) else {
                        bail!("received data on a stream that has no request");
                    };
                    while let Ok(len) = http.recv_body(quic, stream, &mut self.buffer) {
                        check.take(&self.buffer[..len]);
                    }
                }
                Ok((stream, h3::Event::Finished)) => {
                    let Some((wanted, check)) = self.open.remove(&(*number, stream)) else {
                        bail!("a stream ended before a request was received on it");
                    };
                    check.finish();
                    ensure!(
                        check.bytes() == wanted,
                        "received {} bytes instead of {wanted}",
                        check.bytes()
                    );
                    bytes += wanted;
                    count += 1;
                }
                Ok((_, h3::Event::Reset(code))) => {
                    bail!("the server reset a stream with error code {code}")
                }
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok((bytes, count)),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
