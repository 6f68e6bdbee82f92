//! All paths of a connection. A path is a pair of addresses. With multipath (RFC 10069), each path
//! ID has a current path, and more paths during a migration. Without multipath, only path ID 0
//! exists, and its current path is the active one.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Index, IndexMut};

use super::path::Path;
use super::space::PathId;
use crate::operation::Word;

/// Maximum number of paths of a path ID. When it is exceeded, the oldest path that is not needed is
/// removed.
pub(super) const MAX_PATHS: usize = 4;

/// Key of a path of a connection. Keys are never reused.
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

/// All paths. One of them is always active.
pub(super) struct Paths {
    /// Paths in order of creation; at most [`MAX_PATHS`] of each path ID.
    list: Vec<Path>,
    /// Index of the active path in `list`. With several path IDs, it is the current path of one of
    /// them.
    active: usize,
    next: u32,
}

impl Paths {
    pub(super) fn new(mut first: Path) -> Paths {
        first.set_current(true);
        Paths { active: 0, next: first.key().0 + 1, list: vec![first] }
    }

    /// Returns the key for a new path.
    pub(super) fn next_key(&mut self) -> PathKey {
        self.next += 1;
        PathKey(self.next - 1)
    }

    /// Returns the path of a path ID between these addresses, preferably the current one. Our
    /// address is compared only if `strict` is true and both addresses are known.
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
    /// The fallback of a path ID is never removed. Otherwise a peer could make the connection
    /// forget the last validated address, with packets that seem to come from [`MAX_PATHS`] others
    /// (RFC 9000 s.9.3.2).
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

    /// Removes a path, unless it is the current one of its path ID.
    pub(super) fn remove(&mut self, key: PathKey) -> Option<Path> {
        let at = self.list.iter().position(|path| path.key() == key && !path.is_current())?;
        self.active -= usize::from(at < self.active);
        Some(self.list.remove(at))
    }

    /// Removes a path of a path ID that is no longer used, unless it is the active one. Returns
    /// `None` if no other path is left.
    pub(super) fn remove_of(&mut self, id: PathId) -> Option<Path> {
        let active = self.active;
        let mut found = self.list.iter().enumerate();
        let (at, _) = found.find(|(at, path)| path.id() == id && *at != active)?;
        self.active -= usize::from(at < self.active);
        Some(self.list.remove(at))
    }

    /// Makes a path the current one of its path ID. It also becomes the active one if the path that
    /// it replaces was active.
    ///
    /// If the address of the previous path is validated, that path becomes the fallback of its path
    /// ID.
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

    /// Makes a current path the active one.
    pub(super) fn set_active(&mut self, key: PathKey) {
        let found = self.list.iter().position(|path| path.key() == key && path.is_current());
        self.active = found.unwrap_or(self.active);
    }

    /// Returns the path to which a path ID returns if the validation of its current path fails (RFC
    /// 9000 s.9.3.2).
    pub(super) fn fallback(&self, id: PathId) -> Option<&Path> {
        self.list.iter().find(|path| path.id() == id && path.is_fallback() && !path.is_current())
    }

    /// Returns the last validated path: the active path if its address is validated, otherwise the
    /// path to which the connection returns if the validation of the active path fails. Returns
    /// `None` if there is neither.
    pub(super) fn last_validated(&self) -> Option<&Path> {
        let active = self.active();
        if active.is_validated() { Some(active) } else { self.fallback(active.id()) }
    }

    /// Returns the current path of a path ID, or `None` if the path ID is not in use.
    pub(super) fn current(&self, id: PathId) -> Option<&Path> {
        let active = self.active();
        if active.id() == id {
            return Some(active);
        }
        self.list.iter().find(|path| path.id() == id && path.is_current())
    }

    /// Mutable variant of [`Paths::current`].
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

    /// Returns `None` if the path was removed.
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

/// Index for keys of paths that are known to exist: they were found in the same call into the
/// connection, and no path was removed since. Use [`Paths::get`] for a key that was stored longer.
/// A missing path is a bug, at which debug builds panic. Other builds return the active path
/// instead, because a peer's packets must not stop a server.
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
    use crate::connection::path::{AddressOrigin, Addresses};

    fn path(key: PathKey, host: u8, validated: bool) -> Path {
        let addresses = Addresses { remote: remote(host), local: local(host) };
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

    /// Returns a validated active path and `others` paths that are not validated, from hosts 0, 1,
    /// 2, ...
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
        assert!(paths.remove(PathKey(2)).is_none(), "the path is active");
        assert!(paths.remove(PathKey(0)).is_some());
        assert_eq!(paths.active().key(), PathKey(2));
        assert!(paths.get(PathKey(0)).is_none() && paths.remove(PathKey(0)).is_none());
        paths.set_current(PathKey(0));
        assert_eq!(paths.active().key(), PathKey(2), "a removed path does not become active");
    }

    #[test]
    fn path_oldest_unused_one_is_evicted() {
        let mut paths = paths(3);
        assert_eq!(paths.iter().count(), MAX_PATHS);
        // Paths that are being validated, or are validated, may still be needed.
        let challenge = |path: &mut Path| {
            path.ask(Timestamp::START, [1; 8], std::time::Duration::from_secs(1));
        };
        challenge(&mut paths[PathKey(1)]);
        let key = paths.next_key();
        assert_eq!(key, PathKey(4), "keys are not reused");
        assert_eq!(paths.add(path(key, 4, true)).map(|gone| gone.key()), Some(PathKey(2)));
        assert_eq!(keys(&paths), [0, 1, 3, 4]);
        challenge(&mut paths[PathKey(3)]);
        // All paths may be needed, so the oldest that is not active is removed.
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
        assert_eq!(fallback(&paths, ZERO), Some(PathKey(1)), "the path used last");
        assert_eq!(last_validated(&paths), Some(PathKey(1)));
        // A path that was validated but never used is no fallback.
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
        assert_eq!(paths.active().key(), PathKey(0), "the path has another path ID");
        assert_eq!(paths.current(one).map(Path::key), Some(PathKey(2)));
        assert_eq!(paths.current(ZERO).map(Path::key), Some(PathKey(0)));
        assert_eq!(paths.find(one, remote(0), None, true), Some(PathKey(2)), "the same addresses");
        assert_eq!((fallback(&paths, one), fallback(&paths, ZERO)), (None, None));
        paths.set_current(PathKey(1));
        assert_eq!((fallback(&paths, one), fallback(&paths, ZERO)), (Some(PathKey(2)), None));
        paths.set_current(PathKey(2));
        assert!(paths.remove_of(ZERO).is_none(), "the path is active");
        paths.set_active(PathKey(1));
        assert_eq!(paths.active().key(), PathKey(0), "the path is not current");
        paths.set_active(PathKey(2));
        assert_eq!(paths.remove_of(ZERO).map(|path| path.key()), Some(PathKey(0)));
        assert_eq!(paths.active().key(), PathKey(2));
        paths.set_current(PathKey(1));
        assert_eq!(paths.active().key(), PathKey(1), "the path has the same path ID");
    }
}
