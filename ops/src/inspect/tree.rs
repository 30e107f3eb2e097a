//! What each name in a ring is. Directories are listed and counted; of a large one the first names are told.

use super::summary::State;
use ringreel::error::Result;
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, Phase, SegmentName, is_owner, parse_number};
use ringreel::manifest::store::Manifests;
use ringreel_format::SegmentId;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Names of one directory that are told.
const TOLD: usize = 10;
/// Directories of one kind that are looked into.
const DIRECTORIES: usize = 100;

/// One line of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// How deep it lies: 0 for the ring's own names.
    pub depth: usize,
    /// Its name; empty for a line about names that are not told.
    pub name: String,
    /// Bytes of a file.
    pub bytes: Option<u64>,
    /// What it is.
    pub what: String,
}

/// What the directory of a generation is, by what manifests there are.
///
/// # Errors
/// What the filesystem says.
pub fn state(fs: &dyn Fs, layout: &Layout, newest: Option<u64>, dir: GenerationDir) -> Result<State> {
    let next = newest.map_or(0, |newest| newest.saturating_add(1));
    if let GenerationDir::Read(n) = dir
        && fs.exists(&layout.manifest(n))?
    {
        return Ok(State::Readable); // it may have been promoted meanwhile
    }
    Ok(match dir.phase(next) {
        Phase::Filling => State::Filling,
        Phase::Promoting => State::Promoting,
        Phase::Promoted => State::Unlisted,
        Phase::Retired | Phase::Ahead => State::Litter,
    })
}

/// Tells of the names in a ring, one after the other.
///
/// # Errors
/// What the filesystem says, but for what goes away meanwhile.
pub fn tree(fs: &Arc<dyn Fs>, layout: &Layout, each: &mut dyn FnMut(Entry)) -> Result<()> {
    let newest = Manifests::new(fs.clone(), layout.clone()).newest_listed().ok();
    let fs = &**fs;
    let mut names = fs.list(layout.root())?;
    names.sort_unstable_by_key(|name| {
        let order = match GenerationDir::parse(name) {
            Some(GenerationDir::Read(n)) => (1, n),
            Some(GenerationDir::Write(n)) => (2, n),
            None => (usize::from(name != "ring.json") * 3, 0),
        };
        (order, name.clone())
    });
    let mut tree = Tree { fs, each };
    let (mut others, mut generations) = (0, 0);
    for name in names {
        let path = layout.root().join(&name);
        // Just listed, so a wrong no is none of this client's memory.
        let Ok(found) = fs.identity(&path) else { continue };
        let dir = GenerationDir::parse(&name).filter(|_| found.is_dir);
        let what = match (&*name, dir) {
            ("ring.json", _) => "what this ring is, once and for all",
            ("manifests", _) => "one for each generation that readers see, or saw",
            ("staging", _) => "what generators write, and what they finished that no manifest lists yet",
            ("index", _) => "the index kept in files: counter, leases, progress",
            ("quarantine", _) => "what was found broken, with reasons",
            ("trash", _) => "what is being removed",
            (_, Some(dir)) => {
                generations += 1;
                if generations > DIRECTORIES {
                    continue;
                }
                state_words(state(fs, layout, newest, dir)?)
            }
            _ => {
                others += 1;
                if others > TOLD {
                    continue;
                }
                "no name of a ring's"
            }
        };
        tree.put(0, &name, (!found.is_dir).then_some(found.len), what);
        if found.is_dir {
            tree.inside(&name, &path, dir.is_some())?;
        }
    }
    for (count, most, what) in [(generations, DIRECTORIES, "generations"), (others, TOLD, "names that are no ring's")] {
        if count > most {
            tree.put(0, "", None, &format!("and {} more {what}", count - most));
        }
    }
    Ok(())
}

/// Tells of the names in the directory of one generation.
///
/// # Errors
/// As [`tree`].
pub fn generation(fs: &Arc<dyn Fs>, layout: &Layout, dir: GenerationDir, each: &mut dyn FnMut(Entry)) -> Result<()> {
    let newest = Manifests::new(fs.clone(), layout.clone()).newest_listed().ok();
    let (name, path) = (dir.to_string(), layout.generation(dir));
    let mut tree = Tree { fs: &**fs, each };
    tree.put(0, &name, None, state_words(state(&**fs, layout, newest, dir)?));
    tree.inside(&name, &path, true)
}

fn state_words(state: State) -> &'static str {
    match state {
        State::Readable => "a sealed generation: readers see what its manifest lists",
        State::Filling => "the generation that fills",
        State::Promoting => "a promotion that was begun: it has no manifest yet",
        State::Unlisted => "a generation without a manifest: readers do not see it",
        State::Litter => "litter: no manifest belongs to it",
    }
}

struct Tree<'a> {
    fs: &'a dyn Fs,
    each: &'a mut dyn FnMut(Entry),
}

impl Tree<'_> {
    fn put(&mut self, depth: usize, name: &str, bytes: Option<u64>, what: &str) {
        (self.each)(Entry { depth, name: name.to_owned(), bytes, what: what.to_owned() });
    }

    /// The names in one of the ring's directories.
    fn inside(&mut self, name: &str, path: &Path, is_generation: bool) -> Result<()> {
        match name {
            "staging" => {
                let mut owners = self.list(path)?;
                owners.sort_unstable();
                for owner in owners.iter().take(DIRECTORIES) {
                    let what = if is_owner(owner) { "an owner's" } else { "no generator has such a name" };
                    self.put(1, owner, None, what);
                    let staged = |name: &str| match name.rsplit_once('.') {
                        Some((id, "rec")) if id.parse::<SegmentId>().is_ok() => "a finished segment",
                        Some((id, "part")) if id.parse::<SegmentId>().is_ok() => {
                            "a segment that is being written, or was"
                        }
                        _ => "no name of a segment's",
                    };
                    self.files(2, &path.join(owner), &staged)?;
                }
                if owners.len() > DIRECTORIES {
                    self.put(1, "", None, &format!("and {} more owners", owners.len() - DIRECTORIES));
                }
                Ok(())
            }
            "manifests" => self.files(1, path, &|name| match parse_number(name) {
                Some(_) => "a manifest",
                None => "no name of a manifest",
            }),
            "quarantine" => self.files(1, path, &|name| match name.rsplit_once('.') {
                Some((_, "rec")) => "a segment in quarantine",
                Some((_, "why")) => "why a segment is in quarantine",
                _ => "",
            }),
            "trash" | "index" => self.files(1, path, &|_| ""),
            _ if is_generation => self.files(1, path, &|name| match SegmentName::parse(name) {
                Some(_) => "a segment",
                None => "no name of a segment's: readers do not see it",
            }),
            _ => Ok(()),
        }
    }

    /// The first names in a directory, with what each is, and how many more of each kind there are.
    fn files(&mut self, depth: usize, dir: &Path, kind: &dyn Fn(&str) -> &'static str) -> Result<()> {
        let mut names = self.list(dir)?;
        let total = names.len();
        if total > TOLD {
            names.select_nth_unstable_by(TOLD, |a, b| order(a).cmp(&order(b)));
        }
        let rest: Vec<String> = names.split_off(total.min(TOLD));
        names.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        for name in &names {
            // Just listed, so a wrong no is none of this client's memory.
            let Ok(found) = self.fs.identity(&dir.join(name)) else { continue };
            let what = if found.is_dir { "a directory" } else { kind(name) };
            self.put(depth, name, (!found.is_dir).then_some(found.len), what);
        }
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for name in &rest {
            let what = kind(name);
            match counts.iter_mut().find(|count| count.0 == what) {
                Some(count) => count.1 += 1,
                None => counts.push((what, 1)),
            }
        }
        for (what, count) in counts {
            let what = if what.is_empty() { format!("and {count} more") } else { format!("and {count} more: {what}") };
            self.put(depth, "", None, &what);
        }
        Ok(())
    }

    /// Names in a directory, which may be gone, or be none.
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match surely(self.fs, dir, || self.fs.list(dir)) {
            Ok(names) => Ok(names),
            Err(error) if error.is_gone() || error.source.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!("what is in it is not told: {error}");
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Numbers by their value, before other names.
fn order(name: &str) -> (u64, &str) {
    (parse_number(name).or_else(|| SegmentName::parse(name).map(|name| name.index)).unwrap_or(u64::MAX), name)
}
