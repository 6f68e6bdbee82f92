//! Draws flame graphs (Gregg 2011), which show the share of samples of each call chain, as one SVG
//! file without scripts. A tooltip on each box shows its name and share.

use std::collections::BTreeMap;

use super::classify::{Part, classify};
use super::script::{Frame, Stack};
use crate::result::html::esc;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const TOP: f64 = 34.0;
/// Minimum width of a box. Narrower boxes are not drawn.
const NARROW: f64 = 0.4;
/// Minimum share of samples that one kind of work must have in a box, so that the box gets its
/// colour.
const SAME: f64 = 0.8;
/// Maximum depth of the graph, which also limits recursion.
const DEEPEST: usize = 128;
/// Approximate width of a character, in pixels.
const CHARACTER: f64 = 6.6;

/// Returns the stacks as sorted lines of `outermost;...;innermost count`, which other flame graph
/// tools read.
#[must_use]
pub fn folded(stacks: &[Stack<'_>]) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for stack in stacks {
        let frames = named(stack).map(|frame| frame.symbol.replace(';', ":"));
        let names: Vec<String> =
            std::iter::once(stack.thread.replace(';', ":")).chain(frames).collect();
        *counts.entry(names.join(";")).or_insert(0) += 1;
    }
    counts.iter().map(|(stack, count)| format!("{stack} {count}\n")).collect()
}

/// Returns the frames of a stack, outermost first. Skips the frame without a name that perf adds at
/// the end of a stack.
fn named<'a>(stack: &'a Stack<'a>) -> impl Iterator<Item = &'a Frame<'a>> {
    let nameless = |frame: &&Frame<'_>| frame.symbol == "[unknown]" && frame.object == "[unknown]";
    stack.frames.iter().rev().skip_while(nameless)
}

#[derive(Default)]
struct Node<'a> {
    total: u64,
    /// Number of samples of each kind of work, which determine the colour: crypto, packet I/O,
    /// protocol, other.
    parts: [u64; 4],
    callees: BTreeMap<&'a str, Node<'a>>,
}

impl Node<'_> {
    fn depth(&self) -> usize {
        1 + self.callees.values().map(Node::depth).max().unwrap_or(0)
    }

    /// Returns the CSS class of the kind of work to which nearly all samples belong, if there is
    /// one.
    fn class(&self) -> &'static str {
        let most = self.parts.iter().max().copied().unwrap_or(0);
        if (most as f64) < SAME * self.total as f64 {
            return "m";
        }
        let index = self.parts.iter().position(|part| *part == most).unwrap_or(3);
        ["c", "i", "p", "o"][index]
    }
}

/// Returns the flame graph as an SVG document.
#[must_use]
pub fn flamegraph(stacks: &[Stack<'_>], title: &str) -> String {
    let mut root = Node::default();
    for stack in stacks {
        let part = match classify(stack) {
            Part::Crypto => 0,
            Part::PacketIo => 1,
            Part::Protocol => 2,
            Part::Other => 3,
        };
        let mut node = &mut root;
        node.total += 1;
        node.parts[part] += 1;
        for frame in named(stack).take(DEEPEST) {
            node = node.callees.entry(frame.symbol).or_default();
            node.total += 1;
            node.parts[part] += 1;
        }
    }
    let height = TOP + ROW * root.depth() as f64 + 30.0;
    let mut boxes = String::new();
    draw(&root, "all", (0.0, height - 30.0 - ROW), root.total.max(1), &mut boxes);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"DejaVu Sans Mono, monospace\" font-size=\"11\"><style>{STYLE}</style>\
         <rect width=\"100%\" height=\"100%\" class=\"page\"/>\
         <text x=\"8\" y=\"20\" class=\"title\">{}</text>{boxes}{}</svg>\n",
        esc(title),
        legend(height - 8.0)
    )
}

const STYLE: &str = ".page{fill:#fff}.title{font-size:14px;font-weight:bold}text{fill:#111}\
    rect{stroke:#fff;stroke-width:.5}.c{fill:#f2a071}.i{fill:#8cc3ea}.p{fill:#8fd6bb}.o{fill:#c9c9c9}.m{fill:#efebdf}";

fn legend(y: f64) -> String {
    let parts = [
        ("c", "crypto"),
        ("i", "packet I/O"),
        ("p", "protocol"),
        ("o", "other"),
        ("m", "of several"),
    ];
    let mut legend = String::new();
    for (index, (class, name)) in parts.into_iter().enumerate() {
        let x = 8.0 + 110.0 * index as f64;
        legend += &format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{:.1}\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            y - 10.0,
            x + 17.0
        );
    }
    legend
}

/// Returns as much of a name as fits into a box, with a mark if the name is cut off.
fn label(name: &str, fits: usize) -> String {
    if name.chars().count() <= fits {
        return name.to_owned();
    }
    match fits {
        0..=3 => String::new(),
        _ => name.chars().take(fits - 2).chain("..".chars()).collect(),
    }
}

fn draw(node: &Node<'_>, name: &str, (x, y): (f64, f64), all: u64, boxes: &mut String) {
    let scale = (WIDTH - 16.0) / all as f64;
    let width = node.total as f64 * scale;
    if width < NARROW {
        return;
    }
    let share = 100.0 * node.total as f64 / all as f64;
    let fits = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let label = label(name, fits);
    *boxes += &format!(
        "<g><title>{}: {} samples, {share:.1} %</title><rect class=\"{}\" x=\"{:.1}\" y=\"{y:.1}\" \
         width=\"{width:.1}\" height=\"{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        esc(name),
        node.total,
        node.class(),
        8.0 + x,
        ROW - 1.0,
        11.0 + x,
        y + 12.0,
        esc(&label)
    );
    let mut at = x;
    for (name, callee) in &node.callees {
        draw(callee, name, (at, y - ROW), all, boxes);
        at += callee.total as f64 * scale;
    }
}
