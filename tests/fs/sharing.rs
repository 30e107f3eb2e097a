//! Several users in one ring: permitted users can read all files, whatever each user's umask is.

use ringreel::Generator;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::cli::{self, Place, Running, as_nobody, eventually, loudly};

/// Returns the modes of a directory and everything below it.
fn modes(dir: &Path) -> Vec<(PathBuf, u32, bool)> {
    let (mut all, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push((path, meta.mode() & 0o7777, meta.is_dir()));
    }
    all
}

/// Runs the command under this umask.
fn under_umask(place: &Place, umask: &str, args: &[&str]) {
    let mut command = std::process::Command::new("sh");
    let run = format!("umask {umask}; exec \"$@\"");
    command.current_dir(place.path()).args(["-c", &run, "sh", testkit::binary()]).args(args);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

const MAKE: [&str; 7] = ["generate", "--samples", "4", "--shape", "1000", "--rate", "1000"];

fn made(umask: &str, yaml: &str) -> Place {
    let place = Place::verbatim(&format!("DBNAME: demo\nINDEX: files\nSWAP_CAP: 2\nSAMPLE: [data]\n{yaml}"));
    under_umask(&place, umask, &MAKE);
    place
}

#[test]
fn modes_follow_the_umask_without_ring_mode() {
    for (umask, file, dir) in
        [("022", 0o644, 0o755), ("002", 0o664, 0o775), ("077", 0o600, 0o700), ("000", 0o666, 0o777)]
    {
        let place = made(umask, "");
        for (path, mode, is_dir) in modes(&place.ring()) {
            assert_eq!(mode, if is_dir { dir } else { file }, "{umask}: {}", path.display());
        }
    }
}

#[test]
fn modes_follow_ring_mode_under_any_umask() {
    for (given, file, dir) in
        [("0660", 0o660, 0o770), ("\"2770\"", 0o660, 0o2770), ("0644", 0o644, 0o755), ("0600", 0o600, 0o700)]
    {
        for umask in ["077", "000"] {
            let place = made(umask, &format!("RING_MODE: {given}\n"));
            let all = modes(&place.ring());
            assert!(all.iter().any(|(path, ..)| path.ends_with("read.1/000000.rec")), "{all:?}");
            for (path, mode, is_dir) in all {
                assert_eq!(mode, if is_dir { dir } else { file }, "{given} {umask}: {}", path.display());
            }
        }
    }
}

/// A ring that belongs to root and to group 65534, which has no members.
fn shared(yaml: &str) -> Option<Place> {
    if !rustix::process::geteuid().is_root() {
        loudly("SKIPPED: two users in one ring: this user is not root");
        return None;
    }
    let place = Place::verbatim(&format!(
        "DBNAME: demo\nINDEX: files\nSWAP_CAP: 2\nSAMPLE: [data]\nLEASE_SECONDS: 0.2\n{yaml}"
    ));
    chown(place.path(), None, Some(65534)).unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o2775)).unwrap();
    under_umask(&place, "077", &MAKE);
    Some(place)
}

#[test]
fn group_members_use_a_ring_made_under_umask_077() {
    let Some(place) = shared("RING_MODE: \"2770\"\n") else { return };
    let test = "another user of the group";
    let Some(said) = as_nobody(test, &place, &["read", "--all", "--json"]) else { return };
    assert_eq!(said.ok().json().len(), 4);
    as_nobody(test, &place, &["generate", "--samples", "2", "--shape", "1000", "--promote"]).unwrap().ok();
    as_nobody(test, &place, &["gc", "-c", "config.yaml", "--apply"]).unwrap().ok();
    let said = place.run(&["read", "--all", "--json"]).ok();
    assert!(said.json().len() >= 2, "{said:?}");
    // Directories that a removal recreates belong to the group as well.
    for (path, mode, is_dir) in modes(&place.ring()) {
        assert_eq!(mode, if is_dir { 0o2770 } else { 0o660 }, "{}", path.display());
        assert_eq!(fs::symlink_metadata(&path).unwrap().gid(), 65534, "{}", path.display());
    }
}

#[test]
fn lost_setgid_bit_is_warned_of_once_and_named_by_doctor() {
    if !rustix::process::geteuid().is_root() {
        return loudly("SKIPPED: a directory of a group that its user is not in: this user is not root");
    }
    let place = Place::verbatim("DBNAME: demo\nINDEX: files\nSWAP_CAP: 2\nSAMPLE: [data]\nRING_MODE: \"2770\"\n");
    chown(place.path(), None, Some(4711)).unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o2777)).unwrap();
    let test = "a lost setgid bit";
    let doctor = |words: &str| {
        let said = as_nobody(test, &place, &["doctor", "--json"])?;
        let line = said.json().into_iter().find(|line| line["check"] == "RING_MODE").unwrap();
        let of = |key: &str| line[key].as_str().unwrap().to_owned();
        assert_eq!(of("verdict"), "warning", "{said:?}");
        assert!(of("measured").contains(words) && of("advice").contains("chgrp"), "{said:?}");
        Some(())
    };
    // Once before the ring exists, and once for the ring.
    if doctor("of group 4711 loses the setgid bit").is_none() {
        return;
    }
    let generate = ["generate", "--samples", "2", "--shape", "1000", "--promote"];
    let said = as_nobody(test, &place, &generate).unwrap();
    assert_eq!((said.code, said.err.matches("setgid bit").count()), (Some(0), 1), "{said:?}");
    for words in ["demo.ring did not keep the setgid bit", "group 4711", "chgrp"] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
    doctor("the ring's directory, of group 4711, has lost the setgid bit (mode 770)");
    // Root keeps the bit.
    let said = place.run(&generate).ok();
    assert!(!said.err.contains("setgid"), "{said:?}");
}

#[test]
fn umask_077_without_ring_mode_denies_other_users() {
    let Some(place) = shared("") else { return };
    let Some(said) = as_nobody("umask 077", &place, &["read", "--all", "--json"]) else { return };
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("Permission denied"), "{said:?}");
}

/// Stages a sample of a dead owner, root, without linking it. Returns the name of its segment's file.
fn left_by_the_dead(place: &Place) -> PathBuf {
    let mut generator = Generator::open(&place.config()).unwrap();
    let layout = generator.ring().layout.clone();
    let parts = cli::contents(1, 0, 1000);
    let part = [ringreel::NamedPart::new("data", ringreel_format::DType::U8, &[1000], &parts)];
    let id = generator.write(&part, &ringreel_format::Meta::new(), &|| false).unwrap()[0].segment;
    let dead = layout.staging_of("b-1-00000000");
    generator.ring().fs.make_dir(&dead).unwrap();
    let name = dead.join(format!("{id}.rec"));
    fs::rename(layout.sealed(&generator.ring().me, id), &name).unwrap();
    let filling = generator.ring().manifests.newest().unwrap() + 1;
    for entry in fs::read_dir(layout.write(filling)).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    name
}

#[test]
fn managers_adopt_other_users_files_only_if_permitted() {
    let hardlinks = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    for (mode, may) in [("\"2770\"", true), ("\"2750\"", false)] {
        let Some(place) = shared(&format!("RING_MODE: {mode}\n")) else { return };
        if as_nobody("a manager of another user", &place, &["--version"]).is_none() {
            return;
        }
        let name = left_by_the_dead(&place);
        // The directories belong to the group in both cases, so only the file's mode matters.
        for (path, _, is_dir) in modes(&place.ring()) {
            if is_dir {
                fs::set_permissions(&path, Permissions::from_mode(0o2770)).unwrap();
            }
        }
        let links = || fs::metadata(&name).unwrap().nlink();
        let mut command = place.command(&["manager"]);
        command.uid(65534).gid(65534);
        let mut manager = Running::start(command);
        if may {
            eventually("the segment is linked", || links() == 2 || !manager.is_running());
            assert_eq!(links(), 2, "{}", manager.err());
        } else if hardlinks.trim() == "1" {
            std::thread::sleep(Duration::from_secs(3));
            assert!(manager.is_running(), "{}", manager.err());
            assert_eq!(links(), 1, "an unprivileged user linked a file without write permission");
        } else {
            loudly("SKIPPED: what may not be linked is left alone: fs.protected_hardlinks is not set");
        }
        manager.terminate();
        manager.finish();
    }
}
