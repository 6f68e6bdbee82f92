//! Connections on a socket, by ID and by when they are due.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;
use quiche::{Connection, ConnectionId, Header, RecvInfo, Type};

use crate::io::Io;

/// Batches that are received before their connections have their turn.
const BATCHES: usize = 8;

pub struct Table<T> {
    pub io: Io,
    entries: HashMap<u64, Entry<T>>,
    ids: HashMap<ConnectionId<'static>, u64>,
    timers: BTreeSet<(Instant, u64)>,
    touched: Vec<u64>,
    next: u64,
}

/// A connection and what goes on with it.
pub struct Entry<T> {
    pub quic: Connection,
    pub state: T,
    ids: Vec<ConnectionId<'static>>,
    due: Option<Instant>,
    touched: bool,
}

/// Why the table was woken.
#[derive(Default)]
pub struct Woken {
    /// Connections that have something to do.
    pub touched: Vec<u64>,
    /// Initials that are nobody's.
    pub initials: Vec<(Vec<u8>, SocketAddr)>,
    /// Standard input has ended.
    pub stdin: bool,
}

impl<T> Table<T> {
    pub fn new(io: Io) -> Table<T> {
        Table {
            io,
            entries: HashMap::new(),
            ids: HashMap::new(),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            next: 0,
        }
    }

    pub fn insert(&mut self, quic: Connection, ids: Vec<ConnectionId<'static>>, state: T) -> u64 {
        self.next += 1;
        for id in &ids {
            self.ids.insert(id.clone(), self.next);
        }
        let entry = Entry { quic, state, ids, due: None, touched: false };
        self.entries.insert(self.next, entry);
        self.touch(self.next);
        self.next
    }

    pub fn get(&mut self, number: u64) -> Option<&mut Entry<T>> {
        self.entries.get_mut(&number)
    }

    pub fn find(&self, id: &ConnectionId<'_>) -> Option<u64> {
        self.ids.get(id).copied()
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.values()
    }

    fn touch(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number)
            && !std::mem::replace(&mut entry.touched, true)
        {
            self.touched.push(number);
        }
    }

    /// Waits for packets and timers, at most until `limit`.
    pub fn wait(&mut self, limit: Option<Instant>, stdin: bool) -> Result<Woken> {
        let mut woken = Woken::default();
        let first = self.timers.first().map(|(due, _)| *due);
        let until = match &self.touched[..] {
            [] => first.into_iter().chain(limit).min(),
            _ => Some(Instant::now()),
        };
        woken.stdin = self.io.wait(until, stdin)?;
        self.receive(&mut woken)?;
        let now = Instant::now();
        while let Some((due, number)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.due = None;
                entry.quic.on_timeout();
            }
            self.touch(number);
        }
        woken.touched = std::mem::take(&mut self.touched);
        for number in &woken.touched {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.touched = false;
            }
        }
        Ok(woken)
    }

    fn receive(&mut self, woken: &mut Woken) -> Result<()> {
        let Table { io, entries, ids, touched, .. } = self;
        let to = io.local;
        for _ in 0..BATCHES {
            let any = io.receive(|datagram, from| {
                let Ok(header) = Header::from_slice(datagram, quiche::MAX_CONN_ID_LEN) else {
                    return;
                };
                let found = ids.get(&header.dcid).copied();
                let initial = header.ty == Type::Initial;
                let Some(number) = found else {
                    if initial {
                        woken.initials.push((datagram.to_vec(), from));
                    }
                    return;
                };
                let Some(entry) = entries.get_mut(&number) else { return };
                // What it does not understand it has dropped.
                let _ = entry.quic.recv(datagram, RecvInfo { from, to });
                if !std::mem::replace(&mut entry.touched, true) {
                    touched.push(number);
                }
            })?;
            if !any {
                break;
            }
        }
        Ok(())
    }

    /// Sends what a connection has to send, and notes when it is due; gone when it is closed.
    pub fn flush(&mut self, number: u64) -> Result<()> {
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(()) };
        let more = self.io.send(&mut entry.quic)?;
        if entry.quic.is_closed() {
            self.remove(number);
            return Ok(());
        }
        let due = entry.quic.timeout_instant();
        if due != entry.due {
            if let Some(due) = entry.due {
                self.timers.remove(&(due, number));
            }
            if let Some(due) = due {
                self.timers.insert((due, number));
            }
            entry.due = due;
        }
        if more {
            self.touch(number);
        }
        Ok(())
    }

    pub fn remove(&mut self, number: u64) -> Option<Entry<T>> {
        let entry = self.entries.remove(&number)?;
        if let Some(due) = entry.due {
            self.timers.remove(&(due, number));
        }
        for id in &entry.ids {
            self.ids.remove(id);
        }
        Some(entry)
    }
}
