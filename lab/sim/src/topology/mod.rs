//! Topologies of simulated networks: hosts, routers and the links between them.
//!
//! * `routes.rs`: computes the routes of packets;
//! * `named.rs`: builds well-known networks.

mod named;
mod routes;

use crate::link::{Direction, DirectionError};
use crate::packet::IpVersion;

pub use named::{Named, dumbbell, parking_lot, simple, two_path};
pub(crate) use routes::Routes;

/// Largest number of nodes of a network.
pub const MAX_NODES: usize = 1 << 20;

/// Largest number of nodes that forward packets or have more than one link. The routing table has
/// an entry for each pair of these nodes.
pub const MAX_ROUTERS: usize = 1_024;

/// Largest number of links of a network.
pub const MAX_LINKS: usize = 1 << 20;

/// Identifies a node of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

/// Identifies a link of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

/// Identifies a port: the sending end of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub(crate) u32);

impl LinkId {
    /// Returns the port that sends from the first node of [`Topology::link`] to the second.
    pub fn there(self) -> PortId {
        PortId(2 * self.0)
    }

    /// Returns the port that sends from the second node of [`Topology::link`] to the first.
    pub fn back(self) -> PortId {
        PortId(2 * self.0 + 1)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: String,
    pub forwards: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Edge {
    pub ends: [NodeId; 2],
    /// The direction from the first node to the second, and the opposite one.
    pub directions: [Direction; 2],
    pub cost: u32,
}

/// A network before a run: its nodes and links.
///
/// ```
/// use std::time::Duration;
/// use equic_sim::{Direction, Topology};
///
/// let mut topology = Topology::new();
/// let [client, server] = [topology.host("client"), topology.host("server")];
/// let router = topology.router("router");
/// topology.link(client, router, Direction::new(1_000_000_000, Duration::from_millis(1)));
/// topology.link(router, server, Direction::new(10_000_000, Duration::from_millis(50)));
/// assert_eq!(topology.check(), Ok(()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Edge>,
    /// IP version of all nodes.
    pub ip: IpVersion,
}

/// The reason why a network is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// The network has more nodes than [`MAX_NODES`]. The field has their number.
    TooManyNodes(usize),
    /// The network has more routers than [`MAX_ROUTERS`]. The field has their number.
    TooManyRouters(usize),
    /// The network has more links than [`MAX_LINKS`]. The field has their number.
    TooManyLinks(usize),
    /// This name belongs to two nodes.
    SameName(String),
    /// A link connects this node to itself.
    Loop(String),
    /// An end of this link is a node of another topology.
    UnknownNode(LinkId),
    /// A value of one direction of a link is out of range.
    Direction {
        /// Name of the sending node.
        from: String,
        /// Name of the receiving node.
        to: String,
        /// The value that is out of range.
        error: DirectionError,
    },
    /// There is no route between these nodes: no links lead there, or they lead only through hosts,
    /// which do not forward packets.
    NoRoute {
        /// Name of the sending node.
        from: String,
        /// Name of the destination.
        to: String,
    },
    /// Agents use all port numbers of this node, so another agent cannot be added.
    TooManyAgents(String),
}

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TopologyError::TooManyNodes(count) => {
                write!(f, "{count} nodes; a network has at most {MAX_NODES}")
            }
            TopologyError::TooManyRouters(count) => write!(
                f,
                "{count} routers and hosts with several links; a network has at most {MAX_ROUTERS}"
            ),
            TopologyError::TooManyLinks(count) => {
                write!(f, "{count} links; a network has at most {MAX_LINKS}")
            }
            TopologyError::SameName(name) => write!(f, "two nodes are called {name}"),
            TopologyError::Loop(name) => write!(f, "a link connects {name} to itself"),
            TopologyError::UnknownNode(link) => {
                write!(f, "the link {} ends at a node that is not in this topology", link.0)
            }
            TopologyError::Direction { from, to, error } => {
                write!(f, "the link from {from} to {to}: {error}")
            }
            TopologyError::NoRoute { from, to } => write!(
                f,
                "there is no route from {from} to {to}: connect them through routers, because hosts do not forward packets"
            ),
            TopologyError::TooManyAgents(name) => {
                write!(f, "{name} has 65535 agents, which use all its port numbers: use more nodes")
            }
        }
    }
}

impl std::error::Error for TopologyError {}

impl Topology {
    /// Creates a topology without nodes.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Adds a node for agents. It does not forward packets.
    pub fn host(&mut self, name: impl Into<String>) -> NodeId {
        self.node(name.into(), false)
    }

    /// Adds a node that forwards packets. Agents can be attached to it, too.
    pub fn router(&mut self, name: impl Into<String>) -> NodeId {
        self.node(name.into(), true)
    }

    fn node(&mut self, name: String, forwards: bool) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node { name, forwards });
        id
    }

    /// Adds a link with the same parameters in both directions.
    pub fn link(&mut self, one: NodeId, other: NodeId, both: Direction) -> LinkId {
        self.link_with(one, other, both.clone(), both)
    }

    /// Adds a link. `there` describes the direction from `one` to `other`, and `back` the opposite
    /// direction.
    pub fn link_with(
        &mut self,
        one: NodeId,
        other: NodeId,
        there: Direction,
        back: Direction,
    ) -> LinkId {
        let id = LinkId(self.edges.len() as u32);
        self.edges.push(Edge { ends: [one, other], directions: [there, back], cost: 1 });
        id
    }

    /// Sets the cost of a link, which is 1 by default. Packets take the route with the smallest
    /// total cost.
    pub fn set_cost(&mut self, link: LinkId, cost: u32) {
        self.edges[link.0 as usize].cost = cost;
    }

    /// Returns the direction of a link in which a port sends, or `None` if the port belongs to
    /// another topology.
    pub fn direction(&self, port: PortId) -> Option<&Direction> {
        self.edges.get(port.0 as usize / 2).map(|edge| &edge.directions[port.0 as usize % 2])
    }

    /// Returns the direction of a link in which a port sends, for modification.
    pub fn direction_mut(&mut self, port: PortId) -> &mut Direction {
        &mut self.edges[port.0 as usize / 2].directions[port.0 as usize % 2]
    }

    /// Returns the node of this name, or `None`.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let index = self.nodes.iter().position(|node| node.name == name)?;
        Some(NodeId(index as u32))
    }

    /// Returns the number of links of a node, which is its number of interfaces.
    pub fn links(&self, node: NodeId) -> usize {
        let ends = self.edges.iter().flat_map(|edge| edge.ends);
        ends.filter(|end| *end == node).count()
    }

    /// Returns the name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(node.0 as usize).map_or("?", |node| &node.name)
    }

    /// Checks that the network is valid.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.nodes.len() > MAX_NODES {
            return Err(TopologyError::TooManyNodes(self.nodes.len()));
        }
        if self.edges.len() > MAX_LINKS {
            return Err(TopologyError::TooManyLinks(self.edges.len()));
        }
        let mut names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TopologyError::SameName(pair[0].to_owned()));
        }
        for (index, edge) in self.edges.iter().enumerate() {
            self.check_edge(LinkId(index as u32), edge)?;
        }
        let routers = routes::core(self).count();
        if routers > MAX_ROUTERS {
            return Err(TopologyError::TooManyRouters(routers));
        }
        Ok(())
    }

    fn check_edge(&self, id: LinkId, edge: &Edge) -> Result<(), TopologyError> {
        let [one, other] = edge.ends;
        if edge.ends.iter().any(|end| end.0 as usize >= self.nodes.len()) {
            return Err(TopologyError::UnknownNode(id));
        }
        if one == other {
            return Err(TopologyError::Loop(self.name(one).to_owned()));
        }
        for (direction, [from, to]) in edge.directions.iter().zip([[one, other], [other, one]]) {
            direction.check().map_err(|error| TopologyError::Direction {
                from: self.name(from).to_owned(),
                to: self.name(to).to_owned(),
                error,
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn topology_errors_name_the_nodes() {
        let good = || Direction::new(1_000_000, Duration::ZERO);
        let (mut topology, mut other) = (Topology::new(), Topology::new());
        let [one, two] = [topology.host("one"), topology.host("two")];
        topology.link(one, two, good());
        assert_eq!(topology.check(), Ok(()));

        let mut same = topology.clone();
        same.host("one");
        assert_eq!(same.check(), Err(TopologyError::SameName("one".to_owned())));

        let mut looped = topology.clone();
        looped.link(two, two, good());
        assert_eq!(looped.check(), Err(TopologyError::Loop("two".to_owned())));

        let stranger = (0..5).map(|index| other.host(format!("{index}"))).last().unwrap();
        let mut unknown = topology.clone();
        let link = unknown.link(one, stranger, good());
        assert_eq!(unknown.check(), Err(TopologyError::UnknownNode(link)));

        let mut still = topology.clone();
        still.link_with(two, one, good(), Direction::new(0, Duration::ZERO));
        let said = still.check().unwrap_err().to_string();
        assert_eq!(said, "the link from one to two: the rate is 0, so no packet would be sent");

        let mut large = topology.clone();
        for index in 0..=MAX_ROUTERS {
            large.router(format!("router {index}"));
        }
        assert_eq!(large.check(), Err(TopologyError::TooManyRouters(MAX_ROUTERS + 1)));
        for index in 0..MAX_NODES {
            large.host(format!("host {index}"));
        }
        assert!(matches!(large.check(), Err(TopologyError::TooManyNodes(_))));
    }
}
