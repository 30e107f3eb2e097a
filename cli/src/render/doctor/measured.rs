//! The results of the doctor's checks, as text.

use crate::humanize::utc;
use ringreel_ops::doctor::facts::{Fact, Free, LeaseNote, MountNote, Reading, RightsNote, Runners, Spread};
use ringreel_ops::doctor::{Check, Verdict};
use ringreel_ops::probe::contents::Mapped;
use ringreel_ops::probe::names::{Broken, Race};
use std::collections::BTreeMap;
use std::time::Duration;

/// Describes what a check measured.
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
        Fact::Hangs { limit } => format!("it hangs: no response within {:.0} s", limit.as_secs_f64()),
        Fact::NotMeasured { why }
        | Fact::DoesNotLoad { why }
        | Fact::UnusableRing { why }
        | Fact::Mismatch { why }
        | Fact::ServerAway { why }
        | Fact::ServerRefused { why } => why.clone(),
        Fact::Refused { error, .. } => error.clone(),
        Fact::Leftover { why, .. } => why.clone().unwrap_or_else(|| "the filesystem does not respond".to_owned()),
        Fact::Loads { notes } => {
            let valid = "all keys and values are valid".to_owned();
            [valid].iter().chain(notes).map(String::as_str).collect::<Vec<_>>().join("; ")
        }
        Fact::NoPlace { place, why } => format!("{} cannot be used ({why})", place.display()),
        Fact::Ring { path, version, swap_cap, sample } => {
            format!("{}: version {version}, SWAP_CAP {swap_cap}, SAMPLE {sample:?}", path.display())
        }
        Fact::NoRingKeys { path } => {
            format!("no ring at {}; SWAP_CAP and SAMPLE are required to create one", path.display())
        }
        Fact::RingNotFound { path } => {
            format!("no ring at {} yet; the first generator or manager creates it", path.display())
        }
        Fact::NotEmpty { path, name } => {
            format!("{} is not a ring, and holds other things ({name:?})", path.display())
        }
        Fact::EmptyDirectory { path } => {
            format!("{} is empty; the first generator or manager creates a ring there", path.display())
        }
        Fact::Reading { way, kind } => match way {
            Reading::MapsShared => format!("READ is mmap, on {kind}"),
            Reading::Maps => format!("mmap, on {kind}"),
            Reading::AutoMaps => format!("auto: maps files on {kind}"),
            Reading::AutoReads => format!("auto: reads files on {kind}, does not map them"),
            Reading::Reads => "pread: reads files, never maps them".to_owned(),
        },
        Fact::Poll { poll: None, lease } => format!("the default; LEASE_SECONDS is {lease}"),
        Fact::Poll { poll: Some(poll), lease } if *poll > lease / 4.0 => {
            format!("{poll} is more than a quarter of LEASE_SECONDS ({lease}); the quarter is used instead")
        }
        Fact::Poll { poll: Some(poll), lease } => format!("{poll}; LEASE_SECONDS is {lease}"),
        Fact::Leases { ours, shortest, longest } if shortest == ours && longest == ours => {
            format!("{ours} s for all members of the ring")
        }
        Fact::Leases { ours, shortest, longest } => {
            format!("{ours} s here, {shortest} to {longest} s for members of the ring")
        }
        _ => return None,
    })
}

fn of_names(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Kind { name, is_local, place } => {
            let sort = if *is_local { "local to this machine" } else { "shared between machines, or unknown" };
            format!("{name} ({sort}), at {}", place.display())
        }
        Fact::Mounted { mount, note } => format!("{mount}{}", mount_note(note)),
        Fact::NoMount => "not listed in /proc/self/mountinfo".to_owned(),
        Fact::MountUnknown { why } => format!("unknown ({why})"),
        Fact::Rename(wrong) if wrong.is_empty() => "open files in it remain readable and writable".to_owned(),
        Fact::Link(wrong) if wrong.is_empty() => {
            "a file gets a second name in another directory; an existing name is not replaced".to_owned()
        }
        Fact::Rename(wrong) | Fact::Link(wrong) => wrong.iter().map(broken).collect::<Vec<_>>().join("; "),
        Fact::RenameOnto { is_refused: true } => "refused; both directories are unchanged".to_owned(),
        Fact::RenameOnto { is_refused: false } => "replaced a directory that was not empty".to_owned(),
        Fact::Races(races) => races.iter().map(race).collect::<Vec<_>>().join("; "),
        Fact::RemovedUnreadable { why } => format!("a removed file cannot be read any more ({why})"),
        Fact::DirectoryStays => "the directory of a removed file cannot be removed, even after close".to_owned(),
        Fact::RemovedReadable { leftovers } if leftovers.is_empty() => {
            "the file remains readable until it is closed".to_owned()
        }
        Fact::RemovedReadable { leftovers } => {
            format!("the file remains readable until it is closed, under a temporary name ({})", leftovers.join(", "))
        }
        Fact::Case { is_sensitive: true } => "case-sensitive".to_owned(),
        Fact::Case { is_sensitive: false } => "not case-sensitive".to_owned(),
        Fact::NameLength { bytes: 255.., .. } => "255 bytes".to_owned(),
        Fact::NameLength { bytes, needed } if bytes >= needed => format!("at least {bytes} bytes"),
        Fact::NameLength { bytes, needed } => format!("at least {bytes} bytes, but not {needed}"),
        Fact::Inotify { after: Some(after), .. } => format!("fires on this node after {}", millis(*after)),
        Fact::Inotify { after: None, is_local: true } => "does not fire, on a local filesystem".to_owned(),
        Fact::Inotify { after: None, .. } => "does not fire: readers poll every POLL_SECONDS".to_owned(),
        Fact::NoInotify { why } | Fact::NoLocks { why } => format!("not available ({why})"),
        Fact::Locks { expected, counted } => {
            let wrong = ": locks, or file contents under locks, are not reliable";
            let note = if expected == counted { "" } else { wrong };
            format!("counted {counted} of {expected} increments{note}")
        }
        _ => return None,
    })
}

fn mount_note(note: &MountNote) -> String {
    let text = match note {
        MountNote::Nothing => "",
        MountNote::Overlay => ": layers of this container, not visible to other containers and nodes",
        MountNote::Memory => ": memory of this node, not visible to other nodes",
        MountNote::NoCto => ": with nocto, opening a directory does not check on the server whether it changed",
        MountNote::Soft => ": with soft, calls fail while the server is unreachable",
        MountNote::NoCache => ": every lookup of a name goes to the server",
        MountNote::NoDirectoryCache => ": directories are cached for 0 s, so every lookup of a name goes to the server",
        MountNote::AbsenceCached(seconds) => {
            return format!(
                ": the client may cache for up to {seconds} s that a name is absent; ringreel opens the directory and \
                 looks again (for other programs, mount with lookupcache=positive)"
            );
        }
    };
    text.to_owned()
}

fn broken(broken: &Broken) -> String {
    match broken {
        Broken::OpenFileDiffers => "an open file reads wrong bytes afterwards".to_owned(),
        Broken::OpenFileUnreadable(why) => format!("an open file cannot be read afterwards ({why})"),
        Broken::OpenFileUnwritable(why) => format!("an open file cannot be written afterwards ({why})"),
        Broken::OpenFileUnclosable(why) => format!("an open file cannot be closed afterwards ({why})"),
        Broken::RenamedFileDiffers => "a file has wrong bytes under the new name".to_owned(),
        Broken::RenamedFileUnreadable(why) => format!("a file cannot be opened by the new name ({why})"),
        Broken::OldNameStays => "the old name still exists".to_owned(),
        Broken::LinkIsCopy => "a link has a different inode from its file".to_owned(),
        Broken::LinkReplaces => "a link replaces an existing name".to_owned(),
        Broken::LinkRefusedAs(why) => format!("a link to an existing name fails with the wrong error, `{why}`"),
        Broken::LinkDiffers => "a link has different bytes from its file".to_owned(),
        Broken::LinkUnreadable(why) => format!("a link cannot be read after its file's first name is removed ({why})"),
    }
}

fn race((race, runners): &(Race, Runners)) -> String {
    let by = match runners {
        Runners::Threads(n) => format!("{n} threads"),
        Runners::Nodes { way, won_by_a, errors: 0 } => format!("{way}; A won {won_by_a}"),
        Runners::Nodes { way, won_by_a, errors } => format!("{way}; A won {won_by_a}, {errors} errors"),
    };
    let Race { rounds, several, nobody: none_won } = race;
    if *several > 0 {
        format!("{several} of {rounds} names had two winners ({by})")
    } else if *none_won > 0 {
        format!("{rounds} names, never two winners; {none_won} without a winner ({by})")
    } else {
        format!("{rounds} names, {by}: one winner each")
    }
}

fn of_contents(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::ReadsBack { is_right: true } => "a new file reads back correctly".to_owned(),
        Fact::ReadsBack { is_right: false } => "a new file reads back wrong bytes, or a wrong length".to_owned(),
        Fact::Maps { maps, is_wanted } => {
            let wrong: Vec<String> = maps.iter().zip(["shared", "private"]).filter_map(map).collect();
            match (wrong.is_empty(), is_wanted) {
                (true, _) => "shared and private maps show the correct bytes".to_owned(),
                (false, true) => wrong.join("; "),
                (false, false) => format!("{}; with this READ, files are not mapped", wrong.join("; ")),
            }
        }
        Fact::Seen { opened, listed, .. } => {
            format!("opened after {}; listed after {}", spread(opened), spread(listed))
        }
        Fact::Syncs { files, directories } => {
            format!("a file in {}; a directory in {}", spread(files), spread(directories))
        }
        _ => return None,
    })
}

fn map((map, sort): (&Mapped, &str)) -> Option<String> {
    match map {
        Mapped::Right => None,
        Mapped::Wrong => Some(format!("a {sort} map shows wrong bytes")),
        Mapped::None(why) => Some(format!("a {sort} map is not available ({why})")),
    }
}

fn of_space(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::NoRoom(room) => format!("{}, too little for the other checks of the filesystem", free(room)),
        Fact::FreeRoom(room) => format!("{}; the size of a generation is not known yet", free(room)),
        Fact::Room { free: room, generation: (generation, files), needed } => format!(
            "{}; a generation takes {} in {files} files; KEEP + 3 generations need another {} and {} files",
            free(room),
            bytes(*generation),
            bytes(needed.0),
            needed.1
        ),
        Fact::Limits { max_bytes, max_files, generation } => limits(*max_bytes, *max_files, *generation),
        Fact::NothingWritten => "not measured: too little free space".to_owned(),
        Fact::Written { bytes: written, time } => {
            let seconds = time.as_secs_f64();
            let rate = bytes((*written as f64 / seconds.max(1e-6)) as u64);
            format!("{rate}/s ({} in {seconds:.2} s, synced)", bytes(*written))
        }
        Fact::OtherDevice { dir, scratch } => {
            format!("{} is on another device than {}", dir.display(), scratch.display())
        }
        Fact::OneDevice { has_ring: true } => "all directories of the ring are on one device".to_owned(),
        Fact::OneDevice { has_ring: false } => "the ring would be on one device".to_owned(),
        Fact::Closed { dirs } => format!("this user cannot write to {}", dirs.join(", ")),
        Fact::Rights { made, place, note } => {
            let note = match note {
                RightsNote::Nothing => "",
                RightsNote::Sticky => ": with its sticky bit, only owners can rename and remove entries",
                RightsNote::GroupCannotWrite => ": intended for a group, but the group cannot write in new directories",
                RightsNote::ProtectedHardlinks => "; fs.protected_hardlinks is 1",
            };
            format!("new directories have mode {made:o}, the ring's directory has {place:o}{note}")
        }
        Fact::SetgidLost { gid, mode, .. } => {
            format!("the ring's directory, of group {gid}, has lost the setgid bit (mode {mode:o})")
        }
        Fact::Setgid { gid, is_kept: true, .. } => format!("a directory of group {gid} keeps the setgid bit"),
        Fact::Setgid { gid, mode, .. } => format!(
            "a directory of group {gid} loses the setgid bit without an error (mode {mode:o}): this user is not in \
             that group, or the filesystem drops the bit"
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
        None => format!("{limits}; the size of a generation is not known yet"),
        Some((size, files)) => format!("{limits}; a generation takes {} in {files} files", bytes(size)),
    }
}

fn of_index(fact: &Fact) -> Option<String> {
    Some(match fact {
        Fact::Claims { threads, distinct, asked, each, holders } => format!(
            "{threads} threads got {distinct} distinct numbers of {asked}, {} each; {holders} got the lease",
            millis(*each)
        ),
        Fact::NoMongoDb => "this build has no support for MongoDB".to_owned(),
        Fact::Server { place, version, whose } => format!("{place} responds, version {version}; its place is {whose}"),
        Fact::ServerTrips(trips) => spread(trips),
        Fact::Numbers { distinct: 0, asked: 0 } => "not measured: see write concern".to_owned(),
        Fact::Numbers { distinct, asked } if distinct == asked => format!("{distinct} distinct numbers of {asked}"),
        Fact::Numbers { distinct, asked } => {
            format!("{distinct} distinct numbers of {asked}: the server hands out duplicates")
        }
        Fact::WriteConcern { words: None, .. } => "the server's default".to_owned(),
        Fact::WriteConcern { words: Some(words), is_acknowledged: true } => words.clone(),
        Fact::WriteConcern { words: Some(words), .. } => format!("{words}: writes are not acknowledged"),
        Fact::ServerClock { ahead: None, .. } => "the server does not report its time".to_owned(),
        Fact::ServerClock { ahead: Some(off), within } => {
            format!("the server's clock differs by {off:+.1} s (± {})", millis(*within))
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
            _ => format!("{}; a reader keeps up to {held} segments open", limit(files)),
        },
        Fact::Processes { limit: max, .. } => limit(max),
        Fact::AddressSpace { limit } | Fact::Locked { limit } => limit.map_or("no limit".to_owned(), bytes),
        Fact::Shm { free } => free.map_or("missing".to_owned(), |free| format!("{} free", bytes(free))),
        Fact::Memory { available, limit } => {
            let available = available.map_or("unknown".to_owned(), |memory| format!("{} available", bytes(memory)));
            available + &limit.map_or(String::new(), |limit| format!(", {} in this control group", bytes(limit)))
        }
        Fact::Processors { usable, all } => format!("{usable} of {all}, by affinity and control group"),
        Fact::Clock { unix_seconds } => {
            let (date, time) = utc(unix_seconds.saturating_mul(1000));
            let early = if verdict == Verdict::Ok { "" } else { ", before 2020" };
            format!("{date} {time} UTC{early}")
        }
        Fact::Temp { path, is_writable: true } => path.display().to_string(),
        Fact::Temp { path, .. } => format!("{} is not writable", path.display()),
        Fact::Job { rank: Some((rank, size)), seen } => format!("rank {rank} of {size} ({seen})"),
        Fact::Job { seen, .. } if seen.is_empty() => "rank 0 of 1: no variables of a job are set".to_owned(),
        Fact::Job { seen, .. } => format!("rank 0 of 1 ({seen})"),
        Fact::JobMismatch { seen, .. } => seen.clone(),
        Fact::NoPython => "not checked: python3 not found".to_owned(),
        Fact::NoPackage => "not checked: python3 does not find the package `ringreel`".to_owned(),
        Fact::PackageHangs { limit } => format!("python3 does not import it within {}", millis(*limit)),
        Fact::Package { version, ours } if version == ours => format!("{version}, same as this command"),
        Fact::Package { version, ours } => format!("{version}; this command is {ours}"),
        _ => return None,
    })
}

fn of_peer(fact: &Fact, verdict: Verdict) -> Option<String> {
    Some(match fact {
        Fact::Nodes { a, b, are_one } => {
            let one = if *are_one { "; both are the same node" } else { "" };
            format!("A (writes) is {a}, B (observes) is {b}{one}")
        }
        Fact::Answers(trips) => format!("a message and its reply: {}", spread(trips)),
        Fact::PeerClock { ahead_ms, within } => {
            format!("B's clock differs by {:+.3} s from A's (± {})", ahead_ms / 1e3, millis(*within))
        }
        Fact::SeenByPeer { delays, look, lease } => at_most(delays, *look, *lease),
        Fact::Missing { surely, plainly, look, lease, is_hidden } => {
            let plain = if plainly.never == 0 { spread(plainly) } else { format!("more than {}", millis(*look)) };
            let hidden = if *is_hidden { "; B's client caches that the name was absent" } else { "" };
            let surely = at_most(surely, *look, *lease);
            format!("after opening its directory: {surely}; by the name alone: {plain}{hidden}")
        }
        Fact::PeerInotify(said) => match said.as_str() {
            "fires" => "fires on B for A's changes".to_owned(),
            "silent" => "does not fire on B for A's changes: readers poll every POLL_SECONDS".to_owned(),
            why => format!("not available on B ({why}): readers poll every POLL_SECONDS"),
        },
        Fact::LateNames { tried, lost: lost @ 1.., .. } => {
            format!("{lost} of {tried} names that B created by the old path are lost")
        }
        Fact::LateNames { tried, landed: 0, .. } => {
            format!("{tried} renames; B could not create names by the old path afterwards")
        }
        Fact::LateNames { tried, landed, longest, .. } => format!(
            "{landed} of {tried} names by the old path landed in the promoted directory, for at least {}; this is \
             harmless, because such a segment is linked again",
            millis(*longest)
        ),
        Fact::ReplacedFiles { replaced, rewritten } => {
            format!("opened by B at once: replaced by rename: {}; rewritten: {}", tally(replaced), tally(rewritten))
        }
        Fact::SealedFiles { files, seen } if verdict == Verdict::Ok => {
            format!("{files} files of 1 MiB: {}", tally(seen))
        }
        Fact::SealedFiles { seen, .. } => tally(seen),
        Fact::End => "both nodes completed all steps".to_owned(),
        _ => return None,
    })
}

/// Describes when B sees something; `look` is how long it looks.
fn at_most(delays: &Spread, look: Duration, lease: LeaseNote) -> String {
    match lease {
        _ if delays.count == 0 => format!("not within {}", millis(look)),
        LeaseNote::LongEnough => format!("{} (upper bounds: they include B's reply)", spread(delays)),
        _ => spread(delays),
    }
}

/// Lists the observations with their counts.
fn tally(seen: &BTreeMap<String, usize>) -> String {
    let words: Vec<String> = seen.iter().map(|(what, n)| format!("{what} {n}")).collect();
    words.join(", ")
}

/// Describes delays by median and maximum.
fn spread(delays: &Spread) -> String {
    let Spread { count, median, longest, never } = *delays;
    let times = || format!("{} (median of {count}), at most {}", millis(median), millis(longest));
    match (count, never) {
        (0, 0) => "not measured".to_owned(),
        (0, _) => "never".to_owned(),
        (_, 0) => times(),
        (_, never) => format!("{}; not seen {never} times", times()),
    }
}

/// Formats a time in microseconds, milliseconds or seconds.
fn millis(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 0.1 => format!("{:.0} µs", ms * 1e3),
        ms if ms < 1000.0 => format!("{ms:.1} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// Formats a number of bytes with one decimal.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1048576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}
