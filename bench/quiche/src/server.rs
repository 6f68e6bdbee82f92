use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use anyhow::Result;
use bench_contract::perf::{Request, ZEROS};
use bench_contract::{H3, PERF, SMALL_BODY, Server};
use quiche::h3::{self, NameValue as _};
use quiche::{Config, Connection, Header};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::io::Io;
use crate::table::{Entry, Table};
use crate::{CHUNK, config, random_id, text};

/// What goes on with a client.
#[derive(Default)]
struct State {
    streams: HashMap<u64, Request>,
    http: Option<Http>,
}

struct Http {
    connection: h3::Connection,
    answers: VecDeque<Answer>,
}

/// A response on its way.
struct Answer {
    stream: u64,
    head: bool,
    sent: usize,
}

pub fn serve(server: &Server) -> Result<()> {
    let mut config = config(&[PERF, H3])?;
    config.load_cert_chain_from_pem_file(text(&server.cert)?)?;
    config.load_priv_key_from_pem_file(text(&server.key)?)?;
    let mut key = [0; 48];
    SystemRandom::new().fill(&mut key).map_err(|_| anyhow::anyhow!("no random numbers"))?;
    config.set_ticket_key(&key)?;
    let io = Io::new(bench_contract::socket(server.listen)?)?;
    bench_contract::ready(io.local);
    let mut table = Table::<State>::new(io);
    let mut buffer = vec![0; CHUNK];
    loop {
        let woken = table.wait(None, false)?;
        let mut touched = woken.touched;
        for (mut datagram, from) in woken.initials {
            match accept(&mut table, &mut config, &mut datagram, from) {
                Ok(number) => touched.push(number),
                Err(error) => eprintln!("{from}: {error:#}"),
            }
        }
        for number in touched {
            if let Some(entry) = table.get(number)
                && let Err(error) = go_on(entry, &mut buffer)
            {
                eprintln!("connection: {error:#}");
            }
            table.flush(number)?;
        }
    }
}

fn accept(
    table: &mut Table<State>,
    config: &mut Config,
    datagram: &mut [u8],
    from: SocketAddr,
) -> Result<u64> {
    let header = Header::from_slice(datagram, quiche::MAX_CONN_ID_LEN)?;
    let to = table.io.local;
    // Another datagram of the same attempt may have come before.
    let number = match table.find(&header.dcid) {
        Some(number) => number,
        None => {
            let own = random_id()?;
            let quic = quiche::accept(&own, None, to, from, config)?;
            table.insert(quic, vec![own, header.dcid.clone().into_owned()], State::default())
        }
    };
    if let Some(entry) = table.get(number) {
        entry.quic.recv(datagram, quiche::RecvInfo { from, to })?;
    }
    Ok(number)
}

fn go_on(entry: &mut Entry<State>, buffer: &mut [u8]) -> Result<()> {
    if !entry.quic.is_established() {
        return Ok(());
    }
    let Entry { quic, state, .. } = entry;
    if quic.application_proto() == H3 {
        return http3(quic, &mut state.http);
    }
    while let Some(stream) = quic.stream_readable_next() {
        let request = state.streams.entry(stream).or_default();
        while let Ok((len, fin)) = quic.stream_recv(stream, buffer) {
            request.received(&buffer[..len]);
            if fin {
                request.finished()?;
                break;
            }
        }
        answer(quic, &mut state.streams, stream);
    }
    while let Some(stream) = quic.stream_writable_next() {
        answer(quic, &mut state.streams, stream);
    }
    Ok(())
}

/// Writes what there is room for.
fn answer(quic: &mut Connection, streams: &mut HashMap<u64, Request>, stream: u64) {
    let Some(request) = streams.get_mut(&stream).filter(|request| request.is_finished()) else {
        return;
    };
    loop {
        let piece = request.next();
        let bytes = piece.bytes();
        let (len, fin) = (bytes.len(), bytes.len() as u64 == request.left());
        match quic.stream_send(stream, bytes, fin) {
            Ok(count) => {
                request.sent(count);
                if fin && count == len {
                    streams.remove(&stream);
                    return;
                }
                if count < len {
                    return;
                }
            }
            Err(quiche::Error::Done) => return,
            Err(_) => {
                streams.remove(&stream);
                return;
            }
        }
    }
}

fn http3(quic: &mut Connection, http: &mut Option<Http>) -> Result<()> {
    let http = match http {
        Some(http) => http,
        none => none.insert(Http {
            connection: h3::Connection::with_transport(quic, &h3::Config::new()?)?,
            answers: VecDeque::new(),
        }),
    };
    loop {
        match http.connection.poll(quic) {
            Ok((stream, h3::Event::Headers { list, .. })) => {
                let path = list.iter().find(|header| header.name() == b":path");
                let found = path.is_some_and(|path| path.value() == b"/1k");
                anyhow::ensure!(found, "a request for something else");
                http.answers.push_back(Answer { stream, head: false, sent: 0 });
            }
            Ok(_) => {}
            Err(h3::Error::Done) => break,
            Err(error) => return Err(error.into()),
        }
    }
    while let Some(answer) = http.answers.front_mut() {
        if !answer.head {
            let head = [h3::Header::new(b":status", b"200")];
            match http.connection.send_response(quic, answer.stream, &head, false) {
                Ok(()) => answer.head = true,
                Err(h3::Error::StreamBlocked | h3::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let rest = &ZEROS[answer.sent..SMALL_BODY];
        match http.connection.send_body(quic, answer.stream, rest, true) {
            Ok(count) => answer.sent += count,
            Err(h3::Error::Done) => break,
            Err(error) => return Err(error.into()),
        }
        if answer.sent < SMALL_BODY {
            break;
        }
        http.answers.pop_front();
    }
    Ok(())
}
