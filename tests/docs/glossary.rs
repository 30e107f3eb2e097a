//! docs/glossary.md explains each term once, and names only files that exist.

use std::collections::BTreeSet;
use std::fs;
use testkit::workspace;

#[test]
fn glossary_explains_terms_once_and_names_code_that_exists() {
    let text = fs::read_to_string(workspace().join("docs/glossary.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| term")).collect();
    assert!(rows.len() > 40, "{} terms", rows.len());
    let terms: BTreeSet<&str> = rows.iter().filter_map(|row| row.split('|').nth(1)).collect();
    assert_eq!(terms.len(), rows.len(), "a term has two rows");
    for row in rows {
        let code = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let paths: Vec<&str> = code.split('`').skip(1).step_by(2).collect();
        assert!(!paths.is_empty(), "a row names no file: {row}");
        assert!(paths.iter().all(|path| workspace().join(path).exists()), "{row}");
    }
}
