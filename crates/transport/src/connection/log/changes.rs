//! Detection of states that have changed since they were last logged.

use std::collections::{BTreeMap, BTreeSet};

use equic_wire::frame::Frame;
use equic_wire::packet::{PacketType, Versions};
use equic_wire::{ConnectionId, KnownVersion, Side, StreamId, Version};

use super::Log;
use super::paths::{self, KnownPath};
use crate::Timestamp;
use crate::connection::Connection;
use crate::connection::close::Closing;
use crate::connection::paths::PathKey;
use crate::connection::space::SpaceId;
use crate::qlog::{EventKind, Form, Initiator, KeyChange, KeyLevel, Packet, StreamPart};
use crate::stream::{ReceiveState, SendState};

/// State of the connection as last logged.
#[derive(Default)]
pub(super) struct Known {
    state: Option<&'static str>,
    version: Option<KnownVersion>,
    /// True if the Initial and Handshake keys are available.
    keys: [bool; 2],
    /// Number of key updates, if 1-RTT keys are available.
    phase: Option<u64>,
    told_tls: bool,
    spin: bool,
    /// Our connection ID to which the peer sends.
    local_id: Option<ConnectionId>,
    /// Our new connection ID to which the peer has begun to send.
    next_local_id: Option<(PathKey, ConnectionId)>,
    pub timers: [Option<Timestamp>; 3],
    pub paths: Vec<KnownPath>,
    pub active: Option<PathKey>,
    /// Last migration state of the active path.
    pub migration: Option<&'static str>,
    /// States of the sending and receiving parts of open streams.
    streams: BTreeMap<StreamId, Parts>,
    /// Streams whose states may have changed. It has at most as many entries as there are streams.
    touched: BTreeSet<StreamId>,
}

type Parts = [Option<&'static str>; 2];

impl Known {
    pub(super) fn touch(&mut self, id: StreamId) {
        self.touched.insert(id);
    }

    fn touch_all(&mut self, packet: &Packet<'_>) {
        for frame in packet.frames() {
            match frame {
                Frame::Stream(stream) => self.touch(stream.stream_id()),
                Frame::ResetStream(reset) => self.touch(reset.stream_id),
                Frame::StopSending(stop) => self.touch(stop.stream_id),
                _ => {}
            }
        }
    }

    pub(super) fn received(&mut self, key: PathKey, packet: &Packet<'_>) {
        self.touch_all(packet);
        if packet.header.packet_type == PacketType::OneRtt {
            self.next_local_id = Some((key, packet.header.dcid));
        }
    }

    pub(super) fn path(&mut self, key: PathKey) -> Option<&mut KnownPath> {
        self.paths.iter_mut().find(|path| path.key == key)
    }
}

/// Logs the changes of state that a sent packet shows.
pub(super) fn sent(log: &mut Log, key: PathKey, packet: &Packet<'_>) {
    log.known.touch_all(packet);
    let new = packet.header.dcid;
    if let Some(path) = log.known.path(key)
        && let Some(old) = path.remote_id.replace(new)
        && old != new
    {
        let initiator = Initiator::Remote;
        log.emit(key, EventKind::ConnectionIdUpdated { initiator, old, new });
    }
    if let Form::Short { spin, .. } = packet.header.form
        && spin != log.known.spin
    {
        log.known.spin = spin;
        log.emit(key, EventKind::SpinBitUpdated(spin));
    }
}

pub(super) fn all(connection: &Connection, log: &mut Log) {
    log.sending.clear();
    version(connection, log);
    tls(connection, log);
    keys(connection, log, Initiator::Remote);
    state(connection, log);
    paths::all(connection, log);
    if let Some((key, new)) = log.known.next_local_id.take()
        && let Some(old) = log.known.local_id.replace(new)
        && old != new
    {
        let initiator = Initiator::Local;
        log.emit(key, EventKind::ConnectionIdUpdated { initiator, old, new });
    }
    streams(connection, log);
}

/// Logs the version in use if it differs from the one last logged.
pub(super) fn version(connection: &Connection, log: &mut Log) {
    let chosen = connection.version;
    if log.known.version != Some(chosen) {
        versions(connection, log, None, Some(chosen));
    }
}

/// Logs the server's versions from a Version Negotiation packet.
pub(super) fn negotiated(
    connection: &Connection,
    log: &mut Log,
    theirs: Versions<'_>,
    chosen: Option<KnownVersion>,
) {
    versions(connection, log, Some(theirs), chosen);
}

fn versions(
    connection: &Connection,
    log: &mut Log,
    theirs: Option<Versions<'_>>,
    chosen: Option<KnownVersion>,
) {
    // Without a common version, the version in use does not change.
    log.known.version = chosen.or(log.known.version);
    let ours: Vec<Version> = connection.start.spoken().map(Version::from).collect();
    let (client, chosen) = (connection.side == Side::Client, chosen.map(Version::from));
    let kind = EventKind::VersionInformation { ours: &ours, client, theirs, chosen };
    log.emit(connection.path().key(), kind);
}

fn tls(connection: &Connection, log: &mut Log) {
    if log.known.told_tls || !connection.handshake.is_complete() {
        return;
    }
    log.known.told_tls = true;
    let key = connection.path().key();
    if let Some(alpn) = connection.alpn() {
        log.emit(key, EventKind::AlpnInformation(alpn));
    }
    if let Some(name) = connection.handshake.tls().cipher_suite() {
        // The qlog draft uses the name without the prefix of TLS 1.3.
        log.emit(key, EventKind::CipherSelected(name.trim_start_matches("TLS13_")));
    }
}

/// Logs changes of keys. `updater` is the end that initiated a key update.
pub(super) fn keys(connection: &Connection, log: &mut Log, updater: Initiator) {
    let key = connection.path().key();
    let both = |log: &mut Log, level, phase, trigger, discarded: bool| {
        for client in [true, false] {
            let change = KeyChange { level, client, phase, trigger };
            let kind = if discarded {
                EventKind::KeyDiscarded(change)
            } else {
                EventKind::KeyUpdated(change)
            };
            log.emit(key, kind);
        }
    };
    let levels = [(SpaceId::Initial, KeyLevel::Initial), (SpaceId::Handshake, KeyLevel::Handshake)];
    for (index, (id, level)) in levels.into_iter().enumerate() {
        let there = connection.keys.has(id);
        if std::mem::replace(&mut log.known.keys[index], there) != there {
            both(log, level, None, None, !there);
        }
    }
    let phase = connection.keys.one_rtt().map(|keys| keys.updates());
    let before = std::mem::replace(&mut log.known.phase, phase);
    if phase != before {
        let trigger = before.map(|_| updater);
        both(log, KeyLevel::OneRtt, phase, trigger, false);
    }
}

pub(super) fn state(connection: &Connection, log: &mut Log) {
    let new = match connection.closing {
        Closing::Telling { .. } => "closing",
        Closing::Draining { .. } => "draining",
        Closing::Drained => "closed",
        Closing::Open if connection.handshake.is_confirmed() => "handshake_confirmed",
        Closing::Open if connection.handshake.is_complete() => "handshake_complete",
        Closing::Open if connection.keys.has(SpaceId::Handshake) => "handshake_started",
        Closing::Open => "attempted",
    };
    let old = log.known.state.replace(new);
    if old != Some(new) {
        log.emit(connection.path().key(), EventKind::ConnectionStateUpdated { old, new });
    }
}

fn streams(connection: &Connection, log: &mut Log) {
    let (key, known) = (connection.path().key(), &mut log.known);
    if known.streams.len() > connection.streams.len() {
        // Some streams were removed without a frame.
        known.touched.extend(known.streams.keys().copied());
    }
    for id in std::mem::take(&mut log.known.touched) {
        let states = connection.streams.states(id);
        let new: Parts = match states {
            Some((send, receive)) => [send.map(sending), receive.map(receiving)],
            // The stream is closed, or it never existed and the peer sent an arbitrary ID.
            None => [None; 2],
        };
        let waits = states.and_then(|(_, receive)| receive);
        if matches!(waits, Some(ReceiveState::DataReceived | ReceiveState::ResetReceived)) {
            // The next change is the application's read, of which the connection is not notified.
            log.known.touch(id);
        }
        let old = match states {
            Some(_) => log.known.streams.insert(id, new),
            None => log.known.streams.remove(&id),
        }
        .unwrap_or_default();
        for (part, index) in [(StreamPart::Sending, 0), (StreamPart::Receiving, 1)] {
            let (old, new) = (old[index], new[index].or(old[index].map(|_| "destroyed")));
            if let Some(new) = new.filter(|new| old != Some(new)) {
                log.emit(key, EventKind::StreamStateUpdated { id, part, old, new });
            }
        }
    }
}

fn sending(state: SendState) -> &'static str {
    match state {
        SendState::Send => "send",
        SendState::DataSent => "data_sent",
        SendState::DataReceived => "data_received",
        SendState::ResetSent => "reset_sent",
        SendState::ResetReceived => "reset_received",
    }
}

fn receiving(state: ReceiveState) -> &'static str {
    match state {
        ReceiveState::Receive => "receive",
        ReceiveState::SizeKnown => "size_known",
        ReceiveState::DataReceived => "data_received",
        ReceiveState::DataRead => "data_read",
        ReceiveState::ResetReceived => "reset_received",
        ReceiveState::ResetRead => "reset_read",
    }
}
