//! docs/operations/troubleshooting.md has a row for each error that the code can give, and for each warning that it logs.

use std::fs;
use std::path::Path;
use testkit::workspace;

/// Where errors are defined, and where warnings are logged.
const ERRORS: [&str; 3] = ["src", "format/src", "recordio/src"];
const WARNINGS: [&str; 3] = ["src", "recordio/src", "ops/src"];
/// A message with less fixed text than this is made of the text of another one.
const SHORTEST: usize = 12;

/// Every Rust file below a directory that is not one of tests.
fn sources(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            sources(&path, found);
        } else if name.to_string_lossy().ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
        }
    }
}

/// The string literals of Rust source, with continued lines joined.
fn literals(source: &str) -> Vec<String> {
    let (mut found, mut chars) = (Vec::new(), source.chars().peekable());
    while let Some(char) = chars.next() {
        if char != '"' {
            continue;
        }
        let mut literal = String::new();
        while let Some(char) = chars.next().filter(|char| *char != '"') {
            match (char, chars.peek()) {
                ('\\', Some('\n')) => while chars.next_if(|char| char.is_whitespace()).is_some() {},
                ('\\', Some(_)) => literal.extend(chars.next()),
                _ => literal.push(char),
            }
        }
        found.push(literal);
    }
    found
}

/// The text of the call, or attribute, that begins with each `start`, up to its closing parenthesis.
fn calls<'a>(source: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    source.match_indices(start).map(|(at, _)| {
        let (mut depth, mut in_text, mut before) = (0, false, ' ');
        let rest = &source[at + start.len() - 1..];
        let end = rest.char_indices().find(|(_, char)| {
            match char {
                '"' if before != '\\' => in_text = !in_text,
                '(' if !in_text => depth += 1,
                ')' if !in_text => depth -= 1,
                _ => {}
            }
            before = *char;
            depth == 0
        });
        &rest[..end.map_or(rest.len(), |(at, _)| at)]
    })
}

/// A message as the page shows it: `…` in place of each value.
fn shown(message: &str) -> String {
    let (mut text, mut depth) = (String::new(), 0);
    for char in message.chars() {
        match char {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                text.push('…');
            }
            _ if depth == 0 => text.push(char),
            _ => {}
        }
    }
    text.replace('`', "'")
}

fn is_fixed_enough(message: &str) -> bool {
    message.chars().filter(|char| char.is_alphabetic()).count() >= SHORTEST
}

/// The message of each error and each warning of some directories.
fn messages(dirs: &[&str], starts: &[&str]) -> Vec<String> {
    let mut files = Vec::new();
    dirs.iter().for_each(|dir| sources(&workspace().join(dir), &mut files));
    let texts = files.iter().flat_map(|source| starts.iter().flat_map(move |start| calls(source, start)));
    let longest = |call: &str| literals(call).into_iter().map(|literal| shown(&literal)).max_by_key(String::len);
    texts.filter_map(longest).filter(|message| is_fixed_enough(message)).collect()
}

fn page() -> String {
    fs::read_to_string(workspace().join("docs/operations/troubleshooting.md")).unwrap()
}

fn missing(messages: &[String]) -> Vec<&String> {
    let rows = page().replace("\\|", "|");
    messages.iter().filter(|message| !rows.contains(&format!("| `{message}` |"))).collect()
}

#[test]
fn troubleshooting_has_every_error() {
    let errors = messages(&ERRORS, &["#[error("]);
    assert!(errors.len() > 20, "{errors:?}");
    let missing = missing(&errors);
    assert!(missing.is_empty(), "without a row in docs/operations/troubleshooting.md: {missing:#?}");
}

#[test]
fn troubleshooting_has_every_warning() {
    let warnings = messages(&WARNINGS, &["tracing::warn!(", "tracing::error!("]);
    assert!(warnings.len() > 20, "{warnings:?}");
    let missing = missing(&warnings);
    assert!(missing.is_empty(), "without a row in docs/operations/troubleshooting.md: {missing:#?}");
}

#[test]
fn troubleshooting_has_every_exception_of_python() {
    let source = fs::read_to_string(workspace().join("python/ringreel/_errors.py")).unwrap();
    let names: Vec<&str> = source.lines().filter_map(|line| line.strip_prefix("class ")?.split('(').next()).collect();
    assert!(names.len() > 10, "{names:?}");
    let (page, inner) = (page(), "StoppedError");
    let missing: Vec<_> =
        names.iter().filter(|name| **name != inner && !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "without a row in docs/operations/troubleshooting.md: {missing:?}");
}

#[test]
fn troubleshooting_names_only_messages_that_exist() {
    let known =
        [messages(&ERRORS, &["#[error("]), messages(&WARNINGS, &["tracing::warn!(", "tracing::error!("])].concat();
    for row in page().lines().filter(|line| line.starts_with("| `") && line.contains('…')) {
        let message = row.trim_start_matches("| `").split("` |").next().unwrap().replace("\\|", "|");
        assert!(!is_fixed_enough(&message) || known.contains(&message), "no such message: {message}");
    }
}
