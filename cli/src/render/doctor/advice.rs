//! What to do about the doctor's findings.

use ringreel::fs::SETGID_CURE;
use ringreel_ops::doctor::facts::{Cure, Fact, LeaseNote, MountNote, RightsNote};
use ringreel_ops::doctor::machine::ROOMY_FILES;
use ringreel_ops::doctor::{Check, Verdict};

const ANOTHER: &str = "choose a directory on another filesystem for RING";
const LOCKS: &str = "nothing for the ring, which uses no locks; keep databases and caches off this filesystem";

/// Returns what to do; empty if there is nothing to do.
pub fn advice(check: &Check) -> String {
    match &check.fact {
        Fact::Missing { is_hidden: true, .. } => {
            "nothing for a ring, which opens the directory and looks again; for other programs, mount with \
             lookupcache=positive, or list the directory before concluding that a name is absent"
                .to_owned()
        }
        _ if check.verdict == Verdict::Ok => String::new(),
        Fact::Leftover { dir, .. } => format!("remove {} by hand", dir.display()),
        Fact::Seen { lease, .. } | Fact::SeenByPeer { lease, .. } | Fact::Missing { lease, .. } => match lease {
            LeaseNote::LongEnough => String::new(),
            LeaseNote::TooShort => "raise LEASE_SECONDS to four times the longest delay; otherwise live processes are \
                                    declared dead, which costs work, but no sample"
                .to_owned(),
            LeaseNote::Raise(enough) => {
                format!("raise LEASE_SECONDS to at least {enough}, four times the longest delay")
            }
        },
        Fact::SetgidLost { ring, .. } => {
            let path = ring.display();
            format!(
                "have its owner run `chgrp -R GROUP {path}` and `find {path} -type d -exec chmod g+s {{}} +`; for a \
                 new ring, {SETGID_CURE}"
            )
        }
        Fact::OpenFiles { .. } if check.verdict == Verdict::Failure => {
            format!("run `ulimit -n {ROOMY_FILES}` (or set LimitNOFILE, or the batch system's limit)")
        }
        Fact::OpenFiles { .. } => format!("for loaders with workers, run `ulimit -n {ROOMY_FILES}`"),
        Fact::Processes { wanted, .. } => format!("run `ulimit -u {wanted}`, or more"),
        Fact::JobMismatch { rank, size, .. } => {
            format!("{rank} and {size} contradict each other: set both, or neither")
        }
        fact => of_configuration(fact)
            .or_else(|| of_place(fact, check.verdict))
            .or_else(|| of_process(fact, check.verdict))
            .unwrap_or_default()
            .to_owned(),
    }
}

/// Returns what to do about the configuration and its ring.
fn of_configuration(fact: &Fact) -> Option<&'static str> {
    Some(match fact {
        Fact::DoesNotLoad { .. } => {
            "correct the file, or name another one with -c; `ringreel config` shows the effective values"
        }
        Fact::NoPlace { .. } => "create the parent directory of the ring, or change RING",
        Fact::UnusableRing { .. } => "use another RING",
        Fact::Mismatch { .. } => "change config.yaml, or use another RING",
        Fact::NoRingKeys { .. } => "set SWAP_CAP and SAMPLE; or, if the ring should exist, check RING and DBNAME",
        Fact::NotEmpty { .. } => "choose an empty or new directory for RING",
        Fact::Reading { .. } => "set READ to auto or pread, unless files on the server are never removed or truncated",
        Fact::Poll { .. } => "lower POLL_SECONDS or raise LEASE_SECONDS",
        Fact::Leases { .. } => {
            "use the same LEASE_SECONDS for all processes; dead processes are detected after the longest lease"
        }
        _ => return None,
    })
}

/// Returns what to do about the filesystem and the directory of the ring.
fn of_place(fact: &Fact, verdict: Verdict) -> Option<&'static str> {
    Some(match fact {
        Fact::Hangs { .. } | Fact::NotMeasured { .. } => {
            "the filesystem or server does not respond: try again, or ask its administrator"
        }
        Fact::Refused { cure, .. } => of_cure(*cure),
        Fact::Mounted { note, .. } => of_mount(note),
        Fact::Rename(_) | Fact::RenameOnto { .. } | Fact::Link(_) | Fact::ReadsBack { .. } => ANOTHER,
        Fact::Races(_) if verdict == Verdict::Failure => {
            "samples would be lost or duplicated: choose a directory on another filesystem for RING"
        }
        Fact::Races(_) => "nothing: the ring tries the next name",
        Fact::RemovedUnreadable { .. } => {
            "raise KEEP, so that slow readers finish before their generation is reclaimed"
        }
        Fact::DirectoryStays => "remove the contents of trash/ from time to time",
        Fact::Case { .. } => "use host names that differ in more than case",
        Fact::NameLength { .. } => "use short host names",
        Fact::Inotify { .. } => "lower POLL_SECONDS if readers notice new generations too late",
        Fact::NoInotify { .. } => {
            "readers poll every POLL_SECONDS; for inotify, raise fs.inotify.max_user_instances and max_user_watches"
        }
        Fact::Locks { .. } | Fact::NoLocks { .. } => LOCKS,
        Fact::Maps { .. } => "set READ: pread",
        Fact::Syncs { .. } => "raise SEGMENT_SAMPLES, because each segment is synced once",
        Fact::NoRoom(_) => "free space or inodes (files of any size), or choose another directory for RING",
        Fact::Room { .. } if verdict == Verdict::Failure => {
            "the ring would stop: free space or inodes, or lower KEEP, or SWAP_CAP in a new ring"
        }
        Fact::Room { .. } => {
            "generators will wait at times: free space or inodes, or lower KEEP, or SWAP_CAP in a new ring"
        }
        Fact::Limits { .. } if verdict == Verdict::Failure => {
            "KEEP + 2 generations exceed the limit, so the ring would stop: raise the limit, or lower KEEP"
        }
        Fact::Limits { .. } => "KEEP + 3 generations exceed the limit, so generators will wait: raise the limit",
        Fact::NothingWritten => "free some space",
        Fact::Written { .. } => "generators will wait for the disk: set COMPRESS, or use a faster filesystem",
        Fact::OtherDevice { .. } => "keep the whole ring on one filesystem: mount nothing inside it",
        Fact::Closed { .. } => {
            "to generate or manage, have the owner run `chmod -R g+w`, and share a group; reading needs no change"
        }
        Fact::Rights { note, .. } => match note {
            RightsNote::Sticky => {
                "have the owner run `chmod -t` on it, because promotion renames directories of other users"
            }
            RightsNote::GroupCannotWrite => {
                "run `umask 002` before starting each process, or set a default ACL (`setfacl -d -m g::rwx`)"
            }
            RightsNote::ProtectedHardlinks => {
                "run all processes with umask 002; otherwise only their own user can adopt segments of dead generators"
            }
            RightsNote::Nothing => "",
        },
        Fact::Setgid { .. } => SETGID_CURE,
        _ => return None,
    })
}

fn of_cure(cure: Cure) -> &'static str {
    match cure {
        Cure::Quota => "your quota is exhausted: remove files, ask for more, or choose another directory for RING",
        Cure::Full => "the disk is full: free space or inodes, or choose another directory for RING",
        Cure::NoLinks => "a ring needs hard links: choose a directory on another filesystem for RING",
        Cure::ReadOnly => "mount the filesystem read-write, or choose a directory on another filesystem for RING",
        Cure::Denied => "check owner and mode of this directory, or choose another directory for RING",
        Cure::Away => "the file server does not respond: ask its administrator",
        Cure::ShortNames => "a ring needs longer file names: choose a directory on another filesystem for RING",
        Cure::OtherFilesystem => ANOTHER,
        Cure::OtherDirectory => "choose another directory for RING",
    }
}

fn of_mount(note: &MountNote) -> &'static str {
    match note {
        MountNote::Overlay => "mount a directory of a shared filesystem into the container, and set RING to it",
        MountNote::NoCto => "mount without nocto; with it, new generations are seen up to a minute late",
        MountNote::Soft => "mount with hard, so that processes wait while a server restarts",
        MountNote::NoCache => {
            "mount without noac and lookupcache=none: a ring does not need them, and is faster without"
        }
        MountNote::NoDirectoryCache => {
            "mount without actimeo=0 and acdirmax=0: a ring does not need them, and is faster without"
        }
        MountNote::Nothing | MountNote::Memory | MountNote::AbsenceCached(_) => "",
    }
}

/// Returns what to do about the index, this machine, and a pair of nodes.
fn of_process(fact: &Fact, verdict: Verdict) -> Option<&'static str> {
    Some(match fact {
        Fact::Claims { holders: 0, distinct, asked, .. } if distinct == asked => {
            "nothing: processes retry to get a lease"
        }
        Fact::Claims { .. } => "a name had two winners: choose a directory on another filesystem for RING",
        Fact::NoMongoDb => "set INDEX: files, or use a build with MongoDB",
        Fact::ServerAway { .. } => "check MONGOHOST, PORT and MONGOURI, or set INDEX: files, which needs no server",
        Fact::ServerRefused { .. } => "see docs/operations/mongodb.md",
        Fact::ServerTrips(_) => "set INDEX: files, or use a nearer server",
        Fact::Numbers { .. } => "no sample is lost, but generators collide: use a genuine MongoDB, or set INDEX: files",
        Fact::WriteConcern { .. } => "remove w=0 from MONGOURI",
        Fact::ServerClock { .. } => "synchronise both clocks by NTP",
        Fact::AddressSpace { .. } => "run `ulimit -v unlimited`, or set READ: pread, so that files are not mapped",
        Fact::Shm { free: None } => "mount a tmpfs there: torch's DataLoader with workers needs it",
        Fact::Shm { .. } => "in containers, use docker run --shm-size=8g; or use fewer workers or smaller batches",
        Fact::Memory { .. } => "lower PREFETCH_BYTES, or request more from the batch system (--mem)",
        Fact::Processors { .. } => "for loaders with workers, request more from the batch system (--cpus-per-task)",
        Fact::Clock { .. } => "synchronise the clock by NTP; a wrong clock also breaks TLS certificates",
        Fact::Temp { .. } => "set TMPDIR to a writable directory",
        Fact::PackageHangs { .. } => "run `python3 -c 'import ringreel'` by hand",
        Fact::Package { .. } => "install the same version of both",
        Fact::Nodes { .. } => {
            "run it on two nodes (srun -N2 --ntasks-per-node=1 ...): the results below are those of one node"
        }
        Fact::PeerClock { .. } => "synchronise both by NTP: ages in `ringreel status` use the local clock",
        Fact::LateNames { .. } => ANOTHER,
        Fact::SealedFiles { .. } if verdict == Verdict::Warning => {
            "set READ: pread (auto does so here, unless the filesystem is local)"
        }
        Fact::SealedFiles { .. } => ANOTHER,
        _ => return None,
    })
}
