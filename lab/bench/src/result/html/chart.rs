//! Shapes that all plots of `report.html` use. Lengths are in pixels of the viewBox.

use super::text::esc;

/// A plot's axis: its range of values, and its range in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub from: f64,
    pub to: f64,
    pub logarithmic: bool,
}

impl Axis {
    /// Returns an axis from zero to a round number above `high`.
    pub(super) fn from_zero(high: f64, from: f64, to: f64) -> Axis {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let step = step(high);
        Axis { low: 0.0, high: (high / step).ceil() * step, from, to, logarithmic: false }
    }

    /// Returns the position of a value on the axis, in pixels.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + part * (self.to - self.from)
    }

    /// Returns round numbers along a linear axis, for its ticks.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let step = step(self.high - self.low);
        let count = ((self.high - self.low) / step + 1e-9).floor() as usize;
        (0..=count).map(|i| self.low + step * i as f64).collect()
    }
}

/// Returns a round number that divides `range` into about five steps.
fn step(range: f64) -> f64 {
    let raw = range / 5.0;
    let power = 10_f64.powf(raw.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|step| *step >= raw * 0.999).unwrap_or(raw)
}

/// Formats a value with enough decimals to distinguish two ticks of this axis.
pub(super) fn tick_text(axis: &Axis, value: f64) -> String {
    let step = step(axis.high - axis.low);
    let decimals = (0..6).find(|digits| {
        let scaled = step * 10_f64.powi(*digits);
        (scaled - scaled.round()).abs() < 1e-6
    });
    format!("{value:.*}", usize::try_from(decimals.unwrap_or(2)).unwrap_or(2))
}

pub(super) fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#)
}

/// Draws a rectangle with a tooltip.
pub(super) fn rect(class: &str, x: f64, y: f64, width: f64, height: f64, title: &str) -> String {
    let title = titled(title);
    let width = width.max(0.0);
    format!(
        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}">{title}</rect>"#
    )
}

pub(super) fn dot(class: &str, x: f64, y: f64, radius: f64, title: &str) -> String {
    let title = titled(title);
    format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius}">{title}</circle>"#)
}

/// Draws a text. `class` determines its alignment at `x`.
pub(super) fn text(class: &str, x: f64, y: f64, text: &str) -> String {
    format!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{}</text>"#, esc(text))
}

fn titled(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", esc(title)) }
}

/// Returns a drawing that can be scrolled horizontally, also by keyboard, if the window is narrow.
pub(super) fn figure(width: f64, height: f64, label: &str, caption: &str, shapes: &str) -> String {
    let label = esc(label);
    let caption = if caption.is_empty() {
        String::new()
    } else {
        format!("<figcaption>{}</figcaption>", esc(caption))
    };
    format!(
        "<figure><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\
         <svg role=\"img\" aria-label=\"{label}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         style=\"max-width:{width:.0}px\">{shapes}</svg></div>{caption}</figure>\n"
    )
}

/// Draws the ticks, the grid and the title of a horizontal axis, from `top` to `bottom`.
pub(super) fn x_axis(axis: &Axis, top: f64, bottom: f64, title: &str) -> String {
    let mut shapes = String::new();
    for tick in axis.ticks() {
        let x = axis.at(tick);
        shapes += &line("grid", x, top, x, bottom);
        shapes += &text("tick mid", x, bottom + 16.0, &tick_text(axis, tick));
    }
    shapes += &line("axis", axis.from, bottom, axis.to, bottom);
    shapes += &text("label mid", f64::midpoint(axis.from, axis.to), bottom + 34.0, title);
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_axis_has_round_ticks() {
        let axis = Axis::from_zero(6.3, 100.0, 600.0);
        assert_eq!(axis.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!((axis.at(0.0), axis.at(8.0)), (100.0, 600.0));
        assert_eq!(tick_text(&axis, 2.0), "2");
        let fine = Axis::from_zero(0.11, 0.0, 1.0);
        assert_eq!(fine.ticks().len(), 6);
        assert_eq!(tick_text(&fine, 0.05), "0.050");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Axis::from_zero(bad, 0.0, 1.0).ticks().len(), 6);
        }
        let log = Axis { low: 1.0, high: 100.0, from: 0.0, to: 10.0, logarithmic: true };
        assert_eq!(log.at(10.0), 5.0);
    }
}
