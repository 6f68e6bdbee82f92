//! Rules for joining: the users that may join, the services that each of them may serve, and the
//! maximum numbers of servers.

use crate::config::{Config, SocketConfig};
use crate::error::{Error, Result};
use crate::sys;

/// Rules for the servers that join at the gateway's socket.
#[derive(Debug)]
pub(super) struct Rules {
    /// Users that may connect. If it is empty, every user that can open the socket may connect.
    users: Vec<u32>,
    /// Quota groups, each with the users whose servers may count for it. An empty list means all
    /// users.
    groups: Vec<(u32, Vec<u32>)>,
    pub(super) servers: usize,
    pub(super) servers_of_one: usize,
}

/// Returns the ID of a user, given by name or number.
pub(super) fn user(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(Error::NoSuchUser { what: "user", name: name.to_owned() }),
        Err(error) => Err(Error::system(format!("looking up the user `{name}`"), error.into())),
    }
}

/// Returns the ID of a group, given by name or number.
pub(super) fn group(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(Error::NoSuchUser { what: "group", name: name.to_owned() }),
        Err(error) => Err(Error::system(format!("looking up the group `{name}`"), error.into())),
    }
}

impl Rules {
    pub(super) fn of(config: &Config, socket: &SocketConfig) -> Result<Rules> {
        let numbers = |names: &[String]| -> Result<Vec<u32>> {
            names.iter().map(|name| user(name)).collect()
        };
        let groups = config.services.iter().zip(config.groups());
        let groups = groups.map(|(service, group)| Ok((group, numbers(&service.users)?)));
        Ok(Rules {
            users: numbers(&socket.users)?,
            groups: groups.collect::<Result<_>>()?,
            servers: socket.max_servers as usize,
            servers_of_one: socket.max_per_user as usize,
        })
    }

    /// Returns true for root and the gateway's own user, which may always join.
    fn is_trusted(uid: u32) -> bool {
        uid == 0 || uid == sys::user_id()
    }

    pub(super) fn admits(&self, uid: u32) -> bool {
        Rules::is_trusted(uid) || self.users.is_empty() || self.users.contains(&uid)
    }

    /// Returns true if a user may have the keys of Retry tokens. Only a user that may serve all
    /// services may, because the keys can make tokens for every service.
    pub(super) fn gives_keys(&self, uid: u32) -> bool {
        let may = |users: &[u32]| users.is_empty() || users.contains(&uid);
        Rules::is_trusted(uid) || self.groups.iter().all(|(_, users)| may(users))
    }

    /// Returns a bit mask of the quota groups for which a user's servers may count.
    pub(super) fn groups_of(&self, uid: u32) -> u64 {
        let may = |users: &[u32]| users.is_empty() || users.contains(&uid);
        match Rules::is_trusted(uid) {
            true => u64::MAX,
            false if self.groups.iter().all(|(_, users)| users.is_empty()) => u64::MAX,
            false => self
                .groups
                .iter()
                .filter(|(_, users)| may(users))
                .fold(0, |bits, (group, _)| bits | 1 << (group & 63)),
        }
    }
}
