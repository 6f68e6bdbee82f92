//! Computes the routes of packets. A route has the smallest total cost. Among routes of equal cost,
//! the one with the fewest links is used, then the one with the oldest links.
//!
//! A host with one link has no choice. So the routing table has only the other nodes, which are
//! called the core. For a dumbbell of 10,000 pairs, it has two by two entries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{NodeId, PortId, Topology, TopologyError};

const NONE: u32 = u32::MAX;

/// One end of a link, seen from the node at this end.
#[derive(Clone, Copy)]
struct Interface {
    /// The port that sends to the other end.
    port: PortId,
    neighbour: NodeId,
    cost: u32,
}

/// Returns the nodes that forward packets or have more than one link.
pub(super) fn core(topology: &Topology) -> impl Iterator<Item = NodeId> + use<> {
    let mut links = vec![0u32; topology.nodes.len()];
    for end in topology.edges.iter().flat_map(|edge| edge.ends) {
        links[end.0 as usize] += 1;
    }
    let forwards: Vec<bool> = topology.nodes.iter().map(|node| node.forwards).collect();
    (0..links.len())
        .filter(move |node| forwards[*node] || links[*node] > 1)
        .map(|node| NodeId(node as u32))
}

/// The static routes of a valid topology.
pub(crate) struct Routes {
    /// Interfaces of all nodes, node by node.
    interfaces: Vec<Interface>,
    /// For each port, the index of the interface at the other node that receives the port's
    /// packets.
    arrives_at: Vec<u16>,
    /// For each node, the index of its first interface. The last entry is the number of all
    /// interfaces.
    begins: Vec<u32>,
    forwards: Vec<bool>,
    /// For each node, its index in the core, or `NONE` for hosts with at most one link.
    core: Vec<u32>,
    core_size: usize,
    /// For each pair of a destination and a core node, the interface through which that node sends
    /// packets to the destination. All entries of one destination are adjacent.
    table: Vec<u32>,
}

impl Routes {
    pub(crate) fn new(topology: &Topology) -> Routes {
        let nodes = topology.nodes.len();
        let mut begins = vec![0u32; nodes + 1];
        for end in topology.edges.iter().flat_map(|edge| edge.ends) {
            begins[end.0 as usize + 1] += 1;
        }
        for node in 0..nodes {
            begins[node + 1] += begins[node];
        }
        let nothing = Interface { port: PortId(0), neighbour: NodeId(0), cost: 0 };
        let mut interfaces = vec![nothing; 2 * topology.edges.len()];
        let mut arrives_at = vec![0; 2 * topology.edges.len()];
        let mut next = begins.clone();
        for (index, edge) in topology.edges.iter().enumerate() {
            let [one, other] = edge.ends;
            for (side, (from, to)) in [(one, other), (other, one)].into_iter().enumerate() {
                let place = &mut next[from.0 as usize];
                let port = PortId((2 * index + side) as u32);
                interfaces[*place as usize] = Interface { port, neighbour: to, cost: edge.cost };
                // This interface receives the packets that the port of the other direction sends.
                // All interfaces from number 65,535 on are stored with this number.
                let number = *place - begins[from.0 as usize];
                arrives_at[port.0 as usize ^ 1] = u16::try_from(number).unwrap_or(u16::MAX);
                *place += 1;
            }
        }
        let mut numbers = vec![NONE; nodes];
        let members: Vec<NodeId> = core(topology).collect();
        for (number, node) in members.iter().enumerate() {
            numbers[node.0 as usize] = number as u32;
        }
        let forwards = topology.nodes.iter().map(|node| node.forwards).collect();
        let core_size = members.len();
        let mut routes = Routes {
            interfaces,
            arrives_at,
            begins,
            forwards,
            core: numbers,
            core_size,
            table: vec![NONE; core_size * core_size],
        };
        for destination in members {
            routes.search(destination);
        }
        routes
    }

    fn of(&self, node: NodeId) -> std::ops::Range<usize> {
        let node = node.0 as usize;
        self.begins[node] as usize..self.begins[node + 1] as usize
    }

    /// Computes the routes of all core nodes to `destination`, with Dijkstra's algorithm from the
    /// destination.
    fn search(&mut self, destination: NodeId) {
        let row = self.core[destination.0 as usize] as usize * self.core_size;
        let mut best = vec![(u64::MAX, u32::MAX); self.core_size];
        let mut heap = BinaryHeap::from([Reverse((0u64, 0u32, destination))]);
        best[self.core[destination.0 as usize] as usize] = (0, 0);
        while let Some(Reverse((cost, links, node))) = heap.pop() {
            let stale = best[self.core[node.0 as usize] as usize] != (cost, links);
            // Routes of other nodes may use this node only if it forwards packets.
            if stale || (node != destination && !self.forwards[node.0 as usize]) {
                continue;
            }
            for index in self.of(node) {
                let Interface { port, neighbour, cost: more } = self.interfaces[index];
                let number = self.core[neighbour.0 as usize];
                if number == NONE {
                    continue;
                }
                let found = (cost + u64::from(more), links + 1);
                let known = &mut best[number as usize];
                // The route leads to this node, so it uses the port of the link's other direction.
                let back = port.0 ^ 1;
                let place = row + number as usize;
                if found < *known {
                    *known = found;
                    self.table[place] = back;
                    heap.push(Reverse((found.0, found.1, neighbour)));
                } else if found == *known && neighbour != destination && back < self.table[place] {
                    self.table[place] = back;
                }
            }
        }
    }

    /// Returns the port through which a packet to `to` leaves the node `from`, or `None` if there
    /// is no route.
    pub(crate) fn next(&self, from: NodeId, to: NodeId) -> Option<PortId> {
        let here = self.core[from.0 as usize];
        if here == NONE {
            // A node outside of the core has at most one link, so there is no choice.
            return self.interfaces[self.of(from)].first().map(|interface| interface.port);
        }
        let mut target = to;
        let mut number = self.core[to.0 as usize];
        if number == NONE {
            let last = self.interfaces[self.of(to)].first()?;
            if last.neighbour == from {
                return Some(PortId(last.port.0 ^ 1));
            }
            target = last.neighbour;
            number = self.core[target.0 as usize];
        }
        if number == NONE || target == from {
            return None;
        }
        let port = self.table[number as usize * self.core_size + here as usize];
        (port != NONE).then_some(PortId(port))
    }

    /// Returns the port of a node's interface. Interfaces are numbered from 0, in the order in
    /// which the links were added.
    pub(crate) fn interface(&self, node: NodeId, index: u16) -> Option<PortId> {
        let interfaces = &self.interfaces[self.of(node)];
        interfaces.get(usize::from(index)).map(|interface| interface.port)
    }

    /// Returns the index of the interface, at the other end of the link, that receives the packets
    /// of this port.
    pub(crate) fn arrives_at(&self, port: PortId) -> u16 {
        self.arrives_at[port.0 as usize]
    }

    /// Returns `true` if this node forwards packets.
    pub(crate) fn forwards(&self, node: NodeId) -> bool {
        self.forwards[node.0 as usize]
    }

    /// Returns the ports that a packet passes on its way.
    ///
    /// # Errors
    /// Fails if there is no route.
    pub(crate) fn path(
        &self,
        topology: &Topology,
        from: NodeId,
        to: NodeId,
    ) -> Result<Vec<PortId>, TopologyError> {
        let nowhere = || TopologyError::NoRoute {
            from: topology.name(from).to_owned(),
            to: topology.name(to).to_owned(),
        };
        let (mut node, mut path) = (from, Vec::new());
        while node != to || path.is_empty() {
            // The route is unusable if it passes a host, because hosts do not forward packets. It
            // is a loop if it has more ports than there are routers.
            let stuck = node != from && !self.forwards(node);
            if stuck || node == to || path.len() > self.core_size + 2 {
                return Err(nowhere());
            }
            let port = self.next(node, to).ok_or_else(nowhere)?;
            path.push(port);
            node = topology.edges[port.0 as usize / 2].ends[1 - port.0 as usize % 2];
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests;
