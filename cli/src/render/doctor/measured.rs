//! What the checks of the doctor measured.

use ringreel_ops::doctor::facts::{Fact, Free, LeaseNote, MountNote, Reading, RightsNote, Runners, Spread};
use ringreel_ops::doctor::{Check, Verdict};
use ringreel_ops::probe::contents::Mapped;
use ringreel_ops::probe::names::{Broken, Race};
use std::collections::BTreeMap;
use std::time::Duration;

/// What was measured.
pub fn measured(check: &Check) -> String {
    let fact = &check.fact;
    of_configuration(fact)
        .or_else(|| of_names(fact))
        .or_else(|| of_contents(fact))
        .or_else(|| of_space(fact))
        .or_else(|| of_index(fact))
        .or_else(|| of_machine(fact, check.verdict))
        .or_else(|| of_peer(fact, check.verdict))
        .unwrap_or_default()
}

fn of_configuration(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Hangs { limit } => format!("it hangs: no answer within {:.0} s", limit.as_secs_f64()),
        Fact::NotMeasured { why }
        | Fact::DoesNotLoad { why }
        | Fact::UnusableRing { why }
        | Fact::Mismatch { why }
        | Fact::ServerAway { why }
        | Fact::ServerRefused { why } => why.clone(),
        Fact::Refused { error, .. } => error.clone(),
        Fact::Leftover { why, .. } => why.clone().unwrap_or_else(|| "the filesystem does not answer".to_owned()),
        Fact::Loads { notes } if notes.is_empty() => "it loads".to_owned(),
        Fact::Loads { notes } => format!("it loads: {}", notes.join("; ")),
        Fact::NoPlace { place, why } => format!("there is no {} ({why})", place.display()),
        Fact::Ring { path, version, swap_cap, sample } => {
            format!("{}: version {version}, SWAP_CAP {swap_cap}, SAMPLE {sample:?}", path.display())
        }
        Fact::NoRingKeys { path } => {
            format!("there is no ring at {}, and to make one SWAP_CAP and SAMPLE are needed", path.display())
        }
        Fact::RingNotFound { path } => format!("there is no ring at {} yet: the first role makes it", path.display()),
        Fact::NotEmpty { path, name } => format!("{} is no ring, and holds other things ({name:?})", path.display()),
        Fact::EmptyDirectory { path } => format!("{} is empty: the first role makes a ring of it", path.display()),
        Fact::Reading { way, kind } => match way {
            Reading::MapsShared => format!("READ is mmap, on {kind}"),
            Reading::Maps => format!("mmap, on {kind}"),
            Reading::AutoMaps => format!("auto: files are mapped, on {kind}"),
            Reading::AutoReads => format!("auto: files are read, not mapped, on {kind}"),
            Reading::Reads => "pread: files are read, never mapped".to_owned(),
        },
        Fact::Poll { poll: None, lease } => format!("POLL_SECONDS is the default, LEASE_SECONDS {lease}"),
        Fact::Poll { poll: Some(poll), lease } if *poll > lease / 4.0 => {
            format!("POLL_SECONDS {poll} is more than a quarter of LEASE_SECONDS {lease}: the quarter is used")
        }
        Fact::Poll { poll: Some(poll), lease } => format!("POLL_SECONDS {poll}, LEASE_SECONDS {lease}"),
        Fact::Leases { ours, shortest, longest } if shortest == ours && longest == ours => {
            format!("all members of the ring use {ours}")
        }
        Fact::Leases { ours, shortest, longest } => {
            format!("{ours} here; members of the ring use {shortest} to {longest}")
        }
        _ => return None,
    })
}

fn of_names(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Kind { name, is_local, place } => {
            let sort = if *is_local { "used by this machine alone" } else { "shared by machines, or not known" };
            format!("{name} ({sort}), at {}", place.display())
        }
        Fact::Mounted { mount, note } => format!("{mount}{}", mount_note(note)),
        Fact::NoMount => "/proc/self/mountinfo does not name it".to_owned(),
        Fact::MountUnknown { why } => format!("not known ({why})"),
        Fact::Rename(wrong) if wrong.is_empty() => "write.1 became read.1; files that were open in it go on".to_owned(),
        Fact::Link(wrong) if wrong.is_empty() => {
            "a file gets a second name in another directory; a name that is taken is refused".to_owned()
        }
        Fact::Rename(wrong) | Fact::Link(wrong) => wrong.iter().map(broken).collect::<Vec<_>>().join("; "),
        Fact::RenameOnto { is_refused: true } => "refused, and both are as they were".to_owned(),
        Fact::RenameOnto { is_refused: false } => "a directory that is not empty was replaced".to_owned(),
        Fact::Races(races) => races.iter().map(race).collect::<Vec<_>>().join("; "),
        Fact::RemovedUnreadable { why } => format!("it cannot be read any more ({why})"),
        Fact::DirectoryStays => "its directory cannot be removed after it was closed".to_owned(),
        Fact::RemovedReadable { leftovers } if leftovers.is_empty() => {
            "it can be read on, and is gone when closed".to_owned()
        }
        Fact::RemovedReadable { leftovers } => format!(
            "it can be read on under a name of the system's ({}), which goes when it is closed",
            leftovers.join(", ")
        ),
        Fact::Case { is_sensitive: true } => "it counts".to_owned(),
        Fact::Case { is_sensitive: false } => "it does not count".to_owned(),
        Fact::NameLength { bytes: 255.., .. } => "255 bytes".to_owned(),
        Fact::NameLength { bytes, needed } if bytes >= needed => format!("{bytes} bytes at least"),
        Fact::NameLength { bytes, needed } => format!("{bytes} bytes at least, not {needed}"),
        Fact::Inotify { after: Some(after), .. } => format!("fires on this node, after {}", millis(*after)),
        Fact::Inotify { after: None, is_local: true } => "silent, on a local filesystem".to_owned(),
        Fact::Inotify { after: None, .. } => "silent: readers look every POLL_SECONDS".to_owned(),
        Fact::NoInotify { why } | Fact::NoLocks { why } => format!("not to be had ({why})"),
        Fact::Locks { expected, counted } if expected == counted => format!("{counted} of {expected} increments"),
        Fact::Locks { expected, counted } => {
            format!("{counted} of {expected} increments: locks, or contents under them, do not hold")
        }
        _ => return None,
    })
}

fn mount_note(note: &MountNote) -> String {
    let text = match note {
        MountNote::Nothing => "",
        MountNote::Overlay => ": a container's own layers, which no other container or node sees",
        MountNote::Memory => ": this node's memory, which no other node sees",
        MountNote::NoCto => ": with nocto, an open does not ask the server whether a directory changed",
        MountNote::Soft => ": with soft, calls fail while the server is away",
        MountNote::NoCache => ": every look at a name asks the server",
        MountNote::NoDirectoryCache => ": directories are remembered for 0 s, so every look at a name asks the server",
        MountNote::AbsenceCached(seconds) => {
            return format!(
                ": a name that was looked for stays invisible for up to {seconds} s; ringreel opens the directory and \
                 looks again (for other programs: mount with lookupcache=positive)"
            );
        }
    };
    text.to_owned()
}

fn broken(broken: &Broken) -> String {
    match broken {
        Broken::OpenFileDiffers => "a file that was open gives other bytes afterwards".to_owned(),
        Broken::OpenFileUnreadable(why) => format!("a file that was open cannot be read afterwards ({why})"),
        Broken::OpenFileUnwritable(why) => format!("a file that was open cannot be written to afterwards ({why})"),
        Broken::OpenFileUnclosable(why) => format!("a file that was open cannot be closed afterwards ({why})"),
        Broken::RenamedFileDiffers => "a file has other bytes under the new name".to_owned(),
        Broken::RenamedFileUnreadable(why) => format!("a file cannot be opened by the new name ({why})"),
        Broken::OldNameStays => "the old name is still there".to_owned(),
        Broken::LinkIsCopy => "a link has another inode than its file".to_owned(),
        Broken::LinkReplaces => "a link replaces a name that is taken".to_owned(),
        Broken::LinkRefusedAs(why) => format!("a link to a name that is taken is refused as `{why}`"),
        Broken::LinkDiffers => "a link holds other bytes than its file".to_owned(),
        Broken::LinkUnreadable(why) => format!("a link cannot be read once its file's first name is gone ({why})"),
    }
}

fn race((race, runners): &(Race, Runners)) -> String {
    let by = match runners {
        Runners::Threads(n) => format!("{n} threads"),
        Runners::Nodes { way, won_by_a, errors: 0 } => format!("{way}; A won {won_by_a}"),
        Runners::Nodes { way, won_by_a, errors } => format!("{way}; A won {won_by_a}, {errors} errors"),
    };
    let Race { rounds, several, nobody } = race;
    if *several > 0 {
        format!("{several} of {rounds} names had two winners ({by})")
    } else if *nobody > 0 {
        format!("{rounds} names, one winner at most; nobody got {nobody} of them ({by})")
    } else {
        format!("{rounds} names, {by}: one winner each")
    }
}

fn of_contents(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::ReadsBack { is_right: true } => "a new file gives its own bytes".to_owned(),
        Fact::ReadsBack { is_right: false } => "a new file gives other bytes, or another length".to_owned(),
        Fact::Maps { maps, is_wanted } => {
            let wrong: Vec<String> = maps.iter().zip(["shared", "private"]).filter_map(map).collect();
            match (wrong.is_empty(), is_wanted) {
                (true, _) => "shared and private maps show the file's bytes".to_owned(),
                (false, true) => wrong.join("; "),
                (false, false) => format!("{}: nothing is mapped here, as READ is", wrong.join("; ")),
            }
        }
        Fact::Seen { opened, listed, .. } => {
            format!("opened after {}, listed after {}", spread(opened), spread(listed))
        }
        Fact::Syncs { files, directories } => format!("a file {}, a directory {}", spread(files), spread(directories)),
        _ => return None,
    })
}

fn map((map, sort): (&Mapped, &str)) -> Option<String> {
    match map {
        Mapped::Right => None,
        Mapped::Wrong => Some(format!("a {sort} map shows other bytes")),
        Mapped::None(why) => Some(format!("no {sort} map ({why})")),
    }
}

fn of_space(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::NoRoom(room) => free(room),
        Fact::FreeRoom(room) => format!("{}; how much a generation takes shows when there is one", free(room)),
        Fact::Room { free: room, generation: (generation, files), needed } => format!(
            "{}; a generation takes {} in {files} files, KEEP + 3 of them need {} and {} files more than the ring has",
            free(room),
            bytes(*generation),
            bytes(needed.0),
            needed.1
        ),
        Fact::Limits { max_bytes, max_files, generation } => limits(*max_bytes, *max_files, *generation),
        Fact::NothingWritten => "not measured: there is no room".to_owned(),
        Fact::Written { bytes: written, time } => {
            let seconds = time.as_secs_f64();
            let rate = bytes((*written as f64 / seconds.max(1e-6)) as u64);
            format!("{rate}/s ({} in {seconds:.2} s, synced)", bytes(*written))
        }
        Fact::OtherDevice { dir, scratch } => {
            format!("{} lies on another device than {}", dir.display(), scratch.display())
        }
        Fact::OneDevice { has_ring: true } => "all directories of the ring have one device number".to_owned(),
        Fact::OneDevice { has_ring: false } => {
            "one device number; links into another directory work, see hard link".to_owned()
        }
        Fact::Closed { dirs } => format!("you may not write to {}", dirs.join(", ")),
        Fact::Rights { made, place, note } => {
            let note = match note {
                RightsNote::Nothing => "",
                RightsNote::Sticky => ": its sticky bit lets nobody but owners rename and remove",
                RightsNote::GroupCannotWrite => ": it is meant for a group, and the group cannot write in yours",
                RightsNote::ProtectedHardlinks => "; fs.protected_hardlinks is 1",
            };
            format!("directories that you make have mode {made:o}; the place has {place:o}{note}")
        }
        Fact::SetgidLost { gid, mode, .. } => {
            format!("the ring's directory, of group {gid}, has lost the setgid bit (mode {mode:o})")
        }
        Fact::Setgid { gid, is_kept: true, .. } => format!("a directory of group {gid} keeps the setgid bit"),
        Fact::Setgid { gid, mode, .. } => format!(
            "a directory of group {gid} loses the setgid bit without an error (mode {mode:o}): you are not in that \
             group, or the filesystem drops the bit"
        ),
        _ => return None,
    })
}

fn free(free: &Free) -> String {
    let inodes = free.inodes.map_or(String::new(), |inodes| format!(" and {inodes} inodes"));
    format!("{}{inodes} free", bytes(free.bytes))
}

fn limits(max_bytes: Option<u64>, max_files: Option<u64>, generation: Option<(u64, u64)>) -> String {
    let limits =
        [max_bytes.map(|max| format!("MAX_BYTES {}", bytes(max))), max_files.map(|max| format!("MAX_FILES {max}"))];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(", ");
    match generation {
        _ if limits.is_empty() => "no limits".to_owned(),
        None => format!("{limits}; how much a generation takes shows when there is one"),
        Some((size, files)) => format!("{limits}; a generation takes {} in {files} files", bytes(size)),
    }
}

fn of_index(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Claims { threads, distinct, asked, each, holders } => format!(
            "{threads} threads took {distinct} different numbers of {asked}, {} each; {holders} got the lease",
            millis(*each)
        ),
        Fact::NoMongoDb => "this build has no MongoDB".to_owned(),
        Fact::Server { place, version, whose } => format!("{place} answers, version {version}; its place is {whose}"),
        Fact::ServerTrips(trips) => spread(trips),
        Fact::Numbers { distinct: 0, asked: 0 } => "not measured: see write concern".to_owned(),
        Fact::Numbers { distinct, asked } if distinct == asked => format!("{distinct} different numbers of {asked}"),
        Fact::Numbers { distinct, asked } => {
            format!("{distinct} different numbers of {asked}: the server gives numbers twice")
        }
        Fact::WriteConcern { words: None, .. } => "the server's default".to_owned(),
        Fact::WriteConcern { words: Some(words), is_acknowledged: true } => words.clone(),
        Fact::WriteConcern { words: Some(words), .. } => format!("{words}: writes are not acknowledged"),
        Fact::ServerClock { ahead: None, .. } => "the server does not tell its time".to_owned(),
        Fact::ServerClock { ahead: Some(off), within } => {
            format!("the server's is {off:+.1} s off ours (± {})", millis(*within))
        }
        _ => return None,
    })
}

fn of_machine(fact: &Fact, verdict: Verdict) -> Option<String> {
    let limit = |limit: &Option<u64>| limit.map_or("no limit".to_owned(), |limit| limit.to_string());
    Some(match fact {
        Fact::OpenFiles { limit: files, held, least } => match files {
            Some(n) if n < least => format!("{n}; a reader needs {least}"),
            Some(n) if verdict == Verdict::Warning => n.to_string(),
            _ => format!("{}; a reader holds up to {held} segments open", limit(files)),
        },
        Fact::Processes { limit: max, .. } | Fact::Locked { limit: max } => limit(max),
        Fact::AddressSpace { limit } => limit.map_or("no limit".to_owned(), bytes),
        Fact::Shm { free } => free.map_or("there is none".to_owned(), |free| format!("{} free", bytes(free))),
        Fact::Memory { available, limit } => {
            let available = available.map_or("not known".to_owned(), |memory| format!("{} available", bytes(memory)));
            available + &limit.map_or(String::new(), |limit| format!(", {} in this control group", bytes(limit)))
        }
        Fact::Processors { usable, all } => format!("{usable} of {all}, by affinity and control group"),
        Fact::Clock { unix_seconds } if verdict == Verdict::Ok => format!("{unix_seconds} s since 1970"),
        Fact::Clock { unix_seconds } => format!("{unix_seconds} s since 1970: before 2020"),
        Fact::Temp { path, is_writable: true } => path.display().to_string(),
        Fact::Temp { path, .. } => format!("{} cannot be written to", path.display()),
        Fact::Job { rank: Some((rank, size)), seen } => format!("rank {rank} of {size} ({seen})"),
        Fact::Job { seen, .. } if seen.is_empty() => "none seen: rank 0 of 1".to_owned(),
        Fact::Job { seen, .. } => format!("rank 0 of 1 ({seen})"),
        Fact::JobMismatch { seen, .. } => seen.clone(),
        Fact::NoPython => "not looked at: there is no python3".to_owned(),
        Fact::NoPackage => "not looked at: python3 does not find the package `ringreel`".to_owned(),
        Fact::PackageHangs { limit } => format!("python3 does not import it within {}", millis(*limit)),
        Fact::Package { version, ours } if version == ours => format!("{version}, as this command"),
        Fact::Package { version, ours } => format!("{version}; this command is {ours}"),
        _ => return None,
    })
}

fn of_peer(fact: &Fact, verdict: Verdict) -> Option<String> {
    Some(match fact {
        Fact::Nodes { a, b, are_one } => {
            let one = if *are_one { ": one node" } else { "" };
            format!("A is {a} (it acts), B is {b} (it looks){one}")
        }
        Fact::Answers(trips) => format!("a name and its answer: {}", spread(trips)),
        Fact::PeerClock { ahead_ms, within } => {
            format!("B's is {:+.3} s off A's (± {})", ahead_ms / 1e3, millis(*within))
        }
        Fact::SeenByPeer { delays, look, lease } => at_most(delays, *look, *lease),
        Fact::Missing { surely, plainly, look, lease, is_hidden } => {
            let plain = if plainly.never == 0 { spread(plainly) } else { format!("more than {}", millis(*look)) };
            let hidden = if *is_hidden { ": B's client remembers that the name was absent" } else { "" };
            let surely = at_most(surely, *look, *lease);
            format!("once its directory is opened: {surely}; by the name alone: {plain}{hidden}")
        }
        Fact::PeerInotify(said) => match said.as_str() {
            "fires" => "B is told of what A does".to_owned(),
            "silent" => "silent on B for what A does: readers look every POLL_SECONDS".to_owned(),
            why => format!("not to be had on B ({why}): readers look every POLL_SECONDS"),
        },
        Fact::LateNames { tried, lost: lost @ 1.., .. } => {
            format!("{lost} of {tried} names that B made by the old path are nowhere")
        }
        Fact::LateNames { tried, landed: 0, .. } => format!("{tried} renames: no name by the old path afterwards"),
        Fact::LateNames { tried, landed, longest, .. } => format!(
            "{landed} of {tried} names by the old path landed in the promoted directory, for {} at least: harmless, \
             such a segment is linked once more",
            millis(*longest)
        ),
        Fact::ReplacedFiles { replaced, rewritten } => {
            format!("B opens one at once: replaced by rename: {}; rewritten: {}", tally(replaced), tally(rewritten))
        }
        Fact::SealedFiles { files, seen } if verdict == Verdict::Ok => {
            format!("{files} files of 1 MiB: {}", tally(seen))
        }
        Fact::SealedFiles { seen, .. } => tally(seen),
        Fact::End => "both sides went through all of it".to_owned(),
        _ => return None,
    })
}

/// When B sees something that it looks for so long.
fn at_most(delays: &Spread, look: Duration, lease: LeaseNote) -> String {
    match lease {
        _ if delays.count == 0 => format!("not within {}", millis(look)),
        LeaseNote::LongEnough => format!("{} (bounds from above: B's answer is in them)", spread(delays)),
        _ => spread(delays),
    }
}

/// What was seen, and how often.
fn tally(seen: &BTreeMap<String, usize>) -> String {
    let words: Vec<String> = seen.iter().map(|(what, n)| format!("{what} {n}")).collect();
    words.join(", ")
}

/// Median and longest, in words.
fn spread(delays: &Spread) -> String {
    let Spread { count, median, longest, never } = *delays;
    let times = || format!("{} (median of {count}), {} at most", millis(median), millis(longest));
    match (count, never) {
        (0, 0) => "not measured".to_owned(),
        (0, _) => "never".to_owned(),
        (_, 0) => times(),
        (_, never) => format!("{}; never {never} times", times()),
    }
}

/// A time in words.
fn millis(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 1000.0 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}

/// `bytes` in words.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1048576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
