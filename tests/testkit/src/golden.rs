//! Compares the command's output for fixed rings with the text in `tests/golden/`, word for word.
//!
//! Generators wrote `tests/golden/healthy.ring` once; the other rings are derived from it, always in the same way.
//! After an intended change, run `INSTA_UPDATE=always cargo test --test main cli::golden::`, and check `git diff`.

use ringreel_format::recordio::{RecordWriter, image};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub use crate::wait::loudly;

/// The fixed rings, and a foreign file.
pub const FIXED: [&str; 6] = ["healthy", "half-promoted", "damaged", "other-version", "empty", "foreign"];

/// A copy of one of [`FIXED`], in a separate directory with a `config.yaml`.
pub struct Fixed {
    dir: TempDir,
    name: String,
}

impl Fixed {
    /// A fresh copy.
    pub fn new(name: &str) -> Fixed {
        let dir = tempfile::tempdir().unwrap();
        let fixed = Fixed { dir, name: name.to_owned() };
        fs::write(fixed.dir.path().join("config.yaml"), format!("RING: {name}.ring\nKEEP: 5\nLEASE_SECONDS: 0.2\n"))
            .unwrap();
        let ring = fixed.path();
        if name == "foreign" {
            write_foreign(&ring);
            return fixed;
        }
        copy(&home().join("healthy.ring"), &ring);
        match name {
            "half-promoted" => fs::rename(ring.join("write.4"), ring.join("read.4")).unwrap(),
            "damaged" => {
                let file = |name: &str| ring.join("read.2").join(name);
                let mut bytes = fs::read(file("000001.rec")).unwrap();
                bytes[1000] ^= 1;
                fs::write(file("000001.rec"), &bytes).unwrap();
                fs::OpenOptions::new().write(true).open(file("000002.rec")).unwrap().set_len(1500).unwrap();
                fs::remove_file(file("000003.rec")).unwrap();
                fs::remove_file(ring.join("manifests/1")).unwrap();
            }
            "other-version" => {
                let text = fs::read_to_string(ring.join("ring.json")).unwrap();
                let other = text.replace("\"ringreel\": 1", "\"ringreel\": 7");
                assert_ne!(text, other);
                fs::write(ring.join("ring.json"), other).unwrap();
            }
            "empty" => {
                (1..=3).for_each(|n| fs::remove_dir_all(ring.join(format!("read.{n}"))).unwrap());
                (1..=3).for_each(|n| fs::remove_file(ring.join(format!("manifests/{n}"))).unwrap());
                fs::remove_dir_all(ring.join("write.4")).unwrap();
                for dir in ["staging", "index"] {
                    fs::remove_dir_all(ring.join(dir)).unwrap();
                    fs::create_dir(ring.join(dir)).unwrap();
                }
                fs::create_dir(ring.join("write.1")).unwrap();
            }
            _ => assert_eq!(name, "healthy"),
        }
        fixed
    }

    /// The ring, or the file.
    pub fn path(&self) -> PathBuf {
        let end = if self.name == "foreign" { "rec" } else { "ring" };
        self.dir.path().join(format!("{}.{end}", self.name))
    }

    /// Runs the command in that directory and returns its output and exit status, without anything that differs between
    /// runs. `PATH` among the arguments is replaced by the path.
    pub fn told(&self, args: &[&str]) -> String {
        let path = self.path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let args: Vec<String> = args.iter().map(|arg| arg.replace("PATH", name)).collect();
        let mut command = Command::new(crate::binary());
        command.args(&args).current_dir(self.dir.path()).env_remove("RINGREEL_LOG").env("TZ", "UTC");
        let said = command.output().unwrap();
        let root = self.dir.path().canonicalize().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(root.to_str().unwrap(), "[DIR]");
        let (out, err) = (text(&said.stdout), text(&said.stderr));
        assert!(!err.contains("panicked"), "{err}");
        let status = said.status.code().map_or("killed".to_owned(), |code| code.to_string());
        let err = if err.is_empty() { err } else { format!("\n--- stderr\n{err}") };
        format!("$ ringreel {}\n{out}--- exit status {status}{err}", args.join(" "))
    }
}

/// Compares the output of `ringreel ARGS` for the fixed ring with `tests/golden/snapshots/`.
pub fn golden(command: &str, fixed: &str, args: &[&str]) {
    golden_lines(command, fixed, args, "");
}

/// The same for the lines on stdout that contain `words`, and for the exit status.
pub fn golden_lines(command: &str, fixed: &str, args: &[&str], words: &str) {
    let told = Fixed::new(fixed).told(args);
    let counts = |line: &&str| !line.starts_with('{') || line.contains(words);
    let told = told.split_inclusive('\n').filter(counts).collect::<String>();
    let mut filters = vec![
        // Prometheus' text has times, and free space.
        (r"(?m)^(ringreel_\w*seconds\S*) \S+$", "$1 [TIME]"),
        (r"(?m)^(ringreel_free_\S*) \S+$", "$1 [ROOM]"),
        (r"\d\d:\d\d:\d\d UTC", "[WHEN]"),
        (r"report.html: \S+ \S+", "report.html: [SIZE]"),
        (r"\S+ \S+ free", "[ROOM] free"),
        // Rates, and durations in any unit.
        (r"\b\d+(\.\d+)? samples/s", "[RATE]"),
        (r"\b\d+(\.\d+)? (ms|s|min|h|d)\b", "[TIME]"),
        (r#""(\w*(?:seconds|_ms|ms_mean))":[0-9.eE+-]+"#, r#""$1":"[TIME]""#),
        (r#""(free_\w+)":\d+"#, r#""$1":"[ROOM]""#),
        (r"\b\d{4}-\d\d-\d\dT[0-9:.]+Z", "[WHEN]"),
    ];
    if command == "top" {
        filters.extend([(" +", " "), ("─+", "─"), ("░+", "░"), ("█+", "█")]); // columns next to a time
    }
    insta::with_settings!({
        snapshot_path => home().join("snapshots"), prepend_module_to_snapshot => false, omit_expression => true,
        filters => filters,
    }, { insta::assert_snapshot!(format!("{command}.{fixed}"), told) });
}

fn home() -> PathBuf {
    crate::workspace().join("tests/golden")
}

/// Everything below a directory, with contents.
pub fn listing(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut todo, mut all) = (vec![dir.to_owned()], Vec::new());
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            all.push((path.clone(), if path.is_dir() { Vec::new() } else { fs::read(&path).unwrap() }));
            if path.is_dir() {
                todo.push(path);
            }
        }
    }
    all.sort();
    all
}

/// Three records: bytes, a payload with the magic number, and an MXNet image.
fn write_foreign(path: &Path) {
    let mut writer = RecordWriter::new(fs::File::create(path).unwrap());
    writer.write(b"hello").unwrap();
    writer.write(&[&b"four"[..], &0xced7_230a_u32.to_le_bytes(), b"more"].concat()).unwrap();
    writer.write(&image::encode(7, 0, &[3.0], b"\x89PNG\r\n\x1a\nno real image")).unwrap();
}

/// Copies a directory; two names of one segment, which are two files in a repository, become hard links again.
fn copy(from: &Path, to: &Path) {
    let mut links: HashMap<Vec<u8>, PathBuf> = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    fs::create_dir(to).unwrap();
    // A repository does not store empty directories.
    for dir in
        ringreel::layout::DIRECTORIES.into_iter().chain(["index/leases", "index/members", "index/notes", "index/tmp"])
    {
        fs::create_dir(to.join(dir)).unwrap();
    }
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(from.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            if from.join(&path).is_dir() {
                fs::create_dir_all(to.join(&path)).unwrap();
                todo.push(path);
                continue;
            }
            let bytes = fs::read(from.join(&path)).unwrap();
            match links.get(&bytes).filter(|_| path.extension().is_some_and(|end| end == "rec")) {
                Some(first) => fs::hard_link(to.join(first), to.join(&path)).unwrap(),
                None => {
                    fs::write(to.join(&path), &bytes).unwrap();
                    links.insert(bytes, path);
                }
            }
        }
    }
}
