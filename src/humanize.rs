//! Formats numbers for people.

/// Returns `n` with its noun: "1 sample", "2 samples".
pub fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
