//! Aligned tables for a terminal.
//!
//! A [`Table`] has [`Column`]s and rows of [`Cell`]s. Columns of text are left-aligned. Columns of
//! numbers are right-aligned and have the unit in the header. [`Table::render`] formats the table
//! for a [`Style`]: with or without colours, with Unicode or ASCII lines, and for a given width.
//! The width is counted in columns of the terminal: `é` takes one, `漢` two. Use [`Style::stdout`]
//! for printing, and [`Style::plain`] for tests and files.

use std::io::IsTerminal as _;

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, TableStyle,
};

/// How a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// If `true`, the table has colours and bold text.
    pub colour: bool,
    /// If `true`, lines are drawn with Unicode characters, otherwise with ASCII.
    pub unicode: bool,
    /// Width of the terminal in columns. Text is wrapped to fit into it, but numbers are not.
    /// `None` means that the width is unlimited.
    pub width: Option<u16>,
}

impl Style {
    /// Returns a style without colours and without a width limit, for files, pipes and tests.
    #[must_use]
    pub const fn plain() -> Self {
        Self { colour: false, unicode: true, width: None }
    }

    /// Returns the style for the current standard output. It has colours only if standard output is
    /// a terminal that is not `dumb`, and `NO_COLOR` is unset or empty (<https://no-color.org>).
    /// The width is that of the terminal. Lines are Unicode, unless the locale names another
    /// character set.
    #[must_use]
    pub fn stdout() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let terminal = std::io::stdout().is_terminal();
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| variable(name));
        Self::decide(
            terminal,
            variable("NO_COLOR").is_some(),
            variable("TERM").is_some_and(|term| term == "dumb"),
            locale.as_ref().and_then(|locale| locale.to_str()),
            terminal.then(|| comfy_table::Table::new().width()).flatten(),
        )
    }

    fn decide(
        terminal: bool,
        no_color: bool,
        dumb: bool,
        locale: Option<&str>,
        width: Option<u16>,
    ) -> Self {
        // On current Linux systems, the locales `C` and `POSIX` say nothing about the terminal's
        // character set. Only a locale that names a character set other than UTF-8 does.
        let charset = locale.and_then(|locale| locale.split_once('.')).map(|(_, charset)| charset);
        let unicode = charset.is_none_or(|charset| {
            let charset = charset.to_ascii_lowercase();
            charset.starts_with("utf-8") || charset.starts_with("utf8")
        });
        // A terminal that reports 0 columns does not know its width.
        Self {
            colour: terminal && !no_color && !dumb,
            unicode,
            width: width.filter(|&width| width > 0),
        }
    }
}

/// The meaning that the colour of a cell has. Colours only repeat what the text says, so nothing is
/// lost without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No special meaning.
    #[default]
    Normal,
    /// Good (green).
    Good,
    /// Something needs attention (yellow).
    Warning,
    /// Wrong (red).
    Bad,
    /// The main value of the table (bold).
    Strong,
    /// Unimportant (grey).
    Faint,
}

/// A cell of a table: its text and its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell. Control characters are shown as escapes, so that text from the network or
    /// from a file cannot control the terminal. A line feed begins a new line in the cell.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: printable(&text.into()), tone: Tone::Normal }
    }

    /// Sets the tone.
    #[must_use]
    pub fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// One column.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    unit: Option<String>,
    number: bool,
}

impl Column {
    /// Creates a left-aligned column of text.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: printable(&title.into()), unit: None, number: false }
    }

    /// Creates a right-aligned column of numbers, which never wrap.
    #[must_use]
    pub fn number(title: impl Into<String>) -> Self {
        Self { number: true, ..Self::text(title) }
    }

    /// Sets the unit of all numbers in the column, which is shown under the title. Do not set it if
    /// each cell has its own unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(printable(&unit.into()));
        self
    }
}

/// A table: columns, then rows.
#[derive(Clone, Debug)]
pub struct Table {
    title: Option<String>,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates a table without rows.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { title: None, columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Sets a title, which is shown above the table.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(printable(&title.into()));
        self
    }

    /// Adds a row. Additional cells are ignored, and missing cells are empty.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        let mut row: Vec<Cell> =
            cells.into_iter().map(Into::into).take(self.columns.len()).collect();
        row.resize_with(self.columns.len(), Cell::default);
        self.rows.push(row);
        self
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the table as lines of text. A table without columns consists only of its title.
    ///
    /// All lines of the frame have the same width. It is at most `style.width`, unless the numbers
    /// need more.
    #[must_use]
    pub fn render(&self, style: Style) -> String {
        let mut text = self.title.clone().map(|title| heading(title, style)).unwrap_or_default();
        if self.columns.is_empty() {
            return text;
        }
        let mut table = comfy_table::Table::new();
        table.load_style(frame(style));
        table.force_no_tty();
        if style.colour {
            table.enforce_styling();
        }
        match style.width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        table.set_header(self.columns.iter().map(|column| header(column, style)));
        for row in &self.rows {
            table.add_row(row.iter().map(|cell| draw(cell, style)));
        }
        for (column, drawn) in self.columns.iter().zip(table.column_iter_mut()) {
            if column.number {
                drawn.set_cell_alignment(CellAlignment::Right);
                drawn.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        text.push_str(&table.to_string());
        text.push('\n');
        text
    }

    /// Returns the table as GitHub Flavored Markdown (section 4.10). The title is a line above the
    /// table, and each unit follows the title of its column. Tones are not shown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let cell = |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', " ");
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = self.title.as_ref().map(|title| format!("{title}\n\n")).unwrap_or_default();
        let titles = self.columns.iter().map(|column| match &column.unit {
            Some(unit) => cell(&format!("{}, {unit}", column.title)),
            None => cell(&column.title),
        });
        text += &line(titles.collect());
        let sides = self.columns.iter().map(|column| if column.number { "---:" } else { "---" });
        text += &line(sides.map(str::to_owned).collect());
        for row in &self.rows {
            text += &line(row.iter().map(|one| cell(&one.text)).collect());
        }
        text
    }
}

fn frame(style: Style) -> TableStyle {
    let fill = if style.unicode { '─' } else { '-' };
    let line = LineStyle::none().fill(fill).junction(fill);
    TableStyle::new().top_border(line).header_separator(line).bottom_border(line)
}

fn heading(title: String, style: Style) -> String {
    // These terminal sequences switch bold text on and off (ECMA-48, SGR 1 and 0).
    if style.colour { format!("\x1b[1m{title}\x1b[0m\n") } else { format!("{title}\n") }
}

fn header(column: &Column, style: Style) -> comfy_table::Cell {
    let text = match &column.unit {
        Some(unit) => format!("{}\n{unit}", column.title),
        None => column.title.clone(),
    };
    let cell = comfy_table::Cell::new(text);
    if style.colour { cell.add_attribute(Attribute::Bold) } else { cell }
}

fn draw(cell: &Cell, style: Style) -> comfy_table::Cell {
    let drawn = comfy_table::Cell::new(&cell.text);
    if !style.colour {
        return drawn;
    }
    match cell.tone {
        Tone::Normal => drawn,
        Tone::Good => drawn.fg(Color::Green),
        Tone::Warning => drawn.fg(Color::Yellow),
        Tone::Bad => drawn.fg(Color::Red),
        Tone::Strong => drawn.add_attribute(Attribute::Bold),
        Tone::Faint => drawn.fg(Color::DarkGrey),
    }
}

/// Replaces control characters, except the line feed, with escapes. Also replaces characters that
/// change the writing direction, because with them a terminal may show misleading text.
fn printable(text: &str) -> String {
    let hostile = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hostile(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
