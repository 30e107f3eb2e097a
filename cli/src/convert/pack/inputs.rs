//! Finds the files of each sample: searches folders, assigns files to parts by patterns, and groups them by the match of
//! the pattern's `*`.

use ringreel::error::{Error, FsError, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum depth of directories that are searched.
const MAX_DEPTH: usize = 64;

/// The pattern for the files of one part: beginning and end of their paths relative to the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The part's name; `None` for the only part.
    pub part: Option<String>,
    /// The text before the `*`.
    pub begin: String,
    /// The alternatives for the text after the `*`.
    pub ends: Vec<String>,
}

impl Pattern {
    /// Every file whose name ends in one of `ends`, for the only part.
    pub fn of_ends(ends: &[&str]) -> Pattern {
        Pattern { part: None, begin: String::new(), ends: ends.iter().map(|end| (*end).to_owned()).collect() }
    }

    /// Of `NAME=PATTERN`, where the pattern holds one `*`, which stands for anything, `/` included.
    ///
    /// # Errors
    /// A text of another form.
    pub fn parse(text: &str) -> std::result::Result<Pattern, String> {
        let parsed = text.split_once('=').and_then(|(name, pattern)| {
            let (begin, end) = pattern.split_once('*').filter(|(_, end)| !end.contains('*'))?;
            Some(Pattern { part: Some(name.to_owned()), begin: begin.to_owned(), ends: vec![end.to_owned()] })
        });
        parsed
            .filter(|pattern| pattern.part.as_deref() != Some(""))
            .ok_or_else(|| format!("{text:?} is not of the form NAME=PATTERN with one *"))
    }

    fn stem<'a>(&self, path: &'a str) -> Option<&'a str> {
        {
            let path = path.strip_prefix(self.begin.as_str())?;
            self.ends.iter().find_map(|end| path.strip_suffix(end.as_str()))
        }
    }
}

/// Returns a name for files that does not depend on the folder they were found from: their absolute paths, one per line.
pub fn where_they_are(files: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        let path = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.clone());
        // Paths that are not UTF-8 must stay distinct.
        path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned)
    };
    files.iter().map(name).collect::<Vec<_>>().join("\n")
}

/// The files of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The match of the `*`, or the relative path of the only file.
    pub stem: String,
    /// One file per pattern, in the order of the patterns.
    pub files: Vec<PathBuf>,
}

/// Returns the inputs among the files at `paths` (folders are searched), in the order of their names, and notes on files
/// that could not be grouped.
///
/// # Errors
/// A path that does not exist; the filesystem's errors.
pub fn find(paths: &[PathBuf], patterns: &[Pattern]) -> Result<(Vec<Input>, Vec<String>)> {
    let (mut inputs, mut notes) = (Vec::new(), Vec::new());
    let mut were_given = false;
    for path in paths {
        let there = fs::metadata(path).map_err(|error| FsError::new("stat", path, error))?;
        let is_given = !there.is_dir();
        let mut found = Vec::new();
        if !is_given {
            walk(path, &PathBuf::new(), &mut Vec::new(), &mut found, &mut notes)?;
        } else if patterns.len() == 1 {
            found.push(path.clone());
        } else if !std::mem::replace(&mut were_given, true) {
            // Files among `paths` are grouped with each other.
            found.extend(paths.iter().filter(|path| !path.is_dir()).cloned());
        }
        let mut stems: BTreeMap<String, Vec<Option<PathBuf>>> = BTreeMap::new();
        for name in found {
            let full = if is_given { name.clone() } else { path.join(&name) };
            let Some(name) = name.to_str() else {
                notes.push(format!("{}: the path is not UTF-8", full.display()));
                continue;
            };
            for (n, pattern) in patterns.iter().enumerate() {
                // A file among `paths` need not match the pattern of an only part.
                let stem = if is_given && patterns.len() == 1 { Some(name) } else { pattern.stem(name) };
                let stem = if patterns.len() == 1 { stem.map(|_| name) } else { stem };
                if let Some(stem) = stem {
                    stems.entry(stem.to_owned()).or_insert_with(|| vec![None; patterns.len()])[n] = Some(full.clone());
                }
            }
        }
        for (stem, files) in stems {
            match files.iter().position(Option::is_none) {
                None => inputs.push(Input { stem, files: files.into_iter().flatten().collect() }),
                Some(n) => {
                    let part = patterns[n].part.as_deref().unwrap_or_default();
                    notes.push(format!("{stem:?} has no file for the part {part}"));
                }
            }
        }
    }
    if inputs.is_empty() && notes.is_empty() {
        return Err(Error::Sample("no matching files found".to_owned()));
    }
    Ok((inputs, notes))
}

fn walk(
    root: &Path,
    dir: &Path,
    above: &mut Vec<(u64, u64)>,
    found: &mut Vec<PathBuf>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let full = root.join(dir);
    let bad = |error| FsError::new("list", &full, error);
    let here = fs::metadata(&full).map(|here| (here.dev(), here.ino())).map_err(bad)?;
    if above.contains(&here) || above.len() >= MAX_DEPTH {
        notes.push(format!("{} leads back to one of its parent directories, or is too deep", full.display()));
        return Ok(());
    }
    above.push(here);
    for entry in fs::read_dir(&full).map_err(bad)? {
        let path = dir.join(entry.map_err(bad)?.file_name());
        match fs::metadata(root.join(&path)) {
            Ok(there) if there.is_dir() => walk(root, &path, above, found, notes)?,
            Ok(there) if there.is_file() => found.push(path),
            _ => {}
        }
    }
    above.pop();
    Ok(())
}
