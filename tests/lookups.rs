//! A lookup that a client answers from memory must not decide what a role does (`src/fs/absence.rs`).
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

/// Files whose lookups concern no name of a ring that another client makes.
const EXEMPT: [(&str, &str); 4] = [
    ("src/fs/", "implements both kinds of lookup"),
    ("src/doctor/", "measures plain lookups"),
    ("src/reader/input_split", "reads files that the user names, in no ring"),
    ("src/report/", "writes a page in no ring"),
];

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

/// A `match` on a plain lookup has an arm for absence. It needs `surely`, or a comment just above
/// with "wrong no" that says why a wrong answer is harmless. So does each call of `Fs::seen`.
#[test]
fn no_role_acts_on_an_absence_from_a_plain_lookup() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    sources(&root.join("src"), &mut paths);
    let mut found = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if EXEMPT.iter().any(|(exempt, _)| name.starts_with(exempt)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("mod tests")).collect();
        for (n, line) in lines.iter().enumerate() {
            let plain = ["fs.identity(", "fs.list(", "fs.open("].iter().any(|call| line.contains(call));
            let decides = plain && line.contains("match ") && !line.contains("surely(");
            let reasoned = lines[n.saturating_sub(2)..n].iter().any(|above| above.to_lowercase().contains("wrong no"));
            if (decides || line.contains("fs.seen(")) && !reasoned {
                found.push(format!("{name}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use `surely` or `Fs::exists`, or say why a wrong no is harmless:\n{}", found.join("\n"));
}
