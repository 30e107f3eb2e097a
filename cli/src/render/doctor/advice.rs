//! What to do about what the doctor found.

use ringreel::fs::SETGID_CURE;
use ringreel_ops::doctor::facts::{Cure, Fact, LeaseNote, MountNote, RightsNote};
use ringreel_ops::doctor::machine::ROOMY_FILES;
use ringreel_ops::doctor::{Check, Verdict};

const ANOTHER: &str = "choose a directory on another filesystem for RING";
const LOCKS: &str = "nothing for the ring, which takes no locks; keep databases and caches off this filesystem";

/// What to do; empty where there is nothing to do.
pub fn advice(check: &Check) -> String {
    match &check.fact {
        Fact::Missing { is_hidden: true, .. } => {
            "nothing for a ring, which opens the directory and looks again; for other programs, mount with \
             lookupcache=positive, or list the directory before you conclude that a name is absent"
                .to_owned()
        }
        _ if check.verdict == Verdict::Ok => String::new(),
        Fact::Leftover { dir, .. } => format!("remove {} by hand", dir.display()),
        Fact::Seen { lease, .. } | Fact::SeenByPeer { lease, .. } | Fact::Missing { lease, .. } => match lease {
            LeaseNote::LongEnough => String::new(),
            LeaseNote::TooShort => "living roles would be taken for dead, which costs work and no sample: raise \
                                    LEASE_SECONDS to four times the longest delay"
                .to_owned(),
            LeaseNote::Raise(enough) => {
                format!("raise LEASE_SECONDS to {enough} at least: four times the longest delay")
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
            format!("ulimit -n {ROOMY_FILES} (or LimitNOFILE, or the batch system's own limit)")
        }
        Fact::OpenFiles { .. } => format!("ulimit -n {ROOMY_FILES}, for loaders with workers"),
        Fact::Processes { wanted, .. } => format!("ulimit -u {wanted} or more"),
        Fact::JobMismatch { rank, size, .. } => format!("{rank} and {size} do not fit together: set both, or neither"),
        fact => of_configuration(fact)
            .or_else(|| of_place(fact, check.verdict))
            .or_else(|| of_process(fact, check.verdict))
            .unwrap_or_default()
            .to_owned(),
    }
}

/// What to do about the configuration, and the ring that it names.
fn of_configuration(fact: &Fact) -> Option<&'static str> {
    Some(match fact {
        Fact::DoesNotLoad { .. } => "mend config.yaml: `ringreel config` shows the values in effect",
        Fact::NoPlace { .. } => "make the directory that is to hold the ring, or change RING",
        Fact::UnusableRing { .. } => "use another RING",
        Fact::Mismatch { .. } => "change config.yaml, or use another RING",
        Fact::NoRingKeys { .. } => "give SWAP_CAP and SAMPLE, or check RING and DBNAME where there should be a ring",
        Fact::NotEmpty { .. } => "choose an empty or a new directory for RING",
        Fact::Reading { .. } => "use READ: auto or pread, unless nobody ever removes or cuts files on the server",
        Fact::Poll { .. } => "lower POLL_SECONDS or raise LEASE_SECONDS",
        Fact::Leases { .. } => {
            "give all processes of a ring the same LEASE_SECONDS: a dead one is noticed after the longest"
        }
        _ => return None,
    })
}

/// What to do about the place of the ring.
fn of_place(fact: &Fact, verdict: Verdict) -> Option<&'static str> {
    Some(match fact {
        Fact::Hangs { .. } | Fact::NotMeasured { .. } => {
            "the filesystem or server does not answer: try again, and ask whoever runs it"
        }
        Fact::Refused { cure, .. } => of_cure(*cure),
        Fact::Mounted { note, .. } => of_mount(note),
        Fact::Rename(_) | Fact::RenameOnto { .. } | Fact::Link(_) | Fact::ReadsBack { .. } => ANOTHER,
        Fact::Races(_) if verdict == Verdict::Failure => {
            "samples would be lost or doubled: choose a directory on another filesystem for RING"
        }
        Fact::Races(_) => "nothing: the ring tries the next name",
        Fact::RemovedUnreadable { .. } => "raise KEEP, so that slow readers are done before their generation goes",
        Fact::DirectoryStays => "look into trash/ now and then, and remove what lies there",
        Fact::Case { .. } => "give hosts names that differ in more than case",
        Fact::NameLength { .. } => "keep host names short",
        Fact::Inotify { .. } => "readers look every POLL_SECONDS: lower it where that is too slow",
        Fact::NoInotify { .. } => {
            "readers look every POLL_SECONDS; raise fs.inotify.max_user_instances and max_user_watches for more"
        }
        Fact::Locks { .. } | Fact::NoLocks { .. } => LOCKS,
        Fact::Maps { .. } => "set READ: pread",
        Fact::Syncs { .. } => "raise SEGMENT_SAMPLES: each segment is synced once",
        Fact::NoRoom(_) => "free space or inodes (files of any size), or choose another directory for RING",
        Fact::Room { .. } if verdict == Verdict::Failure => {
            "the ring will stand still: free space or inodes, or lower KEEP or SWAP_CAP (in a new ring)"
        }
        Fact::Room { .. } => {
            "generators will wait at times: free space or inodes, or lower KEEP or SWAP_CAP (in a new ring)"
        }
        Fact::Limits { .. } if verdict == Verdict::Failure => {
            "KEEP + 2 generations pass it, and the ring will stand still: raise the limit, or lower KEEP"
        }
        Fact::Limits { .. } => "KEEP + 3 generations pass it, and generators will wait: raise it",
        Fact::NothingWritten => "free some space",
        Fact::Written { .. } => "generators will wait for the disk: see COMPRESS, or choose a faster one",
        Fact::OtherDevice { .. } => "a ring needs to lie in one filesystem whole: mount nothing inside of it",
        Fact::Closed { .. } => {
            "to generate or manage: have their owner run `chmod -R g+w`, and share a group. To read, nothing"
        }
        Fact::Rights { note, .. } => match note {
            RightsNote::Sticky => "have its owner run `chmod -t` on it: promotion renames directories of others",
            RightsNote::GroupCannotWrite => {
                "put `umask 002` before each role, or set a default ACL (`setfacl -d -m g::rwx`)"
            }
            RightsNote::ProtectedHardlinks => {
                "with umask 002 nothing; else what dead generators of other users finished waits until they run again"
            }
            RightsNote::Nothing => "",
        },
        Fact::Setgid { .. } => SETGID_CURE,
        _ => return None,
    })
}

fn of_cure(cure: Cure) -> &'static str {
    match cure {
        Cure::Quota => "your quota is used up here: remove files, ask for more, or choose another directory for RING",
        Cure::Full => "no room: free space or inodes, or choose another directory for RING",
        Cure::NoLinks => "a ring needs hard links: choose a directory on another filesystem for RING",
        Cure::Denied => {
            "check owner and mode of this directory and whether it is mounted read-only, or choose another RING"
        }
        Cure::Away => "the file server does not answer: ask whoever runs it",
        Cure::ShortNames => "names are too short for a ring: choose a directory on another filesystem for RING",
        Cure::OtherFilesystem => ANOTHER,
        Cure::OtherDirectory => "choose another directory for RING",
    }
}

fn of_mount(note: &MountNote) -> &'static str {
    match note {
        MountNote::Overlay => "mount a directory of a shared filesystem into the container, and choose it for RING",
        MountNote::NoCto => "mount without nocto: new generations are seen up to a minute late",
        MountNote::Soft => "mount with hard, so that roles wait for a server that starts again",
        MountNote::NoCache => "mount without noac and lookupcache=none: a ring needs neither, and is faster without",
        MountNote::NoDirectoryCache => {
            "mount without actimeo=0 and acdirmax=0: a ring does not need them, and is faster without"
        }
        MountNote::Nothing | MountNote::Memory | MountNote::AbsenceCached(_) => "",
    }
}

/// What to do about the index, this machine, and a pair of nodes.
fn of_process(fact: &Fact, verdict: Verdict) -> Option<&'static str> {
    Some(match fact {
        Fact::Claims { holders: 0, distinct, asked, .. } if distinct == asked => {
            "nothing: who wants a lease tries again"
        }
        Fact::Claims { .. } => "a name had two winners: choose a directory on another filesystem for RING",
        Fact::NoMongoDb => "use INDEX: files, or another build",
        Fact::ServerAway { .. } => "check MONGOHOST, PORT, MONGOURI, or use INDEX: files, which needs no server",
        Fact::ServerRefused { .. } => "see docs/operations/mongodb.md",
        Fact::ServerTrips(_) => "use INDEX: files, or a server that is nearer",
        Fact::Numbers { .. } => "nothing is lost, but generators collide: use a MongoDB proper, or INDEX: files",
        Fact::WriteConcern { .. } => "take w=0 out of MONGOURI",
        Fact::ServerClock { .. } => "let NTP set both clocks",
        Fact::AddressSpace { .. } => "ulimit -v unlimited, or READ: pread, so that nothing is mapped",
        Fact::Shm { free: None } => "torch's DataLoader with workers needs it: mount a tmpfs there",
        Fact::Shm { .. } => "in containers: docker run --shm-size=8g; or fewer workers, or smaller batches",
        Fact::Memory { .. } => "lower PREFETCH_BYTES, or ask the batch system for more (--mem)",
        Fact::Processors { .. } => "ask the batch system for more (--cpus-per-task), where loaders have workers",
        Fact::Clock { .. } => "let NTP set it: certificates fail too",
        Fact::Temp { .. } => "set TMPDIR to a directory of yours",
        Fact::PackageHangs { .. } => "try it by hand",
        Fact::Package { .. } => "install both from one version",
        Fact::Nodes { .. } => {
            "start it on two nodes (srun -N2 --ntasks-per-node=1 ...): what follows tells nothing about two"
        }
        Fact::PeerClock { .. } => "let NTP set both: ages in `ringreel status` are of the clock that looks",
        Fact::LateNames { .. } => ANOTHER,
        Fact::SealedFiles { .. } if verdict == Verdict::Warning => {
            "set READ: pread (auto does so here, unless the filesystem is local)"
        }
        Fact::SealedFiles { .. } => ANOTHER,
        _ => return None,
    })
}
