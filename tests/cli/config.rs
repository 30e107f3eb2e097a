//! Tests of the configuration: values that are read, errors and their messages, and values as they are displayed.

use ringreel::config::{Compress, Config, IndexPlace, OnStale};
use ringreel::error::{Error, Result};
use ringreel::fs::Modes;
use std::path::Path;
use std::time::Duration;

fn parse(text: &str) -> Result<Config> {
    Config::parse(text, "config.yaml", Path::new("/base"), true)
}

#[test]
fn wirehead_config_works_unchanged() {
    let text = "MONGOHOST: \"localhost\" # host\nDBNAME: \"unit-test\"\nSWAP_CAP: 100\n\nSAMPLE: [\"data\", \"label\"]\n\
        WRITE_COLLECTION: \"write\"\nREAD_COLLECTION: \"read\"\nCOUNTER_COLLECTION: \"counter\"\n\
        TEMP_COLLECTION: \"temp\"\nCHUNKSIZE: 10\n";
    let config = parse(text).unwrap();
    assert_eq!(config.ring, Path::new("/base/unit-test.ring"));
    assert_eq!((config.swap_cap, config.write_buffer), (Some(100), 10 << 20));
    let IndexPlace::MongoDb(place) = &config.index else { panic!("{:?}", config.index) };
    assert_eq!(place.uri(), "mongodb://localhost:27017");
    assert_eq!((place.database.as_str(), place.counters.as_str()), ("unit-test", "counter"));
}

#[test]
fn sizes_take_decimal_and_binary_units() {
    for (given, bytes) in [
        ("4096", 4096),
        ("\"4096\"", 4096),
        ("10GB", 10_000_000_000),
        ("10 GB", 10_000_000_000),
        ("1.5MB", 1_500_000),
        ("3kb", 3000),
        ("1TB", 1_000_000_000_000),
        ("7KiB", 7 << 10),
        ("7MiB", 7 << 20),
        ("7GiB", 7 << 30),
        ("1TiB", 1 << 40),
    ] {
        for key in ["MAX_BYTES", "MAX_PART", "PREFETCH_BYTES"] {
            let config = parse(&format!("DBNAME: x\n{key}: {given}")).unwrap();
            let found = match key {
                "MAX_BYTES" => config.max_bytes.unwrap(),
                "MAX_PART" => config.max_part,
                _ => config.prefetch_bytes,
            };
            assert_eq!(found, bytes, "{key}: {given}");
        }
    }
    for wrong in ["10GX", "GB", "-1GB", "1.2.3GB", "99999999999TB", "[1]", "1e3GB"] {
        let error = parse(&format!("DBNAME: x\nMAX_BYTES: {wrong}")).unwrap_err().to_string();
        assert!(error.starts_with("config.yaml:2: MAX_BYTES: expected a number of bytes"), "{error}");
        assert!(error.contains("as in 10GB or 512MiB, 1 or more, found"), "{error}");
    }
}

#[test]
fn tab_in_indentation_is_reported_with_its_line() {
    let error = parse("DBNAME: x\nCOMPRESS:\n\tdata: 3\n").unwrap_err().to_string();
    assert_eq!(error, "config.yaml:3: this line is indented with a tab, which YAML forbids: use spaces");
}

#[test]
fn keys_without_effect_are_noted() {
    let notes = |text| parse(text).unwrap().notes;
    assert_eq!(notes("DBNAME: x\nINDEX: files\nMONGOHOST: a"), ["MONGOHOST is not used: INDEX is files"]);
    assert_eq!(notes("DBNAME: x\nPORT: 1\nMONGOURI: mongodb://a"), ["PORT is not used: MONGOURI names the port"]);
    assert!(notes("DBNAME: x\nPORT: 1\nMONGOHOST: a").is_empty());
}

#[test]
fn user_defined_keys_are_ignored() {
    let text = "x-owner: me\nDBNAME: x\nUSER:\n  SWAP: [1, 2]\n  anything: {at: all}\nx-lr: 0.1\n";
    let config = parse(text).unwrap();
    assert_eq!((config.name.as_str(), config.swap_cap, config.notes.len()), ("x", None, 0));
    assert!(config.effective.iter().all(|row| !row.key.contains("USER") && !row.key.contains("x-")));
    let refused = parse("DBNAME: x\nlearning_rate: 0.1").unwrap_err().to_string();
    let want =
        "config.yaml:2: learning_rate: unknown key; put your own settings under USER or in keys that begin with x-";
    assert_eq!(refused, want);
}

/// Configurations, each with the error that it causes.
const ERRORS: &[(&str, &str)] = &[
    ("DBNAME: x\nSWAP_CAPP: 3", "config.yaml:2: SWAP_CAPP: unknown key (did you mean SWAP_CAP?)"),
    ("DBNAME: x\nswap_cap: 3", "config.yaml:2: swap_cap: unknown key (did you mean SWAP_CAP?)"),
    ("DBNAME: x\n\nSWAP_CAP: -1", "config.yaml:3: SWAP_CAP: expected a whole number, 1 to 1099511627776, found -1"),
    (
        "DBNAME: x\nVERIFY: allways",
        "config.yaml:2: VERIFY: expected one of first, always, never, found \"allways\" (did you mean always?)",
    ),
    ("DBNAME: x\nSAMPLE: [data, data]", "config.yaml:2: SAMPLE: a part is named twice"),
    (
        "DBNAME: x\nSAMPLE: [data]\nCOMPRESS: {dat: 3}",
        "config.yaml:3: COMPRESS: \"dat\" is not a part in SAMPLE (did you mean data?)",
    ),
    ("SWAP_CAP: 3", "config.yaml: neither RING nor DBNAME is given: set RING to the ring's directory"),
    ("DBNAME: a/b", "config.yaml:1: DBNAME: \"a/b\" cannot be part of a file name; give RING"),
    (
        "DBNAME: x\nRING_MODE: 0o770",
        "config.yaml:2: RING_MODE: expected octal digits that let the owner read and write, as in 0660 or \"2770\" (quote the value unless it starts with 0), found 504",
    ),
    ("DBNAME: x\nREUSE: 4", "config.yaml:2: REUSE: expected {min: 0, max: 4}, found 4"),
    ("DBNAME: x\nREUSE: {min: 0, mx: 4}", "config.yaml:2: REUSE: \"mx\" is neither min nor max (did you mean max?)"),
    ("DBNAME: x\nREUSE: {min: -1}", "config.yaml:2: REUSE: min: expected a whole number, 0 to 1000000, found -1"),
    (
        "DBNAME: x\nREUSE:\n  max: 1000001",
        "config.yaml:2: REUSE: max: expected a whole number, 0 to 1000000, found 1000001",
    ),
    (
        "DBNAME: x\nREUSE: {min: 3, max: 2}",
        "config.yaml:2: REUSE: max 2 is below min 3: readers would wait for a swap that waits for them. Raise max, \
         lower min, or leave max out (no limit)",
    ),
    (
        "DBNAME: x\nON_STALE: stopp",
        "config.yaml:2: ON_STALE: expected one of warn, wait, stop, found \"stopp\" (did you mean stop?)",
    ),
    ("DBNAME: x\nSTALE_AFTER: 0", "config.yaml:2: STALE_AFTER: expected seconds, 0.001 to 31536000, found 0"),
    ("DBNAME: x\nVALIDATION: 0.5", "config.yaml:2: VALIDATION: expected a whole number, 0 to 1099511627776, found 0.5"),
    (
        "DBNAME: x\nPREFETCH_BYTES: 256M",
        "config.yaml:2: PREFETCH_BYTES: expected a number of bytes, with or without a unit, as in 10GB or \
         512MiB, 0 to 1099511627776, found \"256M\"",
    ),
    ("DBNAME: x\nPORT: 70000", "config.yaml:2: PORT: expected a whole number, 1 to 65535, found 70000"),
    ("", "config.yaml: the configuration is empty"),
    ("DBNAME: x\nINDEX: mongodb", "config.yaml:2: INDEX: mongodb needs MONGOHOST (and PORT), or MONGOURI"),
    (
        "DBNAME: x\nINDEX: mongdb",
        "config.yaml:2: INDEX: expected files or mongodb, found \"mongdb\" (did you mean mongodb?)",
    ),
    (
        "DBNAME: x\nMONGOHOST: a\nMONGOURI: mongodb://b",
        "config.yaml:3: MONGOURI: MONGOHOST is given too: leave one of them out",
    ),
    ("DBNAME: x\nMONGOURI: b", "config.yaml:2: MONGOURI: expected mongodb://... or mongodb+srv://..."),
    ("RING: x\nMONGOHOST: a", "config.yaml: INDEX: mongodb needs DBNAME, the name of the database"),
    ("DBNAME: a.b\nMONGOHOST: a", "config.yaml:1: DBNAME: \"a.b\" cannot be the name of a database in MongoDB"),
    (
        "DBNAME: a\nMONGOHOST: a\nCOUNTER_COLLECTION: status",
        "config.yaml:3: COUNTER_COLLECTION: \"status\" cannot be the name of the counters' collection",
    ),
];

#[test]
fn errors_name_the_key_the_line_and_the_nearest_known_key() {
    for (text, want) in ERRORS {
        assert_eq!(parse(text).unwrap_err().to_string(), *want);
    }
    assert!(parse("a: [").unwrap_err().to_string().contains("not valid YAML"));
    let missing = Config::load(Path::new("/nonexistent/c.yaml")).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/c.yaml: cannot read"), "{missing}");
}

#[test]
fn passwords_are_never_displayed() {
    for (uri, want) in [
        ("mongodb://me:s3cr3t@db1,db2:27018/admin?tls=true", "mongodb://me:***@db1,db2:27018/admin?tls=true"),
        ("mongodb://me:s3cr3t/@s3cr3t?s3cr3t@db", "mongodb://me:***@db"),
        ("mongodb://s3cr3t@db", "mongodb://***@db"),
        ("mongodb+srv://me:s3cr3t@db/?tlsCertificateKeyFilePassword=s3cr3t", ""),
        ("mongodb://db/?authMechanismProperties=AWS_SESSION_TOKEN:s3cr3t&s3cr3t", ""),
    ] {
        let config = parse(&format!("DBNAME: x\nMONGOURI: '{uri}'")).unwrap();
        let IndexPlace::MongoDb(place) = &config.index else { panic!("{:?}", config.index) };
        assert!(want.is_empty() || place.shown() == want, "{}", place.shown());
        let everything = format!("{config:?} {place:?} {}", place.scrub(&format!("said {uri} no s3cr3t")));
        assert!(!everything.contains("s3cr3t"), "{everything}");
    }
    let config = parse("DBNAME: x\nMONGOHOST: 'me:s3cr3t@db'").unwrap();
    assert!(!format!("{config:?}").contains("s3cr3t"), "{config:?}");
    let misplaced = "mongodb://me:s3cr3t@db";
    for key in [
        "INDEX",
        "DBNAME",
        "PORT",
        "COUNTER_COLLECTION",
        "SAMPLE",
        "VERIFY",
        "COMPRESS",
        "KEEP",
        "RING_MODE",
        "REUSE",
        "X",
    ] {
        for value in [misplaced.to_owned(), format!("[{misplaced}]"), format!("{{a: {misplaced}}}")] {
            let text = match key {
                "DBNAME" => format!("DBNAME: {value}\nMONGOHOST: a"),
                _ => format!("DBNAME: x\nMONGOHOST: a\n{key}: {value}"),
            };
            match parse(&text) {
                Err(error) => assert!(!error.to_string().contains("s3cr3t"), "{error}"),
                Ok(config) => assert!(!format!("{:?}", config.effective).contains("s3cr3t"), "{text}"),
            }
        }
    }
    assert!(!parse(&format!("DBNAME: x\n'{misplaced}': 1")).unwrap_err().to_string().contains("s3cr3t"));
    for text in
        ["DBNAME: x\nMONGOURI: [s3cr3t]", "DBNAME: x\nMONGOHOST: {s3cr3t: 1}", "MONGOURI: 'mongodb:/s3cr3t'\nRING: a"]
    {
        assert!(!parse(text).unwrap_err().to_string().contains("s3cr3t"), "{text}");
    }
}

/// Returns a key's value in effect and its origin.
fn shown(text: &str, key: &str) -> (String, String) {
    let row = parse(text).unwrap().effective.into_iter().find(|row| row.key == key).unwrap();
    (row.value, row.origin)
}

#[test]
fn reuse_and_on_stale_are_read_with_their_defaults() {
    let of = |text: &str| {
        let config = parse(&format!("DBNAME: x\n{text}")).unwrap();
        (config.reuse.min, config.reuse.max, config.on_stale)
    };
    assert_eq!(of(""), (0, 0, OnStale::Warn));
    assert_eq!(of("REUSE: {min: 3}"), (3, 0, OnStale::Warn));
    assert_eq!(of("REUSE: {max: 4}"), (0, 4, OnStale::Wait), "a maximum makes readers wait");
    assert_eq!(of("REUSE: {min: 4, max: 4}\nON_STALE: warn"), (4, 4, OnStale::Warn));
    assert_eq!(of("REUSE: {max: 4}\nON_STALE: stop"), (0, 4, OnStale::Stop));
    assert_eq!(of("REUSE: {max: 0}\nON_STALE: wait"), (0, 0, OnStale::Wait));
}

#[test]
fn effective_values_are_displayed_with_their_origin() {
    let of = |text: &str, key| shown(&format!("DBNAME: x\n{text}"), key);
    let row = |value: &str, origin: &str| (value.to_owned(), origin.to_owned());
    assert_eq!(of("", "ON_STALE"), row("warn", "default"));
    assert_eq!(of("REUSE: {max: 4}", "ON_STALE"), row("wait", "default when REUSE has a max"));
    assert_eq!(of("REUSE: {max: 4}\nON_STALE: warn", "ON_STALE"), row("\"warn\"", "config.yaml:3"));
    assert_eq!(of("ON_STALE: wait", "ON_STALE"), row("\"wait\"", "config.yaml:2"));
    assert_eq!(of("REUSE: {max: 4}", "REUSE"), row("{min: 0, max: 4}", "config.yaml:2"));
    assert_eq!(of("", "REUSE"), row("{min: 0, max: 0}", "default"));
    assert_eq!(of("", "VALIDATION"), row("the ring's, 0 in a new one", "default"));
    assert_eq!(of("VALIDATION: 0", "VALIDATION"), row("0", "config.yaml:2"));
    assert_eq!(of("", "PREFETCH_BYTES"), row("268435456", "default"));
    assert_eq!(of("", "STALE_AFTER"), row("300", "default"));
    assert_eq!(of("", "RUN_GRACE"), row("3600", "default"));
}

#[test]
fn compress_sets_the_storage_of_each_part() {
    let of = |value: &str| {
        let config = parse(&format!("DBNAME: x\nSAMPLE: [image, label]\nCOMPRESS: {value}"))?;
        Ok::<_, Error>(config.compression_of(config.sample.as_ref().unwrap()))
    };
    let (plain, auto) = (Compress::Plain, Compress::Auto);
    assert_eq!(of("none").unwrap(), [plain, plain]);
    assert_eq!(of("auto").unwrap(), [auto, auto]);
    assert_eq!(of("-5").unwrap(), [Compress::Level(-5); 2]);
    assert_eq!(of("{label: auto}").unwrap(), [plain, auto]);
    assert_eq!(of("{label: auto, image: 3}").unwrap(), [Compress::Level(3), auto]);
    assert_eq!(of("{label: auto, image: none}").unwrap(), [plain, auto]);
    let wanted = "config.yaml:3: COMPRESS: expected none, auto, a level from -7 to 19, or {part: one of these}, found ";
    for (value, found) in [("atuo", "\"atuo\""), ("20", "20"), ("{label: yes}", "\"yes\""), ("[auto]", "[\"auto\"]")] {
        assert_eq!(of(value).unwrap_err().to_string(), format!("{wanted}{found}"));
    }
    assert!(of("{lable: none}").unwrap_err().to_string().contains("did you mean label?"));
}

#[test]
fn durations_and_sizes_are_read_with_their_defaults() {
    let grace = |yaml: &str| parse(&format!("DBNAME: x\n{yaml}")).unwrap().run_grace.as_secs();
    assert_eq!(["", "RUN_GRACE: 0", "RUN_GRACE: 90"].map(grace), [3600, 0, 90]);
    let config = parse("DBNAME: x").unwrap();
    let all = (config.stale_after, config.validation, config.prefetch_bytes);
    assert_eq!(all, (Duration::from_secs(300), None, 256 << 20));
    let config = parse("DBNAME: x\nSTALE_AFTER: 604800\nVALIDATION: 0\nPREFETCH_BYTES: 0").unwrap();
    let all = (config.stale_after, config.validation, config.prefetch_bytes);
    assert_eq!(all, (Duration::from_secs(604_800), Some(0), 0));
    let config = parse("DBNAME: x\nSTALE_AFTER: 0.25\nVALIDATION: 7\nPREFETCH_BYTES: 1099511627776").unwrap();
    let all = (config.stale_after, config.validation, config.prefetch_bytes);
    assert_eq!(all, (Duration::from_millis(250), Some(7), 1 << 40));
}

#[test]
fn strict_schema_is_true_or_false() {
    let of = |value: &str| parse(&format!("DBNAME: x\nSTRICT_SCHEMA: {value}")).map(|config| config.strict_schema);
    assert_eq!((of("true").unwrap(), of("false").unwrap()), (true, false));
    assert!(!parse("DBNAME: x").unwrap().strict_schema);
    assert!(of("1").unwrap_err().to_string().contains("STRICT_SCHEMA: expected true or false, found 1"));
}

#[test]
fn defaults_can_be_written_explicitly() {
    parse("DBNAME: x\nREUSE: {min: 0, max: 0}\nON_STALE: warn\nVALIDATION: 0\nRING_MODE: from the umask").unwrap();
}

#[test]
fn ring_mode_is_octal_and_includes_owner_read_and_write() {
    let of = |value: &str| parse(&format!("DBNAME: x\nRING_MODE: {value}"));
    for (value, mode) in [("0660", 0o660), ("\"0660\"", 0o660), ("\"2770\"", 0o2770), ("\"600\"", 0o600)] {
        assert_eq!(of(value).unwrap().modes, Some(Modes::new(mode)), "{value}");
    }
    assert_eq!(of("0660").unwrap().effective.iter().find(|row| row.key == "RING_MODE").unwrap().value, "\"0660\"");
    assert_eq!(parse("DBNAME: x").unwrap().modes, None);
    for value in ["660", "2770", "0o660", "rwx", "\"0888\"", "\"0440\"", "\"4770\"", "\"66\"", "\"+660\"", "[0660]"] {
        let error = of(value).unwrap_err().to_string();
        assert!(error.contains("RING_MODE: expected octal digits"), "{value}: {error}");
    }
}

#[test]
fn segment_samples_is_a_number_or_auto() {
    let samples = |text: &str| parse(&format!("DBNAME: x\nSEGMENT_SAMPLES: {text}")).map(|it| it.segment_samples);
    assert_eq!(parse("DBNAME: x").unwrap().segment_samples, None);
    assert_eq!((samples("7").unwrap(), samples("auto").unwrap()), (Some(7), None));
    for (text, found) in
        [("0", "1 to 16777216, found 0"), ("\"7\"", "or auto, found \"7\""), ("Auto", "found \"Auto\"")]
    {
        let error = samples(text).unwrap_err().to_string();
        assert!(error.contains("config.yaml:2: SEGMENT_SAMPLES") && error.contains(found), "{error}");
    }
    let notes = |text: &str| parse(&format!("DBNAME: x\n{text}SEGMENT_BYTES: 1MB\nSEGMENT_SECONDS: 2")).unwrap().notes;
    assert!(notes("SEGMENT_SAMPLES: auto\n").is_empty() && notes("").is_empty());
    assert_eq!(notes("SEGMENT_SAMPLES: 3\n")[1], "SEGMENT_SECONDS is not used: SEGMENT_SAMPLES is not auto");
}
