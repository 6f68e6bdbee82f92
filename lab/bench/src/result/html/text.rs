//! Escapes text from other programs, so that names and reasons never become markup.

/// Escapes text for element content and quoted attributes. Control characters, and characters that
/// change the writing direction, become visible escapes.
pub(crate) fn esc(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\n' | '\t' => safe.push(c),
            c if c.is_control() || is_direction(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a name for `id` and `href="#"` that consists of letters, digits and hyphens. `number`
/// distinguishes texts that would give the same name.
pub(super) fn anchor(kind: &str, number: usize) -> String {
    format!("{kind}-{number}")
}

/// Returns a link if the URL begins like that of a web page, otherwise only the text.
pub(super) fn link(url: &str, text: &str) -> String {
    if url.starts_with("https://") || url.starts_with("http://") {
        format!("<a href=\"{}\" rel=\"noreferrer\">{}</a>", esc(url), esc(text))
    } else {
        esc(text)
    }
}

/// Quotes a word for a shell if necessary.
pub(super) fn shell(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn html_text_is_escaped() {
        let hostile = "</script><b a='1' c=\"2\">&\u{1b}[2J\u{202e}";
        assert_eq!(
            esc(hostile),
            "&lt;/script&gt;&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\\u{1b}[2J\\u{202e}"
        );
        assert_eq!(link("javascript:alert(1)", "a"), "a");
        assert_eq!(
            link("https://a/\"><b>", "<"),
            "<a href=\"https://a/&quot;&gt;&lt;b&gt;\" rel=\"noreferrer\">&lt;</a>"
        );
    }

    #[test]
    fn html_shell_words_are_quoted() {
        assert_eq!(shell("--impl=a,b"), "--impl=a,b");
        assert_eq!(shell("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(shell(""), "''");
    }
}
