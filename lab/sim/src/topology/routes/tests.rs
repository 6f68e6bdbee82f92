//! Tests computed routes against expected ones, and against a search of all paths.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::Direction;

fn direction() -> Direction {
    Direction::new(1_000_000, Duration::ZERO)
}

fn names(topology: &Topology, from: NodeId, to: NodeId) -> Result<String, String> {
    let path = Routes::new(topology).path(topology, from, to).map_err(|error| error.to_string())?;
    let ends = path.iter().map(|port| {
        topology.name(topology.edges[port.0 as usize / 2].ends[1 - port.0 as usize % 2])
    });
    Ok(ends.collect::<Vec<_>>().join(" "))
}

#[test]
fn routes_are_cheapest_then_shortest_then_oldest() {
    let mut topology = Topology::new();
    let [a, b] = [topology.host("a"), topology.host("b")];
    let [r, s, t] = ["r", "s", "t"].map(|name| topology.router(name));
    topology.link(a, r, direction());
    topology.link(s, b, direction());
    let direct = topology.link(r, s, direction());
    topology.link(r, t, direction());
    topology.link(t, s, direction());
    assert_eq!(names(&topology, a, b).unwrap(), "r s b");
    topology.set_cost(direct, 2);
    assert_eq!(names(&topology, a, b).unwrap(), "r s b", "as dear, but shorter");
    topology.set_cost(direct, 3);
    assert_eq!(names(&topology, a, b).unwrap(), "r t s b");
    assert_eq!(names(&topology, b, a).unwrap(), "s t r a");
    // Routers can be destinations, too.
    assert_eq!(names(&topology, t, a).unwrap(), "r a");
    assert_eq!(names(&topology, a, t).unwrap(), "r t");

    let second = topology.link(r, s, direction());
    topology.set_cost(direct, 1);
    let path = Routes::new(&topology).path(&topology, a, b).unwrap();
    assert!(path.contains(&direct.there()) && !path.contains(&second.there()));
}

/// If several routes have the same cost and length, the age of their links must decide, not the age
/// of their routers.
#[test]
fn routes_that_are_equal_prefer_the_older_link() {
    let mut topology = Topology::new();
    let [a, b, first, second] = ["a", "b", "first", "second"].map(|name| topology.router(name));
    for router in [second, first] {
        topology.link(a, router, direction());
        topology.link(router, b, direction());
    }
    assert_eq!(names(&topology, a, b).unwrap(), "second b");
    assert_eq!(names(&topology, b, a).unwrap(), "second a");
}

#[test]
fn routes_do_not_lead_through_hosts() {
    let mut topology = Topology::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| topology.host(name));
    topology.link(a, b, direction());
    topology.link(b, c, direction());
    assert_eq!(names(&topology, a, b).unwrap(), "b");
    let error = names(&topology, a, c).unwrap_err();
    assert_eq!(
        error,
        "there is no route from a to c: connect them through routers, because hosts do not forward packets"
    );
    let lonely = topology.host("lonely");
    assert!(names(&topology, a, lonely).is_err());
    assert!(names(&topology, lonely, a).is_err());
    assert!(names(&topology, a, a).is_err());
    // The new router gives a way between the nodes that does not lead through a host.
    let router = topology.router("router");
    topology.link(c, router, direction());
    topology.link(a, router, direction());
    assert_eq!(names(&topology, a, c).unwrap(), "router c");
}

#[test]
fn routes_give_a_host_one_interface_per_link() {
    let mut topology = Topology::new();
    let [a, b] = [topology.host("a"), topology.host("b")];
    let [up, down] = [topology.router("up"), topology.router("down")];
    let first = topology.link(a, up, direction());
    let second = topology.link(down, a, direction());
    topology.link(up, b, direction());
    topology.link(down, b, direction());
    let routes = Routes::new(&topology);
    assert_eq!(routes.interface(a, 0), Some(first.there()));
    assert_eq!(routes.interface(a, 1), Some(second.back()));
    assert_eq!(routes.interface(a, 2), None);
    assert_eq!(routes.arrives_at(second.there()), 1);
    assert_eq!(routes.arrives_at(first.there()), 0);
}

/// Returns the costs of the cheapest routes to a destination, computed by a simple and slow
/// algorithm.
fn slow(topology: &Topology, to: NodeId) -> Vec<Option<(u64, u32)>> {
    let mut best: Vec<Option<(u64, u32)>> = vec![None; topology.nodes.len()];
    best[to.0 as usize] = Some((0, 0));
    for _ in 0..topology.nodes.len() {
        for edge in &topology.edges {
            for [from, through] in [edge.ends, [edge.ends[1], edge.ends[0]]] {
                let may = through == to || topology.nodes[through.0 as usize].forwards;
                let Some((cost, links)) = best[through.0 as usize].filter(|_| may) else {
                    continue;
                };
                let found = (cost + u64::from(edge.cost), links + 1);
                let known = &mut best[from.0 as usize];
                if known.is_none_or(|known| found < known) {
                    *known = Some(found);
                }
            }
        }
    }
    best
}

proptest! {
    #[test]
    fn routes_of_random_graphs_are_cheapest(
        forwards in proptest::collection::vec(any::<bool>(), 2..9),
        edges in proptest::collection::vec((0..9usize, 0..9usize, 1..4u32), 0..16),
    ) {
        let mut topology = Topology::new();
        for (index, forwards) in forwards.iter().enumerate() {
            topology.node(index.to_string(), *forwards);
        }
        let count = forwards.len();
        for (one, other, cost) in edges {
            let [one, other] = [one % count, other % count].map(|node| NodeId(node as u32));
            if one != other {
                let link = topology.link(one, other, direction());
                topology.set_cost(link, cost);
            }
        }
        prop_assert_eq!(topology.check(), Ok(()));
        let routes = Routes::new(&topology);
        for to in (0..count as u32).map(NodeId) {
            let best = slow(&topology, to);
            for from in (0..count as u32).map(NodeId).filter(|from| *from != to) {
                let found = routes.path(&topology, from, to).ok().map(|path| {
                    let cost = |port: &PortId| u64::from(topology.edges[port.0 as usize / 2].cost);
                    (path.iter().map(cost).sum(), path.len() as u32)
                });
                prop_assert_eq!(found, best[from.0 as usize]);
            }
        }
    }
}
