//! Builds well-known networks: two nodes, a dumbbell, a parking lot, and two paths.

use std::time::Duration;

use super::{LinkId, NodeId, PortId, Topology};
use crate::link::Direction;

/// A network, with the roles of its nodes and links.
#[derive(Clone, Debug)]
pub struct Named {
    /// The nodes and links.
    pub topology: Topology,
    /// The client of each pair.
    pub clients: Vec<NodeId>,
    /// The server of each pair, in the same order as `clients`.
    pub servers: Vec<NodeId>,
    /// The links that the caller described, in order from the clients' side to the servers' side.
    pub bottlenecks: Vec<LinkId>,
    /// The two ports of each access link: first that of the host, then that of its router. Empty if
    /// the caller's links connect the hosts directly.
    pub access: Vec<[PortId; 2]>,
}

/// Returns an access link of the nsQUIC thesis: 1 Gb/s and 10 ms.
fn access() -> Direction {
    Direction::new(1_000_000_000, Duration::from_millis(10))
}

/// Builds a network of two nodes and a link.
pub fn simple(link: Direction) -> Named {
    let mut topology = Topology::new();
    let (client, server) = (topology.host("client"), topology.host("server"));
    let bottleneck = topology.link(client, server, link);
    Named {
        topology,
        clients: vec![client],
        servers: vec![server],
        bottlenecks: vec![bottleneck],
        access: Vec::new(),
    }
}

/// Connects a client and a server to their routers.
fn link_hosts(
    topology: &mut Topology,
    access: &mut Vec<[PortId; 2]>,
    [client, left]: [NodeId; 2],
    [right, server]: [NodeId; 2],
) {
    let link = topology.link(client, left, self::access());
    access.push([link.there(), link.back()]);
    let link = topology.link(right, server, self::access());
    access.push([link.back(), link.there()]);
}

/// Builds a dumbbell: all clients are connected to one router, and all servers to another. All
/// pairs share the link between these routers. Access links have 1 Gb/s and 10 ms, as in the nsQUIC
/// thesis.
///
/// ```text
/// client 1 ── left ══ bottleneck ══ right ── server 1
/// client 2 ──┘                        └── server 2
/// ```
pub fn dumbbell(pairs: usize, bottleneck: Direction) -> Named {
    let mut topology = Topology::new();
    let (left, right) = (topology.router("left"), topology.router("right"));
    let bottleneck = topology.link(left, right, bottleneck);
    let (mut clients, mut servers, mut access) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 1..=pairs {
        let client = topology.host(format!("client {pair}"));
        let server = topology.host(format!("server {pair}"));
        link_hosts(&mut topology, &mut access, [client, left], [right, server]);
        clients.push(client);
        servers.push(server);
    }
    Named { topology, clients, servers, bottlenecks: vec![bottleneck], access }
}

/// Builds a row of routers with bottleneck links between them. The first pair of hosts crosses all
/// of these links. Each other pair crosses one.
///
/// ```text
/// client 1 ── router 0 ══ router 1 ══ router 2 ── server 1
///     client 2 ──┘  server 2 ─┴─ client 3  └── server 3
/// ```
pub fn parking_lot(links: &[Direction]) -> Named {
    let mut topology = Topology::new();
    let routers: Vec<NodeId> =
        (0..=links.len()).map(|index| topology.router(format!("router {index}"))).collect();
    let mut bottlenecks = Vec::new();
    for (pair, link) in routers.windows(2).zip(links) {
        bottlenecks.push(topology.link(pair[0], pair[1], link.clone()));
    }
    let all = [routers[0], routers[links.len()]];
    let ends = std::iter::once(all).chain(routers.windows(2).map(|pair| [pair[0], pair[1]]));
    let (mut clients, mut servers, mut access) = (Vec::new(), Vec::new(), Vec::new());
    for (index, [left, right]) in ends.enumerate() {
        let client = topology.host(format!("client {}", index + 1));
        let server = topology.host(format!("server {}", index + 1));
        link_hosts(&mut topology, &mut access, [client, left], [right, server]);
        clients.push(client);
        servers.push(server);
    }
    Named { topology, clients, servers, bottlenecks, access }
}

/// Builds a network of a client and a server with two paths between them. Interface 0 of each node
/// leads to the first path, and interface 1 to the second. A packet whose sender does not choose an
/// interface uses the first path.
///
/// ```text
///         ┌── first ═══ ┐
/// client ─┤             ├─ server
///         └── second ══ ┘
/// ```
pub fn two_path(first: Direction, second: Direction) -> Named {
    let mut topology = Topology::new();
    let (client, server) = (topology.host("client"), topology.host("server"));
    let (mut bottlenecks, mut access) = (Vec::new(), Vec::new());
    // A node's interfaces are numbered in the order of its links, so they match at both ends.
    for (name, link) in [("first", first), ("second", second)] {
        let router = topology.router(name);
        let near = topology.link(client, router, Direction::new(1_000_000_000, Duration::ZERO));
        access.push([near.there(), near.back()]);
        bottlenecks.push(topology.link(router, server, link));
    }
    Named { topology, clients: vec![client], servers: vec![server], bottlenecks, access }
}

#[cfg(test)]
mod tests {
    use super::super::Routes;
    use super::*;

    fn narrow() -> Direction {
        Direction::new(10_000_000, Duration::from_millis(50))
    }

    /// Returns the number of bottleneck links that each pair crosses.
    fn crossed(named: &Named) -> Vec<usize> {
        assert_eq!(named.topology.check(), Ok(()));
        let routes = Routes::new(&named.topology);
        let pairs = named.clients.iter().zip(&named.servers);
        pairs
            .map(|(client, server)| {
                let there = routes.path(&named.topology, *client, *server).unwrap();
                let back = routes.path(&named.topology, *server, *client).unwrap();
                let over = named.bottlenecks.iter();
                let crossed = over.clone().filter(|link| there.contains(&link.there())).count();
                assert_eq!(over.filter(|link| back.contains(&link.back())).count(), crossed);
                crossed
            })
            .collect()
    }

    #[test]
    fn topology_pairs_cross_the_bottlenecks() {
        assert_eq!(crossed(&simple(narrow())), [1]);
        assert_eq!(crossed(&dumbbell(5, narrow())), [1; 5]);
        assert_eq!(crossed(&parking_lot(&[narrow(), narrow(), narrow()])), [3, 1, 1, 1]);
        assert_eq!(crossed(&two_path(narrow(), narrow())), [1]);
    }

    #[test]
    fn topology_dumbbell_has_the_access_links_of_the_thesis() {
        let named = dumbbell(1, narrow());
        let access = &named.topology.edges[1].directions[0];
        assert_eq!((access.rate.mean(), access.wire.delay), (1e9, Duration::from_millis(10)));
    }
}
