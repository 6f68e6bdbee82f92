//! Finds the addresses of this machine from which a client can open paths, and notices when they
//! change.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{IpAddr, UdpSocket};
use std::str::FromStr;

use equic_http3::{Client, PathAddresses};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::libc::{
    RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR, RTMGRP_IPV6_ROUTE, RTMGRP_LINK,
};
use nix::net::if_::InterfaceFlags;

use crate::failure::{Failure, Result};
use crate::netlink::Listener;

/// Multicast groups of rtnetlink(7) after whose messages the addresses are read again. Routes are
/// included, because a new route can make an address usable.
const GROUPS: i32 =
    RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE;

/// Maximum number of paths of a connection.
const MOST: usize = 8;

/// Local addresses from which the additional paths of a connection start: a value of `--path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathFrom {
    /// Every interface.
    All,
    /// A local address, and the cost of the path from it.
    Address(IpAddr, u32),
}

impl FromStr for PathFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<PathFrom, String> {
        if text == "all" {
            return Ok(PathFrom::All);
        }
        let (address, cost) = match text.split_once(',') {
            None => (text, 0),
            Some((address, option)) => {
                let cost = option.strip_prefix("cost=").and_then(|cost| cost.parse().ok());
                (
                    address,
                    cost.ok_or("invalid option after the address: only cost=NUMBER is permitted")?,
                )
            }
        };
        let address =
            address.parse().map_err(|_| "the value is neither an IP address nor `all`")?;
        Ok(PathFrom::Address(address, cost))
    }
}

/// Returns the maximum number of paths of a connection: the first path, and those that `paths`
/// permits.
pub(crate) fn most(paths: &[PathFrom]) -> usize {
    if paths.contains(&PathFrom::All) { MOST } else { (paths.len() + 1).min(MOST) }
}

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    interface: String,
    address: IpAddr,
    /// True if the interface is up and has a carrier, so that it can send.
    works: bool,
}

fn addresses(all: impl Iterator<Item = InterfaceAddress>) -> Vec<Address> {
    let works = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    let of = |one: InterfaceAddress| {
        let v4 = || Some(IpAddr::V4(one.address.as_ref()?.as_sockaddr_in()?.ip()));
        let v6 = || Some(IpAddr::V6(one.address.as_ref()?.as_sockaddr_in6()?.ip()));
        let address = v4().or_else(v6)?;
        Some(Address { address, works: one.flags.contains(works), interface: one.interface_name })
    };
    all.filter_map(of).collect()
}

/// Returns whether an address is usable for paths, that is, whether hosts beyond the local link can
/// reach it.
fn is_of_use(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !(v4.is_loopback() || v4.is_link_local() || v4.is_unspecified()),
        IpAddr::V6(v6) => !(v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified()),
    }
}

/// Follows changes of the system's addresses, and tells a client from which addresses to open
/// paths.
pub(crate) struct Follower {
    paths: Vec<PathFrom>,
    listener: Listener,
    /// All addresses that have been usable for paths at some time.
    seen: BTreeSet<IpAddr>,
}

impl Follower {
    /// Creates a follower for these values of `--path`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// No interface of this machine has one of the addresses.
    pub(crate) fn new(paths: Vec<PathFrom>) -> Result<Follower> {
        for path in &paths {
            if let PathFrom::Address(address, _) = path {
                UdpSocket::bind((*address, 0)).map_err(|error| {
                    Failure::because(format!("cannot send from {address}"), error)
                })?;
            }
        }
        let listener = Listener::open(GROUPS).map_err(|error| {
            Failure::because("cannot subscribe to changes of network interfaces", error)
        })?;
        Ok(Follower { paths, listener, seen: BTreeSet::new() })
    }

    /// Updates the paths of all of a client's connections whenever addresses change. Never returns.
    pub(crate) async fn follow(&mut self, client: &Client) -> Infallible {
        loop {
            match getifaddrs() {
                Ok(all) => client.set_paths(self.choose(&addresses(all))),
                Err(error) => tracing::warn!(%error, "cannot list the network interfaces"),
            }
            self.listener.ready().await;
            // Discard the messages. They only mean that addresses and routes must be read again.
            self.listener.hear(|_| {});
        }
    }

    /// Chooses the addresses for paths from the current addresses of the system.
    fn choose(&mut self, addresses: &[Address]) -> PathAddresses {
        let works: BTreeSet<IpAddr> =
            addresses.iter().filter(|one| one.works).map(|one| one.address).collect();
        self.seen.extend(&works);
        let gone: Vec<IpAddr> = self.seen.difference(&works).copied().collect();
        let mut wanted = Vec::new();
        let mut want = |address| {
            if !wanted.contains(&address) && !gone.contains(&address) {
                wanted.push(address);
            }
        };
        for path in &self.paths {
            match path {
                PathFrom::Address(address, _) => want(*address),
                // On each interface, use one address of each family. Further addresses would lead
                // over the same path.
                PathFrom::All => {
                    let mut had = BTreeSet::new();
                    for one in addresses.iter().filter(|one| one.works && is_of_use(one.address)) {
                        if had.insert((&one.interface, one.address.is_ipv4())) {
                            want(one.address);
                        }
                    }
                }
            }
        }
        PathAddresses { wanted, gone, costs: self.costs() }
    }

    /// Returns the cost of the path from each address that was given with a cost.
    fn costs(&self) -> BTreeMap<IpAddr, u32> {
        let of = |path: &PathFrom| match path {
            PathFrom::Address(address, cost) if *cost > 0 => Some((*address, *cost)),
            _ => None,
        };
        self.paths.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(paths: &[PathFrom]) -> Follower {
        Follower::new(paths.to_vec()).unwrap()
    }

    fn on(interface: &str, address: &str, works: bool) -> Address {
        Address { interface: interface.to_owned(), address: address.parse().unwrap(), works }
    }

    fn texts(addresses: &[IpAddr]) -> Vec<String> {
        addresses.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn path_option_parses_addresses_costs_and_all() {
        assert_eq!("all".parse(), Ok(PathFrom::All));
        assert_eq!("::1".parse(), Ok(PathFrom::Address("::1".parse().unwrap(), 0)));
        assert!("eth0".parse::<PathFrom>().is_err());
        let one = PathFrom::Address("::1".parse().unwrap(), 0);
        assert_eq!("::1,cost=7".parse(), Ok(PathFrom::Address("::1".parse().unwrap(), 7)));
        for wrong in ["::1,cost=", "::1,cost=-1", "::1,7", "all,cost=7"] {
            assert!(wrong.parse::<PathFrom>().is_err(), "{wrong}");
        }
        assert_eq!(
            [most(&[]), most(&[one]), most(&[one; 20]), most(&[PathFrom::All])],
            [1, 2, 8, 8]
        );
    }

    #[tokio::test]
    async fn path_address_is_wanted_unless_its_interface_is_down() {
        let mut follower = follower(&[PathFrom::Address("127.0.0.2".parse().unwrap(), 5)]);
        // No interface lists 127.0.0.2, but it is usable, because Linux accepts all of 127.0.0.0/8
        // as local.
        let chosen = follower.choose(&[on("lo", "127.0.0.1", true)]);
        assert_eq!((texts(&chosen.wanted), chosen.gone), (vec!["127.0.0.2".to_owned()], vec![]));
        assert_eq!(chosen.costs.into_values().collect::<Vec<u32>>(), [5]);
        follower.choose(&[on("lo", "127.0.0.2", true), on("eth0", "192.0.2.1", true)]);
        let chosen =
            follower.choose(&[on("lo", "127.0.0.2", false), on("eth0", "192.0.2.1", false)]);
        assert!(chosen.wanted.is_empty());
        // 127.0.0.1 was usable before, but now no interface has it.
        assert_eq!(texts(&chosen.gone), ["127.0.0.1", "127.0.0.2", "192.0.2.1"]);
        let chosen = follower.choose(&[on("lo", "127.0.0.2", true)]);
        assert_eq!(texts(&chosen.wanted), ["127.0.0.2"]);
        assert_eq!(texts(&chosen.gone), ["127.0.0.1", "192.0.2.1"]);
    }

    #[tokio::test]
    async fn path_all_takes_one_address_per_interface_and_family() {
        let mut follower = follower(&[PathFrom::All]);
        let chosen = follower.choose(&[
            on("lo", "127.0.0.1", true),
            on("eth0", "192.0.2.1", true),
            on("eth0", "192.0.2.2", true),
            on("eth0", "2001:db8::1", true),
            on("eth0", "fe80::1", true),
            on("wlan0", "198.51.100.1", true),
            on("wwan0", "203.0.113.1", false),
        ]);
        assert_eq!(texts(&chosen.wanted), ["192.0.2.1", "2001:db8::1", "198.51.100.1"]);
        assert!(chosen.gone.is_empty(), "it never worked");
    }

    #[tokio::test]
    async fn path_address_of_no_interface_is_refused() {
        let nobodys = PathFrom::Address("192.0.2.77".parse().unwrap(), 0);
        assert!(Follower::new(vec![nobodys]).is_err());
    }
}
