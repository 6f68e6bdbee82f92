//! Parts that all plots share: size, title, legend, axes, grid, and colours.

use super::axis::{Fit, Scale};
use super::canvas::{Anchor, Area, Canvas, Font, Stroke};
use super::text;
use super::{Axis, MAX_SIDE, MIN_SIDE, PlotError};

const INK: &str = "#1f2933";
const FAINT: &str = "#52606d";
const GRID: &str = "#dde3ea";
const AXIS: &str = "#7b8794";

pub(super) const TITLE: Font = Font { size: 20.0, bold: true, colour: INK };
pub(super) const SUBTITLE: Font = Font { size: 14.0, bold: false, colour: FAINT };
pub(super) const LEGEND: Font = Font { size: 14.0, bold: false, colour: INK };
pub(super) const AXIS_TITLE: Font = Font { size: 14.0, bold: false, colour: INK };
pub(super) const TICK: Font = Font { size: 13.0, bold: false, colour: FAINT };
pub(super) const LABEL: Font = Font { size: 13.0, bold: false, colour: INK };

const MARGIN: f64 = 24.0;

/// The colours of Okabe and Ito (2008), ordered by their contrast with white. Yellow is omitted
/// because its contrast is too low. Grey replaces black, because black is the colour of text.
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4a4a4a"];
/// Dash patterns of lines. Their number and the number of colours have no common factor, so each of
/// the first 35 lines has a different combination.
const DASHES: [&str; 5] = ["", "9 4", "2 4", "12 4 2 4", "5 3"];

/// Returns the colour of series number `index`.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Returns the line style of series number `index`.
pub(super) fn stroke(index: usize) -> Stroke {
    Stroke { colour: colour(index), width: 2.25, dashes: DASHES[index % DASHES.len()] }
}

/// Title, subtitle and size (in pixels) of a plot.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub title: String,
    pub subtitle: String,
    pub width: u32,
    pub height: u32,
}

/// Defines the methods with which callers set the `frame` of a plot.
macro_rules! framed {
    () => {
        /// Sets the subtitle, a second line below the title.
        #[must_use]
        pub fn subtitle(mut self, subtitle: impl Into<String>) -> Self {
            self.frame.subtitle = subtitle.into();
            self
        }

        /// Sets the size in pixels. Width and height must each be from [`super::MIN_SIDE`] to
        /// [`super::MAX_SIDE`].
        #[must_use]
        pub fn size(mut self, width: u32, height: u32) -> Self {
            (self.frame.width, self.frame.height) = (width, height);
            self
        }
    };
}
pub(super) use framed;

/// The symbol before the name of a legend entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    Line(Stroke),
    Box(&'static str),
}

/// A plot whose title and legend are drawn and whose axes fit the values.
pub(super) struct Fitted {
    /// The area in which values are drawn.
    pub plot: Area,
    pub x: Scale,
    pub y: Scale,
}

impl Frame {
    pub(super) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), subtitle: String::new(), width: 1200, height: 600 }
    }

    /// Creates an empty canvas of the frame's size, with title and subtitle for screen readers.
    pub(super) fn canvas(&self) -> Result<Canvas, PlotError> {
        let range = MIN_SIDE..=MAX_SIDE;
        if !range.contains(&self.width) || !range.contains(&self.height) {
            return Err(PlotError::Size { width: self.width, height: self.height });
        }
        Ok(Canvas::new(self.width, self.height, &self.title, &self.subtitle))
    }

    /// Draws title, subtitle and legend. Returns the first free row of pixels below them.
    pub(super) fn head(&self, canvas: &mut Canvas, legend: &[(&str, Sign)]) -> f64 {
        let room = f64::from(self.width) - 2.0 * MARGIN;
        let mut y = 14.0;
        // In a picture of small height, the title may take only one line.
        let lines = if self.height < 400 { 1 } else { 2 };
        // `wrap` assumes normal letters, and bold letters are wider.
        for line in text::wrap(&self.title, room / 1.13, TITLE.size, 2) {
            y += 24.0;
            canvas.text(MARGIN, y, &line, Anchor::Start, TITLE, true);
        }
        for line in text::wrap(&self.subtitle, room, SUBTITLE.size, lines) {
            y += 22.0;
            canvas.text(MARGIN, y, &line, Anchor::Start, SUBTITLE, true);
        }
        y += 12.0;
        let mut x = MARGIN;
        if !legend.is_empty() {
            y += 18.0;
        }
        for (label, sign) in legend {
            let label = text::wrap(label, room - 40.0, LEGEND.size, 1).concat();
            let indent = match sign {
                Sign::Line(_) => 36.0,
                Sign::Box(_) => 24.0,
            };
            let width = indent + text::width(&label, LEGEND.size, false);
            if x > MARGIN && x + width > MARGIN + room {
                x = MARGIN;
                y += 22.0;
            }
            match sign {
                Sign::Line(stroke) => {
                    let thick = Stroke { width: 3.0, ..*stroke };
                    canvas.line((x, y - 5.0), (x + 28.0, y - 5.0), thick);
                }
                Sign::Box(fill) => {
                    let swatch = Area { left: x, top: y - 12.0, right: x + 16.0, bottom: y + 2.0 };
                    canvas.rectangle(swatch, fill);
                }
            }
            canvas.text(x + indent, y, &label, Anchor::Start, LEGEND, true);
            x += width + 28.0;
        }
        y + 14.0
    }

    /// Fits both axes into the space below `top`. Reserves `foot` pixels at the bottom for the
    /// labels of the x axis.
    pub(super) fn fit(
        &self,
        top: f64,
        foot: f64,
        (x_axis, x_fit): (&Axis, Fit),
        (y_axis, y_fit): (&Axis, Fit),
    ) -> Result<Fitted, PlotError> {
        let right = f64::from(self.width) - MARGIN - 8.0;
        // In a small picture, title and legend may need all the height. The plot then extends
        // beyond the picture, because its height must not be negative.
        let bottom = (f64::from(self.height) - foot).max(top + 40.0);
        let y = Scale::new(y_axis, y_fit, bottom, top)?;
        let labels = y.ticks.iter().map(|tick| text::width(&tick.label, TICK.size, false));
        let left = MARGIN + 24.0 + labels.fold(0.0, f64::max) + 8.0;
        let left = left.min(right - 40.0);
        let x = Scale::new(x_axis, x_fit, left, right)?;
        Ok(Fitted { plot: Area { left, top, right, bottom }, x, y })
    }
}

/// Height in pixels that the ticks and the title of the x axis need.
pub(super) const FOOT: f64 = 66.0;

impl Fitted {
    /// Draws grid lines, behind the values.
    pub(super) fn grid(&self, canvas: &mut Canvas, vertical: bool) {
        let Area { left, right, top, bottom } = self.plot;
        let stroke = |tick: &super::axis::Tick| Stroke {
            colour: GRID,
            width: if tick.label.is_empty() { 0.5 } else { 1.0 },
            dashes: "",
        };
        for tick in &self.y.ticks {
            canvas.line((left, tick.at), (right, tick.at), stroke(tick));
        }
        for tick in self.x.ticks.iter().filter(|_| vertical) {
            canvas.line((tick.at, top), (tick.at, bottom), stroke(tick));
        }
    }

    /// Draws the y axis with labels and title, and the line of the x axis.
    pub(super) fn y_axis(&self, canvas: &mut Canvas) {
        let Area { left, right, top, bottom } = self.plot;
        for tick in self.y.ticks.iter().filter(|tick| !tick.label.is_empty()) {
            canvas.text(left - 8.0, tick.at + 4.5, &tick.label, Anchor::End, TICK, true);
        }
        let axis = Stroke { colour: AXIS, width: 1.25, dashes: "" };
        canvas.line((left, bottom), (right, bottom), axis);
        let room = bottom - top + 40.0;
        let title = text::wrap(&self.y.title, room, AXIS_TITLE.size, 1).concat();
        let middle = f64::midpoint(top, bottom);
        canvas.text(MARGIN + 8.0, middle, &title, Anchor::Middle, AXIS_TITLE, false);
    }

    /// Draws the x axis with ticks, labels and title.
    pub(super) fn x_axis(&self, canvas: &mut Canvas) {
        let bottom = self.plot.bottom;
        let axis = Stroke { colour: AXIS, width: 1.25, dashes: "" };
        for tick in &self.x.ticks {
            let length = if tick.label.is_empty() { 3.0 } else { 6.0 };
            canvas.line((tick.at, bottom), (tick.at, bottom + length), axis);
            canvas.text(tick.at, bottom + 21.0, &tick.label, Anchor::Middle, TICK, true);
        }
        self.x_title(canvas, bottom + 48.0);
    }

    /// Draws the title of the x axis, with its baseline at `y`.
    pub(super) fn x_title(&self, canvas: &mut Canvas, y: f64) {
        let title = text::wrap(&self.x.title, self.plot.width(), AXIS_TITLE.size, 1).concat();
        canvas.text(self.plot.middle(), y, &title, Anchor::Middle, AXIS_TITLE, true);
    }
}
