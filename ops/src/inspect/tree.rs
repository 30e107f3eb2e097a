//! Explains each name in a ring. Of a large directory, lists the first names and counts the others.

use super::summary::State;
use crate::phase::Phase;
use ringreel::error::Result;
use ringreel::fs::{Fs, surely};
use ringreel::layout::{GenerationDir, Layout, SegmentName, is_owner, parse_number};
use ringreel::manifest::store::Manifests;
use ringreel_format::SegmentId;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Most names of one directory that are listed.
const TOLD: usize = 10;
/// Most directories of one kind that are listed.
const DIRECTORIES: usize = 100;

/// One line of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Depth below the ring's directory, from 0.
    pub depth: usize,
    /// Its name; empty in a line about names that are not listed.
    pub name: String,
    /// Size of a file in bytes.
    pub bytes: Option<u64>,
    /// Kind of the name.
    pub what: EntryKind,
    /// Number of names of this kind that are not listed, in a line about these.
    pub more: Option<usize>,
}

/// Kinds of names in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// `ring.json`.
    Descriptor,
    /// The directory of the manifests.
    Manifests,
    /// The staging directory.
    Staging,
    /// The directory of the index in files.
    Index,
    /// The quarantine directory.
    Quarantine,
    /// The trash directory.
    Trash,
    /// The directory of a generation.
    Generation(State),
    /// A name that does not belong to a ring.
    Foreign,
    /// An owner's directory in staging.
    Owner,
    /// A name in staging that is not an owner's.
    NotOwner,
    /// A finished segment in staging.
    Finished,
    /// An unfinished segment in staging.
    Begun,
    /// A name in staging that is not a segment's.
    NotStaged,
    /// A manifest.
    Manifest,
    /// A name that is not a manifest's.
    NotManifest,
    /// A segment in quarantine.
    Quarantined,
    /// The reason why a segment is in quarantine.
    Why,
    /// A segment of a generation.
    Segment,
    /// A name in a generation that is not a segment's.
    NotSegment,
    /// A directory where files are expected.
    Directory,
    /// Any other name.
    Other,
}

/// Returns the state of a generation's directory, by the existing manifests.
///
/// # Errors
/// The filesystem's errors.
pub fn state(fs: &dyn Fs, layout: &Layout, newest: Option<u64>, dir: GenerationDir) -> Result<State> {
    let next = newest.map_or(0, |newest| newest.saturating_add(1));
    if let GenerationDir::Read(n) = dir
        && fs.exists(&layout.manifest(n))?
    {
        return Ok(State::Readable); // it may have been promoted meanwhile
    }
    Ok(match Phase::of(dir, next) {
        Phase::Filling => State::Filling,
        Phase::Promoting => State::Promoting,
        Phase::Promoted => State::Unlisted,
        Phase::Retired | Phase::Ahead => State::Litter,
    })
}

/// Calls `each` with the names in a ring.
///
/// # Errors
/// The filesystem's errors, except for names that are removed meanwhile.
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
        // Just listed, so the NFS client cannot answer with a false "not found".
        let Ok(found) = fs.identity(&path) else { continue };
        let dir = GenerationDir::parse(&name).filter(|_| found.is_dir);
        let what = match (&*name, dir) {
            ("ring.json", _) => EntryKind::Descriptor,
            ("manifests", _) => EntryKind::Manifests,
            ("staging", _) => EntryKind::Staging,
            ("index", _) => EntryKind::Index,
            ("quarantine", _) => EntryKind::Quarantine,
            ("trash", _) => EntryKind::Trash,
            (_, Some(dir)) => {
                generations += 1;
                if generations > DIRECTORIES {
                    continue;
                }
                EntryKind::Generation(state(fs, layout, newest, dir)?)
            }
            _ => {
                others += 1;
                if others > TOLD {
                    continue;
                }
                EntryKind::Foreign
            }
        };
        tree.put(0, &name, (!found.is_dir).then_some(found.len), what);
        if found.is_dir {
            tree.inside(&name, &path, dir.is_some())?;
        }
    }
    let rest = [(generations, DIRECTORIES, EntryKind::Generation(State::Readable)), (others, TOLD, EntryKind::Foreign)];
    for (count, most, what) in rest {
        if count > most {
            tree.more(0, what, count - most);
        }
    }
    Ok(())
}

/// Calls `each` with the names in the directory of one generation.
///
/// # Errors
/// As [`tree`].
pub fn generation(fs: &Arc<dyn Fs>, layout: &Layout, dir: GenerationDir, each: &mut dyn FnMut(Entry)) -> Result<()> {
    let newest = Manifests::new(fs.clone(), layout.clone()).newest_listed().ok();
    let (name, path) = (dir.to_string(), layout.generation(dir));
    let mut tree = Tree { fs: &**fs, each };
    tree.put(0, &name, None, EntryKind::Generation(state(&**fs, layout, newest, dir)?));
    tree.inside(&name, &path, true)
}

struct Tree<'a> {
    fs: &'a dyn Fs,
    each: &'a mut dyn FnMut(Entry),
}

impl Tree<'_> {
    fn put(&mut self, depth: usize, name: &str, bytes: Option<u64>, what: EntryKind) {
        (self.each)(Entry { depth, name: name.to_owned(), bytes, what, more: None });
    }

    /// Adds a line about `count` further names of a kind.
    fn more(&mut self, depth: usize, what: EntryKind, count: usize) {
        (self.each)(Entry { depth, name: String::new(), bytes: None, what, more: Some(count) });
    }

    /// Lists the names in one of the ring's directories.
    fn inside(&mut self, name: &str, path: &Path, is_generation: bool) -> Result<()> {
        match name {
            "staging" => {
                let mut owners = self.list(path)?;
                owners.sort_unstable();
                for owner in owners.iter().take(DIRECTORIES) {
                    let what = if is_owner(owner) { EntryKind::Owner } else { EntryKind::NotOwner };
                    self.put(1, owner, None, what);
                    let staged = |name: &str| match name.rsplit_once('.') {
                        Some((id, "rec")) if id.parse::<SegmentId>().is_ok() => EntryKind::Finished,
                        Some((id, "part")) if id.parse::<SegmentId>().is_ok() => EntryKind::Begun,
                        _ => EntryKind::NotStaged,
                    };
                    self.files(2, &path.join(owner), &staged)?;
                }
                if owners.len() > DIRECTORIES {
                    self.more(1, EntryKind::Owner, owners.len() - DIRECTORIES);
                }
                Ok(())
            }
            "manifests" => self.files(1, path, &|name| match parse_number(name) {
                Some(_) => EntryKind::Manifest,
                None => EntryKind::NotManifest,
            }),
            "quarantine" => self.files(1, path, &|name| match name.rsplit_once('.') {
                Some((_, "rec")) => EntryKind::Quarantined,
                Some((_, "why")) => EntryKind::Why,
                _ => EntryKind::Other,
            }),
            "trash" | "index" => self.files(1, path, &|_| EntryKind::Other),
            _ if is_generation => self.files(1, path, &|name| match SegmentName::parse(name) {
                Some(_) => EntryKind::Segment,
                None => EntryKind::NotSegment,
            }),
            _ => Ok(()),
        }
    }

    /// Lists the first names in a directory with their kinds, and counts the others by kind.
    fn files(&mut self, depth: usize, dir: &Path, kind: &dyn Fn(&str) -> EntryKind) -> Result<()> {
        let mut names = self.list(dir)?;
        let total = names.len();
        if total > TOLD {
            names.select_nth_unstable_by(TOLD, |a, b| order(a).cmp(&order(b)));
        }
        let rest: Vec<String> = names.split_off(total.min(TOLD));
        names.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        for name in &names {
            // Just listed, so the NFS client cannot answer with a false "not found".
            let Ok(found) = self.fs.identity(&dir.join(name)) else { continue };
            let what = if found.is_dir { EntryKind::Directory } else { kind(name) };
            self.put(depth, name, (!found.is_dir).then_some(found.len), what);
        }
        let mut counts: Vec<(EntryKind, usize)> = Vec::new();
        for name in &rest {
            let what = kind(name);
            match counts.iter_mut().find(|count| count.0 == what) {
                Some(count) => count.1 += 1,
                None => counts.push((what, 1)),
            }
        }
        for (what, count) in counts {
            self.more(depth, what, count);
        }
        Ok(())
    }

    /// Lists a directory. Returns no names if it is missing, not a directory, or not readable.
    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match surely(self.fs, dir, || self.fs.list(dir)) {
            Ok(names) => Ok(names),
            Err(error) if error.is_gone() || error.source.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
            Err(error) if error.source.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!("not listed: {error}");
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Sort key of a name: numbers by value, before other names.
fn order(name: &str) -> (u64, &str) {
    (parse_number(name).or_else(|| SegmentName::parse(name).map(|name| name.index)).unwrap_or(u64::MAX), name)
}
