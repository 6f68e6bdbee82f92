//! Draws shapes and text as SVG elements. Only this file uses the `svg` library.

use svg::Node as _;
use svg::node::element::{ClipPath, Description, Group, Line, Path, Rectangle, Text, Title};

/// A rectangle in pixels. The y coordinate increases downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(super) fn middle(&self) -> f64 {
        f64::midpoint(self.left, self.right)
    }
}

/// Horizontal alignment of a text relative to its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Size and style of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Font {
    pub size: f64,
    pub bold: bool,
    pub colour: &'static str,
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stroke {
    pub colour: &'static str,
    pub width: f64,
    /// Dash pattern, as in SVG's stroke-dasharray. It is empty for a solid line.
    pub dashes: &'static str,
}

/// A picture under construction.
pub(super) struct Canvas {
    document: svg::Document,
}

impl Canvas {
    /// Creates a white picture, with a title and a description for screen readers.
    pub(super) fn new(width: u32, height: u32, title: &str, description: &str) -> Self {
        // Verdana has the same letter widths as DejaVu Sans, so the layout fits with either font.
        let mut document = svg::Document::new()
            .set("width", width)
            .set("height", height)
            .set("viewBox", (0, 0, width, height))
            .set("font-family", "'DejaVu Sans', Verdana, sans-serif")
            .set("role", "img")
            .add(Title::new(legal(title)));
        if !description.is_empty() {
            document.append(Description::new().add(svg::node::Text::new(legal(description))));
        }
        document.append(
            Rectangle::new().set("width", width).set("height", height).set("fill", "#ffffff"),
        );
        Self { document }
    }

    pub(super) fn rectangle(&mut self, area: Area, fill: &'static str) {
        self.document.append(
            Rectangle::new()
                .set("x", round(area.left))
                .set("y", round(area.top))
                .set("width", round(area.width().max(0.0)))
                .set("height", round(area.height().max(0.0)))
                .set("fill", fill),
        );
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke) {
        let line = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", stroke.colour)
            .set("stroke-width", stroke.width);
        self.document.append(if stroke.dashes.is_empty() {
            line
        } else {
            line.set("stroke-dasharray", stroke.dashes)
        });
    }

    /// Draws text whose baseline is at `y`. If `upright` is false, the text is rotated by 90
    /// degrees to the left.
    pub(super) fn text(
        &mut self,
        x: f64,
        y: f64,
        text: &str,
        anchor: Anchor,
        font: Font,
        upright: bool,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let mut element = Text::new(legal(text))
            .set("x", round(x))
            .set("y", round(y))
            .set("font-size", font.size)
            .set("fill", font.colour)
            .set("text-anchor", anchor);
        if font.bold {
            element = element.set("font-weight", "bold");
        }
        if !upright {
            element = element.set("transform", format!("rotate(-90 {} {})", round(x), round(y)));
        }
        self.document.append(element);
    }

    /// Draws upright text that is centred at `x`. A white outline separates it from lines behind
    /// it.
    pub(super) fn rimmed_text(&mut self, x: f64, y: f64, text: &str, font: Font) {
        let element = Text::new(legal(text))
            .set("x", round(x))
            .set("y", round(y))
            .set("font-size", font.size)
            .set("fill", font.colour)
            .set("text-anchor", "middle")
            .set("stroke", "#ffffff")
            .set("stroke-width", 3)
            .set("stroke-linejoin", "round")
            .set("paint-order", "stroke");
        self.document.append(element);
    }

    /// Draws curves inside `area`. Each curve is a list of runs, and each run is a list of
    /// connected points.
    pub(super) fn curves<'a>(
        &mut self,
        area: Area,
        curves: impl IntoIterator<Item = (&'a [Vec<(f64, f64)>], Stroke)>,
    ) {
        let clip = Rectangle::new()
            .set("x", round(area.left))
            .set("y", round(area.top - 2.0))
            .set("width", round(area.width()))
            .set("height", round(area.height() + 4.0));
        self.document.append(ClipPath::new().set("id", "plot").add(clip));
        let mut group = Group::new()
            .set("clip-path", "url(#plot)")
            .set("fill", "none")
            .set("stroke-linejoin", "round")
            .set("stroke-linecap", "round");
        for (runs, stroke) in curves {
            let path = Path::new()
                .set("d", path(runs))
                .set("stroke", stroke.colour)
                .set("stroke-width", stroke.width);
            group.append(if stroke.dashes.is_empty() {
                path
            } else {
                path.set("stroke-dasharray", stroke.dashes)
            });
        }
        self.document.append(group);
    }

    pub(super) fn finish(self) -> String {
        format!("{}\n", self.document)
    }
}

/// Returns the `d` attribute of an SVG path. Leaves out points that are closer than a quarter of a
/// pixel to the last one. This is invisible, and it limits the size of the file if a distribution
/// has a million values.
fn path(runs: &[Vec<(f64, f64)>]) -> String {
    use std::fmt::Write as _;
    let mut d = String::new();
    for run in runs {
        let mut before: Option<(f64, f64)> = None;
        for (index, &(x, y)) in run.iter().enumerate() {
            let near =
                before.is_some_and(|(px, py)| (x - px).abs() < 0.25 && (y - py).abs() < 0.25);
            if near && index + 1 < run.len() {
                continue;
            }
            let command = if before.is_none() { 'M' } else { 'L' };
            // Writing to a String cannot fail.
            let _ = write!(d, "{command}{} {}", round(x), round(y));
            before = Some((x, y));
        }
        if let [(x, y)] = run[..] {
            // A run with only one point becomes a line of length zero. Because the ends of the line
            // are round, it is drawn as a dot.
            let _ = write!(d, "L{} {}", round(x), round(y));
        }
    }
    d
}

/// Rounds a coordinate to hundredths of a pixel.
fn round(value: f64) -> f64 {
    let rounded = (value * 100.0).round() / 100.0;
    // This replaces "-0" with "0".
    if rounded == 0.0 { 0.0 } else { rounded }
}

/// Removes control characters. XML 1.0 cannot represent most of them, not even as escapes (section
/// 2.2, Char).
fn legal(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
            _ => c,
        })
        .collect()
}
