//! Reads the table `[network]`: a named topology, or a graph.

use std::time::Duration;

use equic_sim::{Direction, IpVersion};

use super::link::link;
use super::table::{Reader, Table, boolean, name};
use crate::keys::{LINK, NETWORK, NODE};
use crate::model::{Link, Network, Topology};

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    Simple,
    Dumbbell,
    ParkingLot,
    TwoPath,
    Graph,
}

const SHAPES: [(&str, Shape); 5] = [
    ("simple", Shape::Simple),
    ("dumbbell", Shape::Dumbbell),
    ("parking-lot", Shape::ParkingLot),
    ("two-path", Shape::TwoPath),
    ("graph", Shape::Graph),
];

/// Keys that are permitted only for some topologies.
const OF_SHAPES: [(&str, &[&str]); 5] = [
    ("link", &["simple", "dumbbell"]),
    ("pairs", &["dumbbell"]),
    ("access", &["dumbbell", "parking-lot"]),
    ("links", &["parking-lot", "two-path", "graph"]),
    ("node", &["graph"]),
];

/// Largest number of host pairs of a dumbbell, and of links in a list of links.
pub(crate) const MAX_PAIRS: u64 = 100_000;

pub(super) fn network(reader: &mut Reader, top: &Table<'_, '_>) -> Option<Network> {
    if !top.has("network") {
        top.complain(reader, "network", "this table is missing");
    }
    let table = top.inner(reader, "network", &NETWORK)?;
    let versions = [("v4", IpVersion::V4), ("v6", IpVersion::V6)];
    let ip = table.choice(reader, "ip", &versions).unwrap_or_default();
    if !table.has("topology") {
        table.complain(reader, "topology", "this key is missing");
    }
    let shape = table.choice(reader, "topology", &SHAPES)?;
    let named = SHAPES[shape as usize].0;
    for (key, of) in OF_SHAPES {
        if table.has(key) && !of.contains(&named) {
            let message = format!("this is a key of {}, not of {named}", of.join(" and "));
            table.complain(reader, key, message);
        }
    }
    let topology = match shape {
        Shape::Simple => Topology::Simple(the_link(reader, &table)?),
        Shape::Dumbbell => {
            let pairs = table.whole(reader, "pairs").unwrap_or(2);
            let access = access(reader, &table);
            let bottleneck = the_link(reader, &table)?;
            Topology::Dumbbell { pairs: pairs as usize, bottleneck, access: access? }
        }
        Shape::ParkingLot => {
            let access = access(reader, &table);
            Topology::ParkingLot { links: row(reader, &table, 1, MAX_PAIRS)?, access: access? }
        }
        Shape::TwoPath => {
            let links: Result<[Link; 2], _> = row(reader, &table, 2, 2)?.try_into();
            Topology::TwoPath(Box::new(links.ok()?))
        }
        Shape::Graph => graph(reader, &table)?,
    };
    Some(Network { ip, topology })
}

fn the_link(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Box<Link>> {
    if !table.has("link") {
        table.complain(reader, "link", "this table is missing");
    }
    let inner = table.inner(reader, "link", &LINK)?;
    no_ends(reader, &inner);
    link(reader, &inner).map(Box::new)
}

/// Reads the access links, which connect hosts to their routers. The defaults are the values of the
/// nsQUIC thesis.
fn access(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Box<Link>> {
    let Some(inner) = table.inner(reader, "access", &LINK) else {
        let usual = Direction::new(1_000_000_000, Duration::from_millis(10));
        return Some(Box::new(Link { there: usual.clone(), back: usual }));
    };
    no_ends(reader, &inner);
    link(reader, &inner).map(Box::new)
}

fn no_ends(reader: &mut Reader, table: &Table<'_, '_>) {
    for key in ["from", "to"] {
        if table.has(key) {
            table.complain(reader, key, "only links of the topology `graph` have this key");
        }
    }
}

/// Reads the links between the routers of a parking lot (a row of routers).
fn row(reader: &mut Reader, table: &Table<'_, '_>, least: u64, most: u64) -> Option<Vec<Link>> {
    let inners = table.inners(reader, "links", &LINK);
    let mut links = Vec::new();
    for inner in &inners {
        no_ends(reader, inner);
        links.extend(link(reader, inner));
    }
    let count = inners.len() as u64;
    if !(least..=most).contains(&count) {
        let wanted = if least == most { least.to_string() } else { format!("at least {least}") };
        table.complain(
            reader,
            "links",
            format!("the list has {count} links, but it must have {wanted}"),
        );
        return None;
    }
    (links.len() == inners.len()).then_some(links)
}

fn graph(reader: &mut Reader, table: &Table<'_, '_>) -> Option<Topology> {
    let mut nodes: Vec<(String, bool)> = Vec::new();
    for node in table.inners(reader, "node", &NODE) {
        let router = node.read(reader, "router", boolean).unwrap_or(false);
        let Some(name) = node.need(reader, "name", name) else { continue };
        if nodes.iter().any(|(other, _)| *other == name) {
            node.complain(reader, "name", format!("two nodes are called {name}"));
        }
        nodes.push((name, router));
    }
    let mut links = Vec::new();
    let inners = table.inners(reader, "links", &LINK);
    for inner in &inners {
        let mut end = |key: &'static str| -> Option<usize> {
            let wanted = inner.need(reader, key, name)?;
            let found = nodes.iter().position(|(name, _)| *name == wanted);
            if found.is_none() {
                inner.complain(reader, key, format!("there is no node called {wanted}"));
            }
            found
        };
        let (from, to) = (end("from"), end("to"));
        if from.is_some() && from == to {
            inner.complain(reader, "to", "a link must connect two different nodes");
        }
        let made = link(reader, inner);
        if let (Some(from), Some(to), Some(made)) = (from, to, made) {
            links.push((from, to, made));
        }
    }
    if inners.is_empty() {
        table.complain(reader, "links", "a graph needs at least one link");
    }
    Some(Topology::Graph { nodes, links })
}
