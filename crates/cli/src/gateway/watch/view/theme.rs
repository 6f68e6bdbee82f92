//! Colours and signs of the dashboard, with replacements for terminals that do not support them.
//!
//! No information is lost without colours: they only repeat what the text says, and the selection
//! is shown in reverse video.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{bar, border};
use ratatui::text::Span;
use ratatui::widgets::Block;

/// Style of the screen: colours, and Unicode or ASCII.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub colour: bool,
    pub unicode: bool,
}

const ASCII_BORDER: border::Set = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
const ASCII_BARS: bar::Set = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "=",
    half: "=",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

impl Theme {
    fn fg(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Style for things that are in order.
    pub(crate) fn good(self) -> Style {
        self.fg(Color::Green)
    }

    /// Style for things that need attention.
    pub(crate) fn warning(self) -> Style {
        self.fg(Color::Yellow)
    }

    /// Style for things that are dropped, denied or gone.
    pub(crate) fn bad(self) -> Style {
        self.fg(Color::Red)
    }

    /// Style for unimportant text.
    pub(crate) fn faint(self) -> Style {
        self.fg(Color::DarkGray)
    }

    /// Style for the most important parts.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style for names and keys.
    pub(crate) fn accent(self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Style for the selected row.
    pub(crate) fn chosen(self) -> Style {
        if self.colour {
            Style::new().bg(Color::Indexed(236)).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    /// Returns a word in reverse video.
    pub(crate) fn badge(self, text: &str, style: Style) -> Span<'static> {
        Span::styled(format!(" {text} "), style.add_modifier(Modifier::BOLD | Modifier::REVERSED))
    }

    /// Returns a frame. The frame of the focused panel is highlighted.
    pub(crate) fn frame(self, focused: bool) -> Block<'static> {
        let style = if focused { self.fg(Color::Cyan) } else { self.faint() };
        let set = if self.unicode { border::ROUNDED } else { ASCII_BORDER };
        Block::bordered().border_set(set).border_style(style)
    }

    pub(crate) fn bars(self) -> bar::Set<'static> {
        if self.unicode { bar::NINE_LEVELS } else { ASCII_BARS }
    }

    /// Returns a bar of `width` columns. `share`, from 0 to 1, is the part that is filled.
    pub(crate) fn bar(self, share: f64, width: usize) -> String {
        const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        let filled = share * width as f64;
        if !self.unicode {
            return "#".repeat(filled.round() as usize);
        }
        let whole = filled as usize;
        let rest = ((filled - whole as f64) * 8.0) as usize;
        // A share above zero must be visible, so draw at least the smallest block.
        let rest = if whole == 0 && share > 0.0 { rest.max(1) } else { rest };
        format!("{}{}", "█".repeat(whole), EIGHTHS[rest.min(7)])
    }

    pub(crate) fn dot(self) -> &'static str {
        if self.unicode { "●" } else { "*" }
    }

    pub(crate) fn between(self) -> &'static str {
        if self.unicode { " · " } else { " | " }
    }

    pub(crate) fn arrows(self) -> &'static str {
        if self.unicode { "↑↓" } else { "jk" }
    }
}
