//! Why a check matters.

use ringreel_ops::doctor::Check;

/// Why `check` matters.
pub fn why(check: &Check) -> &'static str {
    match check.group.as_str() {
        "configuration" => of_configuration(&check.check),
        "filesystem" => of_filesystem(&check.check),
        "index" => of_index(&check.check),
        "machine" => of_machine(&check.check),
        _ => of_peer(&check.check),
    }
}

fn of_configuration(check: &str) -> &'static str {
    match check {
        "ring" => "a ring that does not fit its configuration is refused by every role",
        "READ" => "who maps a file that somebody changes sees the change, zeros where it was cut off",
        "POLL_SECONDS" => "a role counts as dead that was silent for LEASE_SECONDS; each looks every POLL_SECONDS",
        "LEASE_SECONDS" => "a member is dead after the longer of its lease and the observer's",
        _ => "a wrong key is better noticed now than in the queue",
    }
}

fn of_filesystem(check: &str) -> &'static str {
    match check {
        "scratch" => "everything is measured in a directory of its own, and a ring needs to be written to",
        "cleaning up" => "nothing is left behind",
        "kind" => "it decides whether files are mapped or read, and how often to look",
        "mount" => "its options decide what other nodes see, and when",
        "rename of a directory" => "a generation is promoted by one rename",
        "rename onto a full one" => "of two who promote, the second one changes nothing",
        "hard link" => "a finished segment is linked into its generation",
        "removal of an open file" => "old generations are reclaimed under slow readers",
        "upper and lower case" => "names hold host names and numbers",
        "length of names" => "names hold host, pid and a random number",
        "inotify" => "readers wake at once, where it fires; else they look every POLL_SECONDS",
        "flock" => "for your own use: a ring takes no locks",
        "reading (pread)" => "samples are read from sealed files",
        "mapping (mmap)" => "sealed files are mapped where READ says so",
        "when names are seen" => "by another process of this node",
        "fsync" => "segments are synced on a network, and where DURABILITY is node",
        "room" => "a full disk stops generators; a ring takes up to KEEP + 3 generations",
        "MAX_BYTES, MAX_FILES" => "generators wait rather than pass them",
        "writing" => "it bounds samples per second; and a quota shows in nothing but a write that fails",
        "one mount" => "links and renames do not cross filesystems",
        "permissions" => "generators, managers and readers of other users link, rename and remove each other's files",
        "RING_MODE" => "by the setgid bit, what each user makes in the ring belongs to the ring's group",
        _ => "everything is decided by who gets a name first, and by no lock", // the races
    }
}

fn of_index(check: &str) -> &'static str {
    match check {
        "files" => "segments get their numbers from it, and roles their leases",
        "round trip" => "each block of numbers and each sign of life takes one",
        "atomic counter" => "numbers that come twice cost time, and no sample",
        "write concern" => "what the server says it has done, it should have done",
        "clock of the server" => "for people who compare times; nothing is decided by it",
        _ if cfg!(not(feature = "mongodb")) => "the index is kept there",
        _ => "without it the ring goes on, and numbers collide, and nobody sees who lives",
    }
}

fn of_machine(check: &str) -> &'static str {
    match check {
        "open files (ulimit -n)" => "a reader holds segments open, a loader with workers more",
        "processes (ulimit -u)" => "loaders start workers, and each has threads",
        "address space (ulimit -v)" => "mapped segments count, and so does torch",
        "locked memory (ulimit -l)" => "pinned memory of loaders; a ring locks none",
        "/dev/shm" => "torch's workers hand their batches over in it",
        "memory" => "streams read ahead up to PREFETCH_BYTES",
        "processors" => "generators and loaders are run by them",
        "clock" => "for people who compare times; nothing is decided by it",
        "TMPDIR" => "Python's workers and libraries put files there",
        "job" => "ranks find their share by it",
        "Python package" => "a ring's file formats are those of one version",
        _ => "they bound every process", // the limits
    }
}

fn of_peer(check: &str) -> &'static str {
    match check {
        "nodes" => "two nodes are to be compared",
        "round trip" => "every delay below holds one",
        "clocks" => "for people who compare times; nothing is decided by it",
        "rename is seen" => "so late a reader sees that a generation was promoted",
        "new name is listed" => "signs of life and manifests are found in listings",
        "missing name appears" => "a node remembers for a while that a name which it looked for was absent",
        "inotify" => "where it is silent, readers look every POLL_SECONDS",
        "late names" => "a generator may link into a generation that was just promoted",
        "replaced files" => "for your own use: a ring never replaces or rewrites a file",
        "sealed files" => "samples are read by other nodes than wrote them",
        "one winner" => "everything is decided by who gets a name first, and by no lock",
        "end" => "both did all of it",
        _ => "nothing is left behind",
    }
}
