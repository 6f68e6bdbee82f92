//! Makes text of a peer safe to show to a person.

/// Returns `true` if a character can be shown unchanged: it is visible or a space, moves no cursor,
/// and does not change the direction of text. Terminals interpret other characters (ESC, BEL, CR,
/// C1 controls), or reorder the text that follows (U+202E).
pub fn is_printable(character: char) -> bool {
    // These are the characters that Rust's `Debug` prints unchanged in a string, and quotes.
    matches!(character, '"' | '\'') || character.escape_debug().len() == 1
}

/// Returns a peer's text with unprintable characters escaped, for example as `\u{1b}`. Each
/// backslash is doubled.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_printable(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_debug());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_escapes_control_characters() {
        for (text, shown) in [
            ("too many of \"yours\": it's 5 µs", "too many of \"yours\": it's 5 µs"),
            ("\x1b[2Jgone\x07", "\\u{1b}[2Jgone\\u{7}"),
            ("a\r\nequic: all is well", "a\\r\\nequic: all is well"),
            ("\u{202e}txt.exe \u{9b}31m \u{7f}", "\\u{202e}txt.exe \\u{9b}31m \\u{7f}"),
            (
                "zero\u{200b}width \u{2066}isolated\u{2069}",
                "zero\\u{200b}width \\u{2066}isolated\\u{2069}",
            ),
            ("back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
