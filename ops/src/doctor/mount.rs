//! Checks of the mount options of the ring's filesystem, which decide what other nodes see, and when.
//!
//! Sources: proc_pid_mountinfo(5), nfs(5), and the measurements in `docs/operations/filesystems.md`.

use super::Outcome;
use super::facts::{Fact, MountNote};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Seconds for which an NFS client caches a directory at most, without `acdirmax`.
const ACDIRMAX: &str = "60";
/// Most characters of the options that are shown.
const OPTIONS_SHOWN: usize = 200;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    point: PathBuf,
    kind: String,
    source: String,
    /// The options of the mount, then those that only the filesystem has.
    options: Vec<String>,
}

/// Returns the mount that the absolute path `place` is on, or `None` if `mountinfo` has none.
pub(super) fn find(mountinfo: &[u8], place: &Path) -> Option<Mount> {
    let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(parse);
    // Of two mounts on one point, the later one hides the other.
    mounts.filter(|mount| place.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
}

fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // Six fields, then any number of optional ones, then a hyphen.
    let end = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |field: &[u8]| OsString::from_vec(unescaped(field)).to_string_lossy().into_owned();
    let options = |field: &[u8]| text(field).split(',').map(str::to_owned).collect::<Vec<_>>();
    Some(Mount {
        point: PathBuf::from(OsString::from_vec(unescaped(fields.get(4)?))),
        kind: text(fields.get(end + 1)?),
        source: text(fields.get(end + 2)?),
        options: union(options(fields.get(5)?), options(fields.get(end + 3)?)),
    })
}

/// Returns the options that are in effect, each once. A mount is read-only if it or its filesystem is.
fn union(mut options: Vec<String>, of_filesystem: Vec<String>) -> Vec<String> {
    for option in of_filesystem {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    if options.iter().any(|option| option == "ro") {
        options.retain(|option| option != "rw");
    }
    options
}

/// Decodes space, tab, newline and backslash, which are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

impl Mount {
    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }

    /// Judges what the options mean for a ring.
    pub(super) fn judge(&self) -> Outcome {
        let shown: String = self.options.join(",").chars().take(OPTIONS_SHOWN).collect();
        let mount = format!("{} of {} at {}: {shown}", self.kind, self.source, self.point.display());
        let note = match self.kind.as_str() {
            "nfs" | "nfs4" => self.judge_nfs(),
            "overlay" => MountNote::Overlay,
            "tmpfs" | "ramfs" => MountNote::Memory,
            _ => MountNote::Nothing,
        };
        let is_fine = matches!(note, MountNote::Nothing | MountNote::Memory | MountNote::AbsenceCached(_));
        Outcome::ok_if(is_fine, Fact::Mounted { mount, note })
    }

    fn judge_nfs(&self) -> MountNote {
        if self.has("nocto") {
            MountNote::NoCto
        } else if self.has("soft") || self.has("softerr") {
            MountNote::Soft
        } else if self.has("noac") || self.value("lookupcache") == Some("none") {
            MountNote::NoCache
        } else if self.value("acdirmax") == Some("0") {
            MountNote::NoDirectoryCache
        } else if matches!(self.value("lookupcache"), Some("pos" | "positive")) {
            MountNote::Nothing
        } else {
            MountNote::AbsenceCached(self.value("acdirmax").unwrap_or(ACDIRMAX).to_owned())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::Verdict;
    use super::*;

    const LINES: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
25 22 0:21 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw,size=1g
61 22 0:52 / /scratch rw,relatime shared:30 - nfs4 server:/export rw,vers=4.2,hard,proto=tcp,local_lock=none
62 61 0:53 / /scratch/my\\040runs rw,relatime - nfs server:/b rw,vers=3,soft,acdirmax=30
63 22 0:54 / /over rw - nfs4 server:/c rw,vers=4.1,hard,nocto
64 22 0:55 / /over rw master:7 propagate_from:2 - fuse.glusterfs server:/gv0 rw,user_id=0
65 22 0:56 / /container rw - overlay overlay rw,lowerdir=/a
66 22 0:57 / /quick rw - nfs4 server:/d rw,hard,lookupcache=pos
67 22 0:58 / /slow rw - nfs4 server:/e rw,hard,noac
68 22 0:59 / /brief rw - nfs4 server:/f rw,acregmin=3,acregmax=3,acdirmin=3,acdirmax=3,hard
69 22 0:60 / /never rw - nfs4 server:/g rw,acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,hard
";

    fn of(place: &str) -> Mount {
        find(LINES.as_bytes(), Path::new(place)).unwrap()
    }

    #[test]
    fn deepest_and_latest_mount_is_found() {
        let found = |place: &str| (of(place).source, of(place).kind);
        assert_eq!(found("/home/me"), ("/dev/vda".to_owned(), "ext4".to_owned()));
        assert_eq!(found("/scratch/ring").0, "server:/export");
        assert_eq!(found("/scratch2").0, "/dev/vda");
        assert_eq!(found("/scratch/my runs/ring").0, "server:/b");
        assert_eq!(found("/over/ring").1, "fuse.glusterfs");
    }

    #[test]
    fn options_are_judged_by_what_a_ring_needs() {
        let judged = |place: &str| of(place).judge();
        let note = |place: &str| match judged(place).fact {
            Fact::Mounted { note, .. } => note,
            other => panic!("{other:?}"),
        };
        let warned = [
            ("/scratch/my runs", MountNote::Soft),
            ("/container", MountNote::Overlay),
            ("/slow", MountNote::NoCache),
            ("/never", MountNote::NoDirectoryCache),
        ];
        for (place, expected) in warned {
            assert_eq!((judged(place).verdict, note(place)), (Verdict::Warning, expected), "{place}");
        }
        let fine = [
            ("/", MountNote::Nothing),
            ("/scratch", MountNote::AbsenceCached("60".to_owned())),
            ("/brief", MountNote::AbsenceCached("3".to_owned())),
            ("/dev/shm/r", MountNote::Memory),
            ("/quick", MountNote::Nothing),
        ];
        for (place, expected) in fine {
            assert_eq!((judged(place).verdict, note(place)), (Verdict::Ok, expected), "{place}");
        }
        let nocto = find(LINES.lines().nth(4).unwrap().as_bytes(), Path::new("/over")).unwrap().judge();
        let is_nocto = matches!(nocto.fact, Fact::Mounted { note: MountNote::NoCto, .. });
        assert!(nocto.verdict == Verdict::Warning && is_nocto, "{nocto:?}");
    }

    #[test]
    fn each_option_is_shown_once() {
        let shown = |line: &str| match find(line.as_bytes(), Path::new("/a")).unwrap().judge().fact {
            Fact::Mounted { mount, .. } => mount,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(LINES), "ext4 of /dev/vda at /: rw,relatime,errors=remount-ro");
        let is_ro = "1 2 0:1 / /a ro,relatime - ext4 /dev/sda rw,discard";
        assert_eq!(shown(is_ro), "ext4 of /dev/sda at /a: ro,relatime,discard");
        let filesystem_is_ro = "1 2 0:1 / /a rw,relatime - ext4 /dev/sda ro,discard";
        assert_eq!(shown(filesystem_is_ro), "ext4 of /dev/sda at /a: relatime,ro,discard");
    }

    #[test]
    fn truncated_lines_are_ignored() {
        for end in 0..LINES.len() {
            find(&LINES.as_bytes()[..end], Path::new("/over/x"));
        }
        for odd in ["", " - - - -", "1 2 3 4 \\9 6 -", "1 2 3 4 \\04 6 - a b c", "\u{fffd} \\ \\\\"] {
            assert_eq!(find(odd.as_bytes(), Path::new("/x")), None, "{odd}");
        }
    }
}
