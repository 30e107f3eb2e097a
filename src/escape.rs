//! Escapes text that other users may have chosen (owner names, meta, error messages) before it
//! leaves the process.
//!
//! Any process with write access to the ring chooses these texts. Unescaped, they could move a
//! terminal's cursor, reverse the writing direction, or add forged lines to a log.

use std::borrow::Cow;

/// Returns whether a terminal acts on `c` instead of showing it: control characters, line
/// separators, and the characters that change the writing direction.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` on one line, with each character that a terminal would act on as `\n` or `\u{1b}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_obeyed(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2Jb\u{7f}c\u{9b}31md\u{202e}e\r\nf";

    #[test]
    fn text_is_escaped_once_and_plain_text_is_unchanged() {
        let once = escape(NASTY);
        assert_eq!(once, "a\\u{1b}[2Jb\\u{7f}c\\u{9b}31md\\u{202e}e\\r\\nf");
        assert_eq!(escape(&once), once);
        assert!(matches!(escape("plain \u{e9} text"), Cow::Borrowed(_)));
    }
}
