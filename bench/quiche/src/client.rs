use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bench_contract::perf::{HEAD, Received, ZEROS, request, shares};
use bench_contract::{Answer, Client, Effective, H3, OPENING, PERF, SMALL_BODY, Work};
use quiche::h3::{self, NameValue as _};
use quiche::{Config, Connection};

use crate::io::Io;
use crate::table::Table;
use crate::{CHUNK, config, random_id, text};

/// What a connection is about.
#[derive(Default)]
struct State {
    streams: HashMap<u64, Received>,
    asked: bool,
    /// It was counted.
    established: bool,
}

struct Stage<'a> {
    client: &'a Client,
    config: Config,
    table: Table<State>,
    /// Of the last connection that got one.
    session: Option<Vec<u8>>,
    buffer: Vec<u8>,
}

pub fn run(client: &Client) -> Result<()> {
    let alpn = if matches!(client.work, Work::Requests { .. }) { H3 } else { PERF };
    let mut config = config(&[alpn])?;
    config.load_verify_locations_from_file(text(&client.ca)?)?;
    config.verify_peer(true);
    let io = Io::new(bench_contract::client_socket(client.connect)?)?;
    let mut effective = Effective::new("quiche", "shared", &io.socket)?;
    (effective.gso, effective.gro) = io.offloads();
    // BoringSSL takes no list of TLS 1.3's suites, and quiche does not tell which it was.
    effective.cipher = None;
    let (table, buffer) = (Table::new(io), vec![0; CHUNK]);
    let mut stage = Stage { client, config, table, session: None, buffer };
    let answer = match client.work {
        Work::Download { bytes, streams } => stage.download(bytes, streams, effective)?,
        Work::Upload { bytes } => stage.upload(bytes, effective)?,
        Work::Handshakes { time, parallel, resume } => {
            stage.handshakes(time, parallel, resume, effective)?
        }
        Work::Requests { time, parallel } => stage.requests(time, parallel, effective)?,
        Work::Hold { count } => stage.hold(count, effective)?,
    };
    answer.print()
}

impl Stage<'_> {
    /// Begins a connection.
    fn begin(&mut self, resume: bool) -> Result<u64> {
        let (id, to) = (random_id()?, self.client.connect);
        let (name, local) = (Some(&*self.client.name), self.table.io.local);
        let mut quic = quiche::connect(name, &id, local, to, &mut self.config)?;
        if let Some(session) = self.session.as_ref().filter(|_| resume) {
            quic.set_session(session)?;
        }
        let number = self.table.insert(quic, vec![id], State::default());
        self.table.flush(number)?;
        Ok(number)
    }

    fn quic(&mut self, number: u64) -> Result<&mut Connection> {
        let entry = self.table.get(number).context("the connection was lost")?;
        if let Some(error) = entry.quic.peer_error() {
            bail!("closed by the server: {error:?}");
        }
        Ok(&mut entry.quic)
    }

    /// Opens the only connection; its number and how long that took.
    fn connect(&mut self) -> Result<(u64, f64)> {
        let start = Instant::now();
        let number = self.begin(false)?;
        while !self.quic(number)?.is_established() {
            self.turn(number)?;
        }
        Ok((number, start.elapsed().as_secs_f64()))
    }

    /// Sends what is due on the only connection, and waits for more.
    fn turn(&mut self, number: u64) -> Result<()> {
        self.table.flush(number)?;
        self.table.wait(None, false)?;
        Ok(())
    }

    /// Closes it, and has the close leave.
    fn close(&mut self, number: u64) -> Result<()> {
        if let Some(entry) = self.table.get(number) {
            // Closed before: as well.
            let _ = entry.quic.close(true, 0, b"");
        }
        self.table.flush(number)?;
        self.table.remove(number);
        Ok(())
    }

    /// Reads all streams of a connection; how many ended.
    fn read(&mut self, number: u64) -> Result<u64> {
        let Some(entry) = self.table.get(number) else { return Ok(0) };
        let (quic, streams) = (&mut entry.quic, &mut entry.state.streams);
        let mut ended = 0;
        while let Some(stream) = quic.stream_readable_next() {
            loop {
                match quic.stream_recv(stream, &mut self.buffer) {
                    Ok((len, fin)) => {
                        let received = streams.entry(stream).or_default();
                        received.take(&self.buffer[..len]);
                        if fin {
                            ended += 1;
                            break;
                        }
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(ended)
    }

    fn download(&mut self, bytes: u64, streams: u64, effective: Effective) -> Result<Answer> {
        let (number, handshake) = self.connect()?;
        let start = Instant::now();
        let mut waiting = shares(bytes, streams).enumerate().peekable();
        let mut count = 0;
        while count < streams {
            while let Some((index, share)) = waiting.peek().copied() {
                // The client's bidirectional streams (RFC 9000 s.2.1).
                match self.quic(number)?.stream_send(index as u64 * 4, &request(share), true) {
                    Ok(HEAD) => {}
                    Ok(_) => bail!("a request in pieces"),
                    Err(quiche::Error::Done | quiche::Error::StreamLimit) => break,
                    Err(error) => return Err(error.into()),
                }
                waiting.next();
            }
            self.turn(number)?;
            count += self.read(number)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let received = self.table.get(number).context("the connection was lost")?;
        let bytes = received.state.streams.values().map(|stream| stream.bytes).sum();
        self.close(number)?;
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count, resumed: None, seconds, handshake_seconds, effective })
    }

    fn upload(&mut self, bytes: u64, effective: Effective) -> Result<Answer> {
        let (number, handshake) = self.connect()?;
        let start = Instant::now();
        let sent = self.quic(number)?.stream_send(0, &request(HEAD as u64), bytes == 0)?;
        ensure!(sent == HEAD, "a request in pieces");
        let mut left = bytes;
        while self.read(number)? == 0 {
            while left > 0 {
                let len = usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len());
                let fin = len as u64 == left;
                match self.quic(number)?.stream_send(0, &ZEROS[..len], fin) {
                    Ok(count) => {
                        left -= count as u64;
                        if count < len {
                            break;
                        }
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            self.turn(number)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let entry = self.table.get(number).context("the connection was lost")?;
        let bytes = entry.state.streams.get(&0).map_or(0, Received::at_server);
        self.close(number)?;
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count: 1, resumed: None, seconds, handshake_seconds, effective })
    }

    /// Goes on with a connection that makes one small exchange; whether it was resumed, at its end.
    fn exchange(&mut self, number: u64) -> Result<Option<bool>> {
        if self.quic(number)?.is_established() {
            let entry = self.table.get(number).context("the connection was lost")?;
            if !std::mem::replace(&mut entry.state.asked, true) {
                entry.quic.stream_send(0, &request(HEAD as u64), true)?;
            }
        }
        if self.read(number)? == 0 {
            self.table.flush(number)?;
            return Ok(None);
        }
        let quic = self.quic(number)?;
        let (resumed, session) = (quic.is_resumed(), quic.session().map(<[u8]>::to_vec));
        self.session = session.or(self.session.take());
        self.close(number)?;
        Ok(Some(resumed))
    }

    fn handshakes(
        &mut self,
        time: Duration,
        parallel: usize,
        resume: bool,
        effective: Effective,
    ) -> Result<Answer> {
        // For the session.
        let first = self.begin(resume)?;
        while self.exchange(first)?.is_none() {
            self.table.wait(None, false)?;
        }
        let start = Instant::now();
        let mut open = 0;
        while open < parallel {
            self.begin(resume)?;
            open += 1;
        }
        let (mut count, mut resumed) = (0, 0);
        while open > 0 {
            for number in self.table.wait(None, false)?.touched {
                if self.table.get(number).is_none() {
                    // Its last packets.
                    continue;
                }
                let Some(was_resumed) = self.exchange(number)? else { continue };
                count += 1;
                resumed += u64::from(was_resumed);
                open -= 1;
                if start.elapsed() < time {
                    self.begin(resume)?;
                    open += 1;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let (bytes, resumed) = (count * HEAD as u64, Some(resumed));
        Ok(Answer { bytes, count, resumed, seconds, handshake_seconds: None, effective })
    }

    fn requests(
        &mut self,
        time: Duration,
        parallel: usize,
        effective: Effective,
    ) -> Result<Answer> {
        let (number, handshake) = self.connect()?;
        let mut http = h3::Connection::with_transport(self.quic(number)?, &h3::Config::new()?)?;
        let head = [
            h3::Header::new(b":method", b"GET"),
            h3::Header::new(b":scheme", b"https"),
            h3::Header::new(b":authority", self.client.name.as_bytes()),
            h3::Header::new(b":path", b"/1k"),
        ];
        let start = Instant::now();
        let mut open: HashMap<u64, usize> = HashMap::new();
        let (mut bytes, mut count) = (0, 0);
        loop {
            while open.len() < parallel && start.elapsed() < time {
                match http.send_request(self.quic(number)?, &head, true) {
                    Ok(stream) => open.insert(stream, 0),
                    Err(h3::Error::StreamBlocked | h3::Error::Done) => break,
                    Err(h3::Error::TransportError(quiche::Error::StreamLimit)) => break,
                    Err(error) => return Err(error.into()),
                };
            }
            if open.is_empty() && start.elapsed() >= time {
                break;
            }
            self.turn(number)?;
            let entry = self.table.get(number).context("the connection was lost")?;
            loop {
                match http.poll(&mut entry.quic) {
                    Ok((_, h3::Event::Headers { list, .. })) => {
                        let status = list.iter().find(|header| header.name() == b":status");
                        let good = status.is_some_and(|status| status.value() == b"200");
                        ensure!(good, "{list:?}");
                    }
                    Ok((stream, h3::Event::Data)) => {
                        while let Ok(len) =
                            http.recv_body(&mut entry.quic, stream, &mut self.buffer)
                        {
                            *open.entry(stream).or_default() += len;
                        }
                    }
                    Ok((stream, h3::Event::Finished)) => {
                        let body = open.remove(&stream).unwrap_or(0);
                        ensure!(body == SMALL_BODY, "{body} bytes");
                        bytes += body as u64;
                        count += 1;
                    }
                    Ok((_, h3::Event::Reset(code))) => bail!("reset with {code}"),
                    Ok(_) => {}
                    Err(h3::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.close(number)?;
        let handshake_seconds = Some(handshake);
        Ok(Answer { bytes, count, resumed: None, seconds, handshake_seconds, effective })
    }

    fn hold(&mut self, count: usize, effective: Effective) -> Result<Answer> {
        let start = Instant::now();
        let (mut begun, mut established) = (0, 0);
        while established < count {
            while begun < count && begun - established < OPENING {
                self.begin(false)?;
                begun += 1;
            }
            for number in self.table.wait(None, false)?.touched {
                self.table.flush(number)?;
                let entry = self.table.get(number).context("a connection was lost")?;
                if entry.quic.is_established()
                    && !std::mem::replace(&mut entry.state.established, true)
                {
                    established += 1;
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        bench_contract::held();
        loop {
            let woken = self.table.wait(None, true)?;
            for number in woken.touched {
                self.table.flush(number)?;
            }
            if woken.stdin {
                break;
            }
        }
        let open =
            self.table.entries().filter(|one| !one.quic.is_closed() && !one.quic.is_draining());
        let count = open.count() as u64;
        Ok(Answer { bytes: 0, count, resumed: None, seconds, handshake_seconds: None, effective })
    }
}
