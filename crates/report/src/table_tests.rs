use super::*;
use unicode_width::UnicodeWidthStr as _;

fn table() -> Table {
    let mut table = Table::new([
        Column::text("phase"),
        Column::number("requests").unit("1/s"),
        Column::number("median"),
    ]);
    table.row(["clients alone, before anything happens to them", "1,234", "4.50 ms"]);
    table.row(["Grüße, 漢字", "7", "120 ms"]);
    table
}

fn widths(text: &str) -> Vec<usize> {
    text.lines().map(|line| line.width()).collect()
}

#[test]
fn table_lines_have_equal_terminal_width() {
    for unicode in [true, false] {
        let text = table().render(Style { unicode, ..Style::plain() });
        let widths = widths(&text);
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}\n{text}");
        assert!(text.ends_with('\n') && !text.contains('\x1b'), "{text}");
        assert_eq!(text.contains('─'), unicode);
    }
}

#[test]
fn table_numbers_are_right_aligned_with_their_unit() {
    let text = table().render(Style::plain());
    let end = |needle: &str| {
        let line = text.lines().find(|line| line.contains(needle)).unwrap();
        line[..line.find(needle).unwrap() + needle.len()].width()
    };
    assert_eq!(end("1,234"), end(" 7"));
    assert_eq!(end("1,234"), end("1/s"));
    assert_eq!(end("4.50 ms"), end("120 ms"));
}

#[test]
fn table_wraps_text_but_not_numbers() {
    for width in [34, 40, 60, 80] {
        let text = table().render(Style { width: Some(width), ..Style::plain() });
        assert!(widths(&text).iter().all(|line| *line <= usize::from(width)), "{width}\n{text}");
        for whole in ["1,234", "4.50 ms", "120 ms"] {
            assert!(text.contains(whole), "{width}\n{text}");
        }
    }
    // Numbers must stay complete even if the width is too small for them.
    let text = table().render(Style { width: Some(1), ..Style::plain() });
    assert!(text.contains("1,234") && text.contains("4.50 ms"), "{text}");
}

#[test]
fn table_fits_rows_to_its_columns() {
    let mut table = Table::new([Column::text("a"), Column::text("b")]);
    table.row(["1"]).row(["2", "3", "too many"]);
    let text = table.title("Two rows").render(Style::plain());
    assert!(text.starts_with("Two rows\n") && !text.contains("too many"), "{text}");
    assert_eq!(Table::new([]).render(Style::plain()), "");
    let headers = Table::new([Column::text("only")]);
    assert!(headers.is_empty() && headers.render(Style::plain()).contains("only"));
}

#[test]
fn table_escapes_control_characters() {
    let mut table = Table::new([Column::text("name\x07")]);
    table.row(["\x1b[2Jgone\r", "x"]);
    table.row(["a\u{202e}b\u{9b}31m"]);
    let text = table.render(Style::plain());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert!(text.contains("\\u{1b}[2Jgone\\r") && text.contains("\\u{202e}"), "{text}");
}

#[test]
fn table_is_bold_only_with_styling() {
    let mut table = Table::new([Column::text("a")]).title("T");
    table.row([Cell::new("b").tone(Tone::Strong)]);
    let text = table.render(Style { colour: true, ..Style::plain() });
    assert_eq!(text.matches("\x1b[1m").count(), 3, "title, header, cell: {text:?}");
    assert!(!table.render(Style::plain()).contains('\x1b'));
}

#[test]
fn style_is_chosen_from_terminal_and_environment() {
    let decide = Style::decide;
    let utf8 = Some("en_GB.UTF-8");
    assert_eq!(
        decide(true, false, false, utf8, Some(80)),
        Style { colour: true, unicode: true, width: Some(80) }
    );
    assert!(!decide(true, true, false, utf8, None).colour, "NO_COLOR");
    assert!(!decide(true, false, true, utf8, None).colour, "TERM=dumb");
    assert!(!decide(false, false, false, utf8, None).colour, "a pipe");
    assert!(!decide(true, false, false, Some("de_DE.ISO-8859-1"), None).unicode);
    assert!(decide(true, false, false, Some("C"), None).unicode);
    assert!(decide(true, false, false, Some("C.utf8"), None).unicode);
    assert_eq!(decide(true, false, false, None, Some(0)).width, None);
}

#[test]
fn table_markdown_escapes_column_separators() {
    let mut table =
        Table::new([Column::text("what"), Column::number("time").unit("ns")]).title("Cost");
    table.row(["a|b", "12"]).row(["two\nlines"]);
    assert_eq!(
        table.markdown(),
        "Cost\n\n| what | time, ns |\n| --- | ---: |\n| a\\|b | 12 |\n| two lines |  |\n"
    );
}
