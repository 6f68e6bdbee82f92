//! Aligned tables for a terminal.
//!
//! A [`Table`] has [`Column`]s (text to the left, numbers to the right, the unit in the header) and rows
//! of [`Cell`]s, and [`Table::render`]s to text for a [`Style`]: colours or none, line drawing or
//! ASCII, and the width to fit. Widths are those of a terminal: `é` is one column wide, `漢` two.
//! [`Style::stdout`] is the one to print with; tests and files use [`Style::plain`].

use std::io::IsTerminal as _;

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, TableStyle,
};

/// Style in which a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Use colours and bold.
    pub colour: bool,
    /// Draw lines with Unicode characters; ASCII otherwise.
    pub unicode: bool,
    /// Columns of the terminal; text wraps to fit, numbers never do. `None`: as wide as it gets.
    pub width: Option<u16>,
}

impl Style {
    /// Neither colour nor limit: for files, pipes and tests.
    #[must_use]
    pub const fn plain() -> Self {
        Self { colour: false, unicode: true, width: None }
    }

    /// For standard output as it is now: colours only on a terminal that is not `dumb` and where
    /// `NO_COLOR` is unset or empty (<https://no-color.org>), its width, and Unicode lines unless the
    /// locale's character set is another.
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
        // `C` and `POSIX` say nothing about the terminal's character set on a Linux of today, but a
        // locale that names a set other than UTF-8 means it.
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

/// Meaning of a cell's colour. Without colour nothing is lost: tones only repeat what the text says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Normal,
    /// As it should be (green).
    Good,
    /// To be looked at (yellow).
    Warning,
    /// Wrong (red).
    Bad,
    /// The figure the table is about (bold).
    Strong,
    /// Of little weight (grey).
    Faint,
}

/// One cell: a text and its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell with a text; control characters are shown as escapes, so that a name taken from the
    /// network or a file cannot drive the terminal. A line feed starts a new line in the cell.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: printable(&text.into()), tone: Tone::Normal }
    }

    /// The cell in a tone.
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
    /// A column of text, to the left.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: printable(&title.into()), unit: None, number: false }
    }

    /// A column of figures, to the right; they are never broken over lines.
    #[must_use]
    pub fn number(title: impl Into<String>) -> Self {
        Self { number: true, ..Self::text(title) }
    }

    /// The unit all figures of the column share, shown under the title. Leave it out where the cells
    /// carry their own.
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
    /// A table without rows.
    #[must_use]
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { title: None, columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// A line above the table.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(printable(&title.into()));
        self
    }

    /// Adds a row. Cells beyond the columns are left out, missing ones are empty.
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

    /// The table as text, lines ended by line feeds. Without columns: the title alone.
    ///
    /// All lines of the frame are equally wide, and no wider than `style.width` unless the numbers
    /// alone need more.
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

    /// The table as GitHub Flavored Markdown (section 4.10): the title as a line above, the unit behind
    /// the column's title. Tones are not shown.
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
    // The two sequences a terminal knows for "bold" and "as before" (ECMA-48, SGR 1 and 0).
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

/// Control characters as escapes, except the line feed. The characters that reverse the direction of
/// writing go the same way: they make a terminal show something else than what is there.
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
