//! The keys of config.yaml: name, default and meaning of each. The reference of the configuration is made of this table.

use super::given::FROM_UMASK;

/// A key that a configuration may have.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The default, in words where it depends on something; empty if there is none.
    pub default: &'static str,
    /// Values and meaning, in Markdown.
    pub meaning: &'static str,
}

const fn key(name: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, default, meaning }
}

/// Keys that belong together, under a heading.
pub const GROUPS: [(&str, &[Key]); 6] = [
    (
        "The ring",
        &[
            key("DBNAME", "", "Name of the ring. The directory is `<DBNAME>.ring` unless `RING` is given"),
            key(
                "RING",
                "<DBNAME>.ring beside the config file",
                "Path of the ring's directory, on a filesystem that all nodes see. A relative path starts at \
                 the configuration file's directory",
            ),
            key(
                "SWAP_CAP",
                "",
                "Samples in a generation. The process that creates the ring needs it; readers take it from \
                 the ring",
            ),
            key(
                "SAMPLE",
                "",
                "Names of the parts of a sample, in order, such as `[image, label]`. The process that creates \
                 the ring needs it",
            ),
            key(
                "VALIDATION",
                "the ring's, 0 in a new one",
                "Hold out the first N samples of the ring for validation; they are never used for training",
            ),
            key(
                "RING_MODE",
                FROM_UMASK,
                "Octal permissions such as `0660` or `\"2770\"` for everything created in the ring, so that a \
                 group can share it. Directories also get the execute bit for everyone who may read them",
            ),
        ],
    ),
    (
        "Writing",
        &[
            key(
                "SEGMENT_SAMPLES",
                "auto",
                "Samples in one file. `auto`: a fast generator writes many samples into one file, a slow one \
                 writes each into a separate file",
            ),
            key("SEGMENT_BYTES", "33554432", "With `SEGMENT_SAMPLES: auto`, the size at which a file is complete"),
            key(
                "SEGMENT_SECONDS",
                "0.5",
                "With `SEGMENT_SAMPLES: auto`, the longest time in seconds that a written sample waits for \
                 others. A killed generator loses at most the samples of this time, none of whose ids it had \
                 returned",
            ),
            key(
                "COMPRESS",
                "none",
                "`none`; a zstd level (-7 to 19); `auto`: each generator measures which level is worthwhile; \
                 or by part: `{label: auto, image: none}`",
            ),
            key(
                "CHECK_FINITE",
                "off",
                "What a generator does with NaN and infinite elements of floating-point parts. `warn`: logs \
                 counts once per part and minute; `refuse`: raises an error and writes nothing",
            ),
            key(
                "STRICT_SCHEMA",
                "false",
                "`true`: a generator refuses to start with a sample whose dtypes or shapes differ from those \
                 in the newest generation; `false`: it logs a warning",
            ),
            key(
                "DURABILITY",
                "process",
                "`process`: finished samples survive the death of any process. `node`: they survive the loss \
                 of power too, at the price of fsync",
            ),
            key("CHUNKSIZE", "1", "Write buffer in MiB"),
            key("MAX_PART", "1099511627776", "Largest size of one part"),
        ],
    ),
    (
        "Reading",
        &[
            key(
                "REUSE",
                "{min: 0, max: 0}",
                "How often a generation is read. `min`: passes over a generation before the next one is \
                 promoted; `max`: passes after which readers want a newer one. 0: no limit",
            ),
            key(
                "ON_STALE",
                "warn",
                "What a reader does after `max` passes, or when no generator has been alive for \
                 `STALE_AFTER`. `warn`: logs it and continues; `wait`: waits for a new generation (the \
                 default if `REUSE` has a `max`); `stop`: raises an error",
            ),
            key("STALE_AFTER", "300", "Seconds without a live generator after which samples are stale"),
            key(
                "RUN_GRACE",
                "3600",
                "Seconds for which the ring keeps the generations that a killed run had still to read, so \
                 that it can resume. 0: none. At most 16 generations, and only as many as `MAX_BYTES` and the \
                 disk allow",
            ),
            key("PREFETCH_BYTES", "268435456", "Most bytes of samples that a stream reads ahead. 0: none"),
            key(
                "READ",
                "auto",
                "`mmap`, `pread`, or `auto`, which maps on local filesystems only. Use `pread` with `VERIFY: \
                 always` where untrusted users can write to the ring",
            ),
            key(
                "VERIFY",
                "first",
                "When the checksums of large parts are verified: `first` (the first time that a process reads \
                 a sample), `always`, `never`",
            ),
        ],
    ),
    (
        "Space and time",
        &[
            key("KEEP", "1", "Generations kept besides the newest one"),
            key("MAX_BYTES", "none", "Most bytes that the ring may take. Generators wait rather than exceed it"),
            key("MAX_FILES", "none", "Most files that the ring may have. Generators wait rather than exceed it"),
            key(
                "LEASE_SECONDS",
                "10",
                "Seconds without a heartbeat before a process is considered dead; other processes honour it \
                 even if their own is shorter. Also how long startup waits for an unreachable file server, \
                 and a stream for a system limit (`ulimit -n`, memory), before they fail",
            ),
            key("POLL_SECONDS", "0.2 local, 1 network", "Seconds between two checks for a change"),
        ],
    ),
    (
        "The index in MongoDB",
        &[
            key(
                "INDEX",
                "files",
                "Where counter, swap status and leases are kept: `files` in the ring, or `mongodb`, which is \
                 the default if a server is named",
            ),
            key("MONGOHOST", "", "The server's host name, as in Wirehead"),
            key("PORT", "27017", "The server's port"),
            key(
                "MONGOURI",
                "",
                "A connection string (user, password, TLS, replica set) instead of `MONGOHOST` and `PORT`. \
                 Its password is never shown",
            ),
            key(
                "COUNTER_COLLECTION",
                "counter",
                "The collection of the counters in the database `DBNAME`. Each ring needs its own",
            ),
        ],
    ),
    (
        "Accepted from Wirehead, without effect",
        &[
            key("WRITE_COLLECTION", "", "Wirehead's collection for writing"),
            key("READ_COLLECTION", "", "Wirehead's collection for reading"),
            key("TEMP_COLLECTION", "", "Wirehead's temporary collection"),
        ],
    ),
];

/// Returns every key, in the order in which keys are shown.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    GROUPS.iter().flat_map(|(_, keys)| keys.iter())
}
