//! No role decides by a lookup that a client may answer from its cache (`src/fs/absence.rs`).

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose lookups concern no name of a ring that another client creates.
const EXEMPT: [(&str, &str); 5] = [
    ("src/fs/", "implements both kinds of lookup"),
    ("ops/src/doctor/", "measures plain lookups"),
    ("ops/src/probe", "measures plain lookups"),
    ("recordio/src/", "reads files that the user names, in no ring"),
    ("cli/src/report/", "writes a page in no ring"),
];
/// Calls that a client may answer from its cache. (`Fs::read` and `Fs::exists` revalidate.)
const LOOKUPS: [&str; 4] = ["fs.identity(", "fs.list(", "fs.open(", "fs.changed("];
/// Calls whose ENOENT may concern a name that exists.
const CHANGES: [&str; 2] = ["fs.link(", "fs.rename("];
/// Code that makes a statement decide by the outcome of a call.
const DECIDES: [&str; 8] = ["match ", "let Err(", "let Ok(", "is_err()", "is_ok", "unwrap_or", "map_or", ".ok()"];

/// One statement of a source: up to a `;`, or to a brace that opens or closes a block.
struct Statement {
    line: usize,
    text: String,
    /// The comments directly above the statement, and in it.
    comments: String,
}

fn without_strings(line: &str) -> String {
    let mut inside = false;
    let mut kept = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if inside => drop(chars.next()),
            '"' => inside = !inside,
            '/' if !inside && chars.peek() == Some(&'/') => {
                kept.push('/');
                kept.extend(chars.by_ref());
            }
            c if !inside => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// The statements of a source before its tests.
fn statements(source: &str) -> Vec<Statement> {
    let mut found = Vec::new();
    let (mut text, mut comments, mut begin) = (String::new(), String::new(), 0);
    for (n, line) in source.lines().enumerate().take_while(|(_, line)| !line.starts_with("mod tests")) {
        let line = without_strings(line);
        let (code, comment) = line.split_once("//").unwrap_or((&line, ""));
        comments += &comment.to_lowercase();
        for c in code.trim().chars() {
            if text.trim().is_empty() {
                (begin, text) = (n + 1, String::new());
            }
            text.push(c);
            if matches!(c, ';' | '{' | '}') {
                found.push(Statement { line: begin, text: std::mem::take(&mut text), comments: comments.clone() });
                comments.clear();
            }
        }
        text.push(' ');
    }
    found
}

/// Finds the lookups by which a source decides without `surely` and without a comment on why a wrong "absent" is
/// harmless, and each rename or link whose ENOENT the source treats as an absence.
fn violations(source: &str) -> Vec<String> {
    let all = statements(source);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".");
    let texts: Vec<String> = all.iter().map(|it| squeezed(&it.text)).collect();
    let mut found = Vec::new();
    for (n, statement) in all.iter().enumerate() {
        let text = &texts[n];
        let has = |calls: &[&str]| calls.iter().any(|call| text.contains(call));
        let decides = DECIDES.iter().any(|how| text.contains(how));
        // The arms of a match, or the use of a `let` with its outcome, are within the next few statements.
        let next = texts[n + 1..(n + 7).min(texts.len())].join(" ");
        let named = text.split_once("let ").and_then(|(_, rest)| rest.split_once(" = ")).map(|(name, _)| name.trim());
        let decided_later = named.is_some_and(|name| {
            let name = name.trim_start_matches("mut ");
            !text.contains('?')
                && [format!("match {name} {{"), format!("= {name} {{"), format!("{name}.is_")]
                    .iter()
                    .any(|how| next.contains(how))
        });
        let is_lookup = has(&LOOKUPS) && (decides || decided_later) || has(&["fs.seen("]);
        let around = format!("{text} {next}");
        let is_change =
            has(&CHANGES) && (decides || decided_later) && around.contains("is_gone()") && !around.contains("exists(");
        let reasons = ["wrong no", "false negative", r#"false "not found""#];
        let has_reason = reasons.iter().any(|words| statement.comments.contains(words));
        let harmless = text.contains("surely(") || has_reason;
        if (is_lookup || is_change) && !harmless {
            found.push(format!("{}: {text}", statement.line));
        }
    }
    found
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_role_acts_on_an_absence_from_a_plain_lookup() {
    let root = testkit::workspace();
    let mut paths = Vec::new();
    for folder in ["src", "recordio/src", "ops/src", "cli/src"] {
        sources(&root.join(folder), &mut paths);
    }
    let mut found = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if EXEMPT.iter().any(|(exempt, _)| name.starts_with(exempt)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        found.extend(violations(&text).iter().map(|found| format!("{name}:{found}")));
    }
    assert!(
        found.is_empty(),
        "use `surely` or `Fs::exists`, or say why a false 'not found' is harmless:\n{}",
        found.join("\n")
    );
}

/// One violation of each form, with a corrected version.
#[test]
fn check_finds_each_form_of_decision_by_a_plain_lookup() {
    let snippets = [
        "match self.fs.identity(&path) {\n    Err(error) if error.is_gone() => a(),\n    _ => b(),\n}",
        "match self\n    .ring\n    .fs\n    .list(&dir)\n{\n    Err(_) => a(),\n    Ok(_) => b(),\n}",
        "if let Err(error) = ring.fs.open(&path)\n    && error.is_gone()\n{\n    a();\n}",
        "if fs\n    .identity(&path)\n    .is_err()\n{\n    a();\n}",
        "let Ok(found) = fs.identity(&path) else { return };",
        "let names = fs.list(&dir).unwrap_or_default();",
        "let bytes = fs\n    .identity(&path)\n    .map_or(0, |found| found.len);",
        "let found = fs.identity(&path).ok()?;",
        "if ring.fs.seen(&path)? {\n    a();\n}",
        "let looked = fs.identity(&path);\nmatch looked {\n    Err(error) if error.is_gone() => a(),\n    _ => b(),\n}",
        "let looked = fs.list(&path);\nif looked.is_err() {\n    a();\n}",
        "match self.fs.rename(&from, &to) {\n    Ok(()) => a(),\n    Err(error) if error.is_gone() => b(),\n}",
        "let linked = self.fs.link(\n    &from,\n    &to,\n);\nmatch linked {\n    Err(error) if error.is_gone() => a(),\n    _ => b(),\n}",
    ];
    for snippet in snippets {
        let body = |snippet: &str| format!("fn f() {{\n    g();\n    {snippet}\n}}\n");
        assert_eq!(violations(&body(snippet)).len(), 1, "{snippet}");
        let reasoned = format!("// A wrong no: the next look\n    // tells.\n    {snippet}");
        assert_eq!(violations(&body(&reasoned)), Vec::<String>::new(), "{snippet}");
        assert_eq!(violations(&format!("mod tests {{\n{}", body(snippet))), Vec::<String>::new(), "{snippet}");
    }
    for fine in [
        "match surely(&*self.fs, &dir, || self.fs.list(&dir)) {\n    Err(error) if error.is_gone() => a(),\n    _ => b(),\n}",
        "let names = self.fs.list(&dir)?;\nif names.is_empty() {\n    a();\n}",
        "if self.fs.exists(&path)? {\n    a();\n}",
        "a(\"match fs.list(\"); // match fs.list(",
        "if let Err(error) = self.fs.rename(&from, &to)\n    && !self.fs.exists(&to)?\n{\n    return Err(error);\n}",
    ] {
        assert_eq!(violations(&format!("fn f() {{\n    {fine}\n}}\n")), Vec::<String>::new(), "{fine}");
    }
}
