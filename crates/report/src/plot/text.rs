//! Estimates the width of texts without a font.
//!
//! The SVG is laid out before the font is known. So the estimates are based on DejaVu Sans, and on
//! Verdana, whose letters have the same widths. There is one width for each class of letters. The
//! estimates are accurate within a few per cent, and affect only margins and line breaks.

use unicode_width::UnicodeWidthChar as _;

/// Returns the estimated width of `text` in pixels, at a font size in pixels.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let em: f64 = text.chars().map(advance).sum();
    em * size * if bold { 1.13 } else { 1.0 }
}

/// Returns the width of a character in em.
fn advance(c: char) -> f64 {
    match c {
        'i' | 'l' | 'j' | '\'' => 0.28,
        ' ' | ',' | '.' | '/' | ':' | ';' | '|' | 'I' | 'J' => 0.33,
        'f' | '-' | '(' | ')' | '[' | ']' | 't' | 'r' => 0.40,
        'c' | 'k' | 's' | 'z' | 'v' | 'x' | 'y' | 'L' | 'F' => 0.57,
        'm' | 'W' | '%' | '@' => 0.97,
        'w' | 'M' | '+' | '=' | '<' | '>' | '~' => 0.84,
        'A'..='Z' => 0.71,
        _ if c.is_ascii() => 0.635,
        _ => 0.65 * c.width().unwrap_or(0) as f64,
    }
}

/// Breaks `text` between words into at most `lines` lines of at most `limit` pixels. If the text
/// does not fit, cuts it off with an ellipsis. A line is too wide only if not even the ellipsis
/// fits.
pub(super) fn wrap(text: &str, limit: f64, size: f64, lines: usize) -> Vec<String> {
    let fits = |text: &str| width(text, size, false) <= limit;
    let mut wrapped: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while words.peek().is_some() && wrapped.len() < lines {
        let last = wrapped.len() + 1 == lines;
        let mut line = String::new();
        while let Some(word) = words.peek() {
            let longer =
                if line.is_empty() { (*word).to_owned() } else { format!("{line} {word}") };
            // The last line takes all remaining words, and is cut off below. Each other line has at
            // least one word, even if the word is too wide.
            if !last && !line.is_empty() && !fits(&longer) {
                break;
            }
            line = longer;
            words.next();
        }
        wrapped.push(cut(line, &fits));
    }
    wrapped
}

fn cut(mut line: String, fits: &impl Fn(&str) -> bool) -> String {
    if fits(&line) {
        return line;
    }
    while line.pop().is_some() {
        let shorter = format!("{}\u{2026}", line.trim_end());
        if line.is_empty() || fits(&shorter) {
            return shorter;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_between_words_and_cuts_the_rest() {
        let whole = wrap("attack, no gateway", 500.0, 13.0, 2);
        assert_eq!(whole, ["attack, no gateway"]);
        assert_eq!(wrap("attack, no gateway", 80.0, 13.0, 2), ["attack, no", "gateway"]);
        let cut = wrap("attack, no gateway at all, for ever", 80.0, 13.0, 2);
        assert_eq!(cut.len(), 2);
        assert!(cut[1].ends_with('\u{2026}') && width(&cut[1], 13.0, false) <= 80.0, "{cut:?}");
        assert_eq!(wrap("anything", 1.0, 13.0, 2), ["\u{2026}"]);
        assert!(wrap("", 100.0, 13.0, 2).is_empty());
        assert!(wrap("word", 100.0, 13.0, 0).is_empty());
    }

    #[test]
    fn text_width_depends_on_the_letters() {
        assert!(width("WWW", 10.0, false) > 2.0 * width("iii", 10.0, false));
        assert!(width("漢", 10.0, false) > 10.0);
        assert!(width("a", 10.0, true) > width("a", 10.0, false));
    }
}
