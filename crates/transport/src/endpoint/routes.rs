//! Maps connection IDs and stateless reset tokens to connections.
//!
//! Here, a *name* is anything by which a connection is found: a connection ID, a reset token, or
//! the ID and address of a client's first packets.
//!
//! The hash table of hashbrown stores only hashes and indices. All names of a connection are stored
//! together in one allocation. A `HashMap` with the names as keys would take twice the memory. So
//! would a tree, which would also cause a cache miss at each of its levels.
//!
//! The names are hashed with a secret key, so that clients, which choose some of them, cannot
//! produce collisions.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};

use equic_wire::ConnectionId;
use hashbrown::HashTable;

use super::Handle;
use crate::cid::BlindToken;

/// The kind of a name, which is what a connection is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A connection ID that packets to the connection may carry.
    Id,
    /// Destination Connection ID of a client's first packets, together with the client's address.
    First,
    /// A stateless reset token of the peer, in its blinded form.
    Token,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Id, Kind::First, Kind::Token];
}

/// Number of low bits that hold the length of a name, in the byte before the name. The higher bits
/// of this byte hold the kind of the name.
const LEN_BITS: u32 = 6;

/// Identifies a connection by its client's first packets: by their Destination Connection ID and
/// their source address. Packets with the same ID from another address begin a separate attempt
/// with its own path: either a NAT has given the client a new address, or an attacker has copied a
/// packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FirstName {
    bytes: [u8; FirstName::MAX],
    length: usize,
}

impl FirstName {
    /// Largest length of a name: a connection ID, an IPv6 address and a port.
    const MAX: usize = ConnectionId::MAX_LEN + 16 + 2;

    pub(super) fn new(id: ConnectionId, remote: SocketAddr) -> FirstName {
        let mut name = FirstName { bytes: [0; FirstName::MAX], length: 0 };
        name.push(id.as_bytes());
        match remote.ip().to_canonical() {
            IpAddr::V4(address) => name.push(&address.octets()),
            IpAddr::V6(address) => name.push(&address.octets()),
        }
        name.push(&remote.port().to_be_bytes());
        name
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// All names of one connection: connection IDs and reset tokens. Each name is stored as a byte with
/// its kind and length, followed by its bytes.
///
/// A connection has few names, so no spare capacity is reserved. They are the local IDs (at most
/// [`crate::connection::TransportConfig::connection_ids`], plus those that are being retired), the
/// client's first ID, and the reset tokens of the peer's IDs.
#[derive(Debug, Default)]
struct Names(Box<[u8]>);

impl Names {
    fn iter(&self) -> impl Iterator<Item = (Kind, &[u8])> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (tag, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(tag & ((1 << LEN_BITS) - 1)))?;
            rest = after;
            Some((*Kind::ALL.get(usize::from(tag >> LEN_BITS))?, name))
        })
    }

    fn contains(&self, kind: Kind, name: &[u8]) -> bool {
        self.iter().any(|own| own == (kind, name))
    }

    fn add(&mut self, kind: Kind, name: &[u8]) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.reserve_exact(1 + name.len());
        all.push((kind as u8) << LEN_BITS | name.len() as u8);
        all.extend_from_slice(name);
        self.0 = all.into_boxed_slice();
    }

    fn remove(&mut self, kind: Kind, name: &[u8]) {
        let before = self.iter().take_while(|own| *own != (kind, name));
        let at = before.map(|(_, other)| 1 + other.len()).sum::<usize>();
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.drain(at.min(all.len())..(at + 1 + name.len()).min(all.len()));
        self.0 = all.into_boxed_slice();
    }
}

/// Finds connections by connection IDs, by reset tokens, and by the first packets of clients.
#[derive(Default)]
pub(super) struct Routes {
    /// Hashes names with a random key, because clients choose their first IDs and could otherwise
    /// produce collisions.
    hasher: RandomState,
    table: HashTable<Slot>,
    names: Vec<Option<Names>>,
    free: Vec<usize>,
    /// Number of reset tokens of all connections. It is usually 0, and then datagrams are not
    /// checked for tokens.
    tokens: usize,
}

impl Routes {
    /// Adds a connection with its first ID. On a server, `first` is the name that the client's
    /// first packets carry.
    pub(super) fn add(&mut self, id: ConnectionId, first: Option<FirstName>) -> Handle {
        let index = self.free.pop().unwrap_or(self.names.len());
        if index == self.names.len() {
            self.names.push(None);
        }
        let handle = Handle(index);
        self.names[index] = Some(Names::default());
        self.name(handle, Kind::Id, id.as_bytes());
        if let Some(first) = first {
            self.name(handle, Kind::First, first.as_bytes());
        }
        handle
    }

    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.names.len() - self.free.len()
    }

    /// Adds a name of the connection. If two connections have the same name, the name leads to the
    /// one that added it later. Random IDs can be equal, and peers can choose equal reset tokens.
    pub(super) fn name(&mut self, handle: Handle, kind: Kind, name: &[u8]) {
        let hash = self.hash(kind, name);
        let Some(Some(names)) = self.names.get_mut(handle.0) else { return };
        names.add(kind, name);
        self.tokens += usize::from(kind == Kind::Token);
        let Routes { names, table, .. } = self;
        let own = Slot { hash, index: handle.0 as u32 };
        let is_it = |slot: &Slot| slot.index != own.index && slot.leads_to(hash, names, kind, name);
        match table.find_mut(own.spread(), is_it) {
            Some(slot) => *slot = own,
            None => {
                table.insert_unique(own.spread(), own, Slot::spread);
            }
        }
    }

    /// Removes a name of the connection.
    pub(super) fn forget(&mut self, handle: Handle, kind: Kind, name: &[u8]) {
        let hash = self.hash(kind, name);
        let Some(Some(names)) = self.names.get_mut(handle.0) else { return };
        if !names.contains(kind, name) {
            return;
        }
        names.remove(kind, name);
        self.tokens -= usize::from(kind == Kind::Token);
        self.take_out(Slot { hash, index: handle.0 as u32 });
    }

    /// Removes a connection that has ended, and frees its handle. Returns false if there is no such
    /// connection.
    pub(super) fn remove(&mut self, handle: Handle) -> bool {
        let Some(names) = self.names.get_mut(handle.0).and_then(Option::take) else {
            return false;
        };
        for (kind, name) in names.iter() {
            let hash = self.hash(kind, name);
            self.tokens -= usize::from(kind == Kind::Token);
            self.take_out(Slot { hash, index: handle.0 as u32 });
        }
        self.free.push(handle.0);
        true
    }

    /// Returns the connection that uses this ID.
    pub(super) fn by_id(&self, id: &[u8]) -> Option<Handle> {
        self.find(Kind::Id, id)
    }

    /// Returns the connection of the client that sent its first packets to this ID from this
    /// address.
    pub(super) fn by_first(&self, id: &[u8], remote: SocketAddr) -> Option<Handle> {
        let id = ConnectionId::new(id).ok()?;
        self.find(Kind::First, FirstName::new(id, remote).as_bytes())
    }

    /// Returns the connection whose peer may reset it with this token.
    pub(super) fn by_token(&self, token: &BlindToken) -> Option<Handle> {
        self.find(Kind::Token, token)
    }

    /// Returns true if any connection has a reset token.
    pub(super) fn has_tokens(&self) -> bool {
        self.tokens > 0
    }

    fn find(&self, kind: Kind, name: &[u8]) -> Option<Handle> {
        let hash = self.hash(kind, name);
        let is_it = |slot: &Slot| slot.leads_to(hash, &self.names, kind, name);
        let slot = self.table.find(spread(hash), is_it)?;
        Some(Handle(slot.index as usize))
    }

    /// Removes the entry `slot` from the hash table, if the table contains it.
    fn take_out(&mut self, slot: Slot) {
        let Ok(found) = self.table.find_entry(slot.spread(), |own| *own == slot) else { return };
        found.remove();
        // Less than a quarter of the buckets is in use: release memory.
        if self.table.len() * 4 < self.table.num_buckets() {
            self.table.shrink_to(MIN_ROUTES, Slot::spread);
        }
    }

    fn hash(&self, kind: Kind, name: &[u8]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name);
        hasher.write_u8(kind as u8);
        hasher.finish() as u32
    }

    /// Returns all names of this kind, of all connections.
    #[cfg(test)]
    pub(super) fn all(&self, kind: Kind) -> Vec<&[u8]> {
        let all = self.names.iter().flatten().flat_map(Names::iter);
        all.filter(|(own, _)| *own == kind).map(|(_, name)| name).collect()
    }

    /// Returns true if there are no connections, no table entries and no reset tokens.
    #[cfg(test)]
    pub(super) fn are_none(&self) -> bool {
        self.len() == 0 && self.table.is_empty() && self.tokens == 0
    }
}

/// An entry of the hash table. Its position follows from the hash. The hash is stored, so that it
/// need not be computed again when the table grows. Hashes can collide, so a lookup also compares
/// the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    hash: u32,
    /// Index of the connection's names in `Routes::names`.
    index: u32,
}

impl Slot {
    fn spread(&self) -> u64 {
        spread(self.hash)
    }

    /// Returns true if the connection to which this entry of the table belongs has this name.
    /// `hash` is the hash of the name.
    fn leads_to(&self, hash: u32, names: &[Option<Names>], kind: Kind, name: &[u8]) -> bool {
        let names = names.get(self.index as usize).and_then(Option::as_ref);
        self.hash == hash && names.is_some_and(|own| own.contains(kind, name))
    }
}

/// Expands a hash to the 64 bits that hashbrown expects. hashbrown takes the position of an entry
/// from the lowest bits, and a tag that it compares first from the seven highest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// Number of names for which the hash table keeps room even after it has shrunk.
const MIN_ROUTES: usize = 14;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn id(bytes: &[u8]) -> ConnectionId {
        ConnectionId::new(bytes).unwrap()
    }

    fn client(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], 4433))
    }

    /// Adds and removes random names. Every lookup must give the same result as in a `BTreeMap`.
    // RFC 9000 s.11 #3
    #[test]
    fn route_finds_all_ids_and_nothing_else() {
        let rng = &mut StdRng::seed_from_u64(1);
        let (mut routes, mut known) = (Routes::default(), BTreeMap::new());
        let mut handles = Vec::new();
        for round in 0..20_000 {
            // Names have only two bytes, so that some are equal.
            let name: [u8; 2] = rng.random();
            let kind = Kind::ALL[rng.random_range(0..3)];
            // At first, more names are added than removed; later, fewer.
            let grows = if round < 12_000 { 0.6 } else { 0.2 };
            if handles.is_empty() || rng.random_bool(0.1) && rng.random_bool(grows) {
                let mut fresh = vec![0xee; 12];
                fresh.extend_from_slice(&(round as u32).to_be_bytes());
                handles.push(routes.add(id(&fresh), None));
                known.insert((Kind::Id as u8, fresh), *handles.last().unwrap());
            } else if rng.random_bool(grows) {
                let handle = handles[rng.random_range(0..handles.len())];
                known.entry((kind as u8, name.to_vec())).or_insert_with(|| {
                    routes.name(handle, kind, &name);
                    handle
                });
            } else if rng.random_bool(0.9) {
                if let Some(((kind, name), handle)) = known.pop_first() {
                    routes.forget(handle, Kind::ALL[usize::from(kind)], &name);
                }
            } else {
                let handle = handles.swap_remove(rng.random_range(0..handles.len()));
                assert!(routes.remove(handle) && !routes.remove(handle));
                known.retain(|_, other| *other != handle);
            }
            assert_eq!(routes.find(kind, &name), known.get(&(kind as u8, name.to_vec())).copied());
            if round % 500 == 0 {
                for ((kind, name), handle) in &known {
                    assert_eq!(routes.find(Kind::ALL[usize::from(*kind)], name), Some(*handle));
                }
                assert_eq!((routes.table.len(), routes.len()), (known.len(), handles.len()));
            }
        }
        handles.into_iter().for_each(|handle| assert!(routes.remove(handle)));
        assert!(routes.are_none() && routes.table.capacity() <= MIN_ROUTES);
    }

    #[test]
    fn route_of_a_duplicate_id_is_the_later_connection() {
        let mut routes = Routes::default();
        let (one, other) = (routes.add(id(b"one"), None), routes.add(id(b"other"), None));
        let token = [7; 32];
        routes.name(one, Kind::Token, &token);
        routes.name(other, Kind::Token, &token);
        assert_eq!(routes.by_token(&token), Some(other));
        // The reset token leads to the connection that added it later, so the earlier connection
        // cannot remove it.
        routes.forget(one, Kind::Token, &token);
        assert_eq!(routes.by_token(&token), Some(other));
        assert!(routes.remove(other) && routes.by_token(&token).is_none() && !routes.has_tokens());
    }

    /// A name with the longest ID and an IPv6 address must fit. An IPv4 address and its IPv4-mapped
    /// IPv6 address must give the same name.
    #[test]
    fn route_of_first_packets_depends_on_id_address_and_port() {
        let v6 = |port| SocketAddr::from(([0xfd77, 0, 0, 0, 0, 0, 0, 9], port));
        let long = id(&[1; ConnectionId::MAX_LEN]);
        let names = [
            FirstName::new(long, v6(1)),
            FirstName::new(long, v6(2)),
            FirstName::new(long, client(1)),
            FirstName::new(id(&[1; 8]), client(1)),
            FirstName::new(id(&[1; 8]), client(2)),
        ];
        assert_eq!(names[0].length, FirstName::MAX);
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name));
        }
        let mapped = SocketAddr::new("::ffff:192.0.2.1".parse().unwrap(), 4433);
        assert_eq!(FirstName::new(long, mapped), names[2]);
    }

    #[test]
    fn route_of_an_id_depends_on_its_kind() {
        let mut routes = Routes::default();
        let first = FirstName::new(id(b"original"), client(1));
        let handle = routes.add(id(b"ours"), Some(first));
        assert_eq!(
            (routes.by_id(b"ours"), routes.by_first(b"ours", client(1))),
            (Some(handle), None)
        );
        assert_eq!(routes.by_first(b"original", client(1)), Some(handle));
        assert_eq!(routes.by_first(b"original", client(2)), None);
        assert_eq!(
            routes.by_first(&[7; 255], client(1)),
            None,
            "an ID that is too long for this version"
        );
        assert_eq!((routes.by_id(b"original"), routes.by_id(b"")), (None, None));
        routes.forget(handle, Kind::Id, b"ours");
        assert_eq!((routes.by_id(b"ours"), routes.all(Kind::First).len()), (None, 1));
        // The handle of a removed connection is used again.
        assert!(routes.remove(handle));
        assert_eq!(routes.add(id(b"ours"), None), handle);
    }

    /// Clients choose names. Which names collide must depend on a random key, which each endpoint
    /// has.
    #[test]
    fn route_hashes_are_keyed() {
        let (one, other) = (Routes::default(), Routes::default());
        let same = |name: &u8| one.hash(Kind::First, &[*name]) == other.hash(Kind::First, &[*name]);
        assert!((0..=255).filter(same).count() < 10);
    }

    /// The hash table for 10,000 connections with five IDs each must take nine bytes per entry. A
    /// table doubles when 7/8 of it is in use.
    #[test]
    fn route_table_shrinks() {
        let mut routes = Routes::default();
        for number in 0..10_000_u32 {
            let first = FirstName::new(id(&number.to_le_bytes()), client(1));
            let handle = routes.add(id(&number.to_be_bytes()), Some(first));
            for more in 1..4_u8 {
                routes.name(handle, Kind::Id, &[&number.to_be_bytes()[..], &[more]].concat());
            }
            let most = routes.table.len().max(MIN_ROUTES) * 9 * 16 / 7 + 64;
            assert!(routes.table.allocation_size() <= most);
        }
        assert_eq!(routes.table.len(), 50_000);
    }
}
