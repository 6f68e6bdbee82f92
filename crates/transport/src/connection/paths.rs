//! All paths of a connection: a path is a pair of addresses. With multipath (RFC 10069) each path ID has one that is
//! used, its current one, and for the time of a migration others; without it there is path ID 0 alone, whose current
//! path is the active one.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Index, IndexMut};

use super::path::Path;
use super::space::PathId;
use crate::operation::Word;

/// Paths of a path ID at a time; the oldest that is of no use goes first.
pub(super) const MAX_PATHS: usize = 4;

/// Names a path of a connection; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathKey(pub u32);

impl Word for PathKey {
    fn to_word(self) -> u64 {
        self.0.to_word()
    }

    fn from_word(word: u64) -> Option<PathKey> {
        u32::from_word(word).map(PathKey)
    }
}

/// All paths; there is always an active one.
pub(super) struct Paths {
    /// In the order in which they came; at most [`MAX_PATHS`] of each path ID.
    list: Vec<Path>,
    /// Index of the active path in `list`: with several path IDs, of the current path of one of them.
    active: usize,
    next: u32,
}

impl Paths {
    pub(super) fn new(mut first: Path) -> Paths {
        first.set_current(true);
        Paths { active: 0, next: first.key().0 + 1, list: vec![first] }
    }

    /// A name for another.
    pub(super) fn next_key(&mut self) -> PathKey {
        self.next += 1;
        PathKey(self.next - 1)
    }

    /// The path of a path ID between these addresses; the current one, if there are several. Ours counts only
    /// where both are known and `strict` says so.
    pub(super) fn find(
        &self,
        id: PathId,
        remote: SocketAddr,
        local: Option<IpAddr>,
        strict: bool,
    ) -> Option<PathKey> {
        let same = |path: &&Path| {
            let ours =
                !strict || path.local().is_none() || local.is_none() || path.local() == local;
            path.id() == id && path.remote() == remote && ours
        };
        let current = self.current(id).filter(same);
        current.or_else(|| self.list.iter().find(same)).map(|path| path.key())
    }

    /// Adds a path. Returns the path that was removed to make room for it.
    ///
    /// The fallback of a path ID is never removed: otherwise a peer could make the connection forget the last validated
    /// address, by packets that seem to come from [`MAX_PATHS`] others (RFC 9000 s.9.3.2).
    pub(super) fn add(&mut self, path: Path) -> Option<Path> {
        let same = |other: &&Path| other.id() == path.id();
        let gone = if self.list.iter().filter(same).count() < MAX_PATHS {
            None
        } else {
            let removable = |path: &&Path| !path.is_current() && !path.is_fallback();
            let mut others = self.list.iter().filter(same).filter(removable);
            let useless = others.clone().find(|path| !path.is_validated() && !path.is_asking());
            let key = useless.or_else(|| others.next()).map(|path| path.key());
            key.and_then(|key| self.remove(key))
        };
        self.list.push(path);
        gone
    }

    /// Takes a path away that is not the current one of its path ID.
    pub(super) fn remove(&mut self, key: PathKey) -> Option<Path> {
        let at = self.list.iter().position(|path| path.key() == key && !path.is_current())?;
        self.active -= usize::from(at < self.active);
        Some(self.list.remove(at))
    }

    /// Takes away a path of a path ID that is not used any more, unless it is the active one; none: there are no more.
    pub(super) fn remove_of(&mut self, id: PathId) -> Option<Path> {
        let active = self.active;
        let mut found = self.list.iter().enumerate();
        let (at, _) = found.find(|(at, path)| path.id() == id && *at != active)?;
        self.active -= usize::from(at < self.active);
        Some(self.list.remove(at))
    }

    /// Makes a path the current one of its path ID, and the active one if that of the same path ID was it.
    ///
    /// If the address of the path that is left is validated, that path becomes the fallback of its path ID.
    pub(super) fn set_current(&mut self, key: PathKey) {
        let Some(at) = self.list.iter().position(|path| path.key() == key) else { return };
        let id = self.list[at].id();
        let is_proved = |path: &&Path| path.is_current() && path.is_validated();
        let left = self.list.iter().filter(|path| path.id() == id).find(is_proved);
        let fallback = left.map(|path| path.key());
        for path in self.list.iter_mut().filter(|path| path.id() == id) {
            path.set_current(path.key() == key);
            if let Some(fallback) = fallback {
                path.set_fallback(path.key() == fallback);
            }
        }
        if self.active().id() == id {
            self.active = at;
        }
    }

    /// Makes the current path of a path ID the active one.
    pub(super) fn set_active(&mut self, key: PathKey) {
        let found = self.list.iter().position(|path| path.key() == key && path.is_current());
        self.active = found.unwrap_or(self.active);
    }

    /// Returns the path to which a path ID returns if the validation of its current path fails (RFC 9000 s.9.3.2).
    pub(super) fn fallback(&self, id: PathId) -> Option<&Path> {
        self.list.iter().find(|path| path.id() == id && path.is_fallback() && !path.is_current())
    }

    /// Returns the last validated path: the active path if its address is validated, otherwise the path to which the
    /// connection returns if the validation of the active path fails. Returns `None` if there is neither.
    pub(super) fn last_validated(&self) -> Option<&Path> {
        let active = self.active();
        if active.is_validated() { Some(active) } else { self.fallback(active.id()) }
    }

    /// The current path of a path ID; none: the ID is not in use.
    pub(super) fn current(&self, id: PathId) -> Option<&Path> {
        let active = self.active();
        if active.id() == id {
            return Some(active);
        }
        self.list.iter().find(|path| path.id() == id && path.is_current())
    }

    /// As [`Paths::current`], to be changed.
    pub(super) fn current_mut(&mut self, id: PathId) -> Option<&mut Path> {
        if self.active().id() == id {
            return Some(self.active_mut());
        }
        self.list.iter_mut().find(|path| path.id() == id && path.is_current())
    }

    pub(super) fn active(&self) -> &Path {
        &self.list[self.active]
    }

    pub(super) fn active_mut(&mut self) -> &mut Path {
        &mut self.list[self.active]
    }

    /// None: it is gone.
    pub(super) fn get(&self, key: PathKey) -> Option<&Path> {
        self.list.iter().find(|path| path.key() == key)
    }

    pub(super) fn get_mut(&mut self, key: PathKey) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.key() == key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Path> + Clone {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }
}

/// For keys of paths that are known to be there: those found in the same call into the connection, in which no
/// path has been removed since. A key that was kept for later may name one that is gone: that is for
/// [`Paths::get`]. If one is gone all the same, that is a mistake of ours, at which debug builds stop; a peer's packets
/// must not stop a server, so other builds take the active path.
impl Index<PathKey> for Paths {
    type Output = Path;

    fn index(&self, key: PathKey) -> &Path {
        let found = self.get(key);
        debug_assert!(
            found.is_some(),
            "path {} was found earlier in this call, but no longer exists",
            key.0
        );
        found.unwrap_or_else(|| self.active())
    }
}

impl IndexMut<PathKey> for Paths {
    #[inline(always)]
    fn index_mut(&mut self, key: PathKey) -> &mut Path {
        let found = self.list.iter().position(|path| path.key() == key);
        debug_assert!(
            found.is_some(),
            "path {} was found earlier in this call, but no longer exists",
            key.0
        );
        &mut self.list[found.unwrap_or(self.active)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::connection::config::TransportConfig;
    use crate::connection::path::AddressOrigin;

    fn path(key: PathKey, host: u8, validated: bool) -> Path {
        let addresses = (remote(host), local(host));
        let origin = if validated { AddressOrigin::Known } else { AddressOrigin::Claimed };
        let config = TransportConfig::default();
        Path::new(Timestamp::START, key, addresses, &config, 1, origin)
    }

    const ZERO: PathId = PathId::ZERO;

    fn remote(host: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], 443))
    }

    fn local(host: u8) -> Option<IpAddr> {
        Some(IpAddr::from([198, 51, 100, host]))
    }

    /// One active path, validated, and so many others, not validated, from hosts 0, 1, 2, ...
    fn paths(others: u8) -> Paths {
        let mut paths = Paths::new(path(PathKey(0), 0, true));
        for host in 1..=others {
            let key = paths.next_key();
            assert!(paths.add(path(key, host, false)).is_none());
        }
        paths
    }

    fn keys(paths: &Paths) -> Vec<u32> {
        paths.iter().map(|path| path.key().0).collect()
    }

    #[test]
    fn path_is_found_by_its_addresses() {
        let paths = paths(2);
        assert_eq!(paths.find(ZERO, remote(2), None, true), Some(PathKey(2)));
        assert_eq!(paths.find(ZERO, remote(2), local(2), true), Some(PathKey(2)));
        assert_eq!(paths.find(ZERO, remote(2), local(1), true), None);
        assert_eq!(paths.find(ZERO, remote(2), local(1), false), Some(PathKey(2)));
        assert_eq!(paths.find(ZERO, remote(3), None, false), None);
        assert_eq!(paths.find(PathId::new(1), remote(2), None, false), None);
    }

    #[test]
    fn path_active_one_is_not_removed() {
        let mut paths = paths(2);
        paths.set_current(PathKey(2));
        assert!(paths.remove(PathKey(2)).is_none(), "it is the active one");
        assert!(paths.remove(PathKey(0)).is_some());
        assert_eq!(paths.active().key(), PathKey(2));
        assert!(paths.get(PathKey(0)).is_none() && paths.remove(PathKey(0)).is_none());
        paths.set_current(PathKey(0));
        assert_eq!(paths.active().key(), PathKey(2), "one that is gone does not become it");
    }

    #[test]
    fn path_oldest_unused_one_is_evicted() {
        let mut paths = paths(3);
        assert_eq!(paths.iter().count(), MAX_PATHS);
        // What is asked, and what is validated, may yet be of use.
        let challenge = |path: &mut Path| {
            path.ask(Timestamp::START, [1; 8], std::time::Duration::from_secs(1));
        };
        challenge(&mut paths[PathKey(1)]);
        let key = paths.next_key();
        assert_eq!(key, PathKey(4), "names are not used again");
        assert_eq!(paths.add(path(key, 4, true)).map(|gone| gone.key()), Some(PathKey(2)));
        assert_eq!(keys(&paths), [0, 1, 3, 4]);
        challenge(&mut paths[PathKey(3)]);
        // All are of use: the oldest goes that is not active.
        let key = paths.next_key();
        assert_eq!(paths.add(path(key, 5, true)).map(|gone| gone.key()), Some(PathKey(1)));
        assert_eq!(keys(&paths), [0, 3, 4, 5]);
    }

    fn fallback(paths: &Paths, id: PathId) -> Option<PathKey> {
        paths.fallback(id).map(Path::key)
    }

    fn last_validated(paths: &Paths) -> Option<PathKey> {
        paths.last_validated().map(Path::key)
    }

    #[test]
    fn path_fallback_is_the_last_validated_one_in_use() {
        let mut paths = paths(2);
        assert_eq!((fallback(&paths, ZERO), last_validated(&paths)), (None, Some(PathKey(0))));
        for unvalidated in [1, 2, 1] {
            paths.set_current(PathKey(unvalidated));
            assert_eq!(fallback(&paths, ZERO), Some(PathKey(0)));
            assert_eq!(last_validated(&paths), Some(PathKey(0)));
        }
        paths[PathKey(1)].on_proof();
        assert_eq!(last_validated(&paths), Some(PathKey(1)));
        paths.set_current(PathKey(2));
        assert_eq!(fallback(&paths, ZERO), Some(PathKey(1)), "of two, the one used last");
        assert_eq!(last_validated(&paths), Some(PathKey(1)));
        // A path that was validated and never used is no fallback.
        let key = paths.next_key();
        paths.add(path(key, 7, true));
        assert_eq!(fallback(&paths, ZERO), Some(PathKey(1)));
        paths.set_current(PathKey(1));
        assert_eq!((fallback(&paths, ZERO), last_validated(&paths)), (None, Some(PathKey(1))));
    }

    #[test]
    fn path_fallback_is_not_evicted() {
        let mut paths = paths(0);
        for host in 1..=50 {
            let key = paths.next_key();
            let mut new = path(key, host, false);
            new.ask(Timestamp::START, [host; 8], std::time::Duration::from_secs(1));
            paths.add(new);
            paths.set_current(key);
            assert_eq!(fallback(&paths, ZERO), Some(PathKey(0)), "after {host}");
            assert!(paths.iter().count() <= MAX_PATHS);
        }
    }

    #[test]
    fn path_of_each_path_id_is_current() {
        let mut paths = paths(0);
        let one = PathId::new(1);
        for host in [1, 0] {
            let key = paths.next_key();
            let mut path = path(key, host, true);
            path.set_id(one);
            assert!(paths.add(path).is_none());
        }
        paths.set_current(PathKey(2));
        assert_eq!(paths.active().key(), PathKey(0), "it is of another path ID");
        assert_eq!(paths.current(one).map(Path::key), Some(PathKey(2)));
        assert_eq!(paths.current(ZERO).map(Path::key), Some(PathKey(0)));
        assert_eq!(paths.find(one, remote(0), None, true), Some(PathKey(2)), "the same addresses");
        assert_eq!((fallback(&paths, one), fallback(&paths, ZERO)), (None, None));
        paths.set_current(PathKey(1));
        assert_eq!((fallback(&paths, one), fallback(&paths, ZERO)), (Some(PathKey(2)), None));
        paths.set_current(PathKey(2));
        assert!(paths.remove_of(ZERO).is_none(), "it is active");
        paths.set_active(PathKey(1));
        assert_eq!(paths.active().key(), PathKey(0), "it is not the current one");
        paths.set_active(PathKey(2));
        assert_eq!(paths.remove_of(ZERO).map(|path| path.key()), Some(PathKey(0)));
        assert_eq!(paths.active().key(), PathKey(2));
        paths.set_current(PathKey(1));
        assert_eq!(paths.active().key(), PathKey(1), "of the same path ID");
    }
}
