//! The output of every read-only command for fixed rings (healthy, half promoted, damaged, of another version, empty)
//! and for a foreign file.

use ringreel::format::{DType, Meta};
use ringreel::{Config, Generator, NamedPart};
use testkit::golden::{self, FIXED, Fixed, golden, golden_lines};

#[test]
fn verify_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("verify", fixed, &["verify", "PATH"]);
    }
    golden("verify-json", "damaged", &["verify", "PATH", "--json"]);
}

#[test]
fn status_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("status", fixed, &["status", "PATH"]);
    }
    golden("status-json", "healthy", &["status", "PATH", "--json"]);
}

#[test]
fn read_and_index_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("read", fixed, &["read", "-c", "config.yaml", "--all", "--json"]);
        golden("index", fixed, &["index", "show", "-c", "config.yaml"]);
    }
    golden("config", "healthy", &["config", "-c", "config.yaml"]);
}

#[test]
fn inspect_and_cat_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("inspect", fixed, &["inspect", "PATH"]);
        golden("inspect-tree", fixed, &["inspect", "PATH", "--tree"]);
        golden("inspect-sample", fixed, &["inspect", "PATH", "-n", "1"]);
        golden("cat", fixed, &["cat", "PATH", "-n", "1", "--as", "json"]);
    }
    golden("inspect-json", "healthy", &["inspect", "PATH", "--json"]);
    golden("inspect-segment", "healthy", &["inspect", "PATH/read.2/000001.rec", "--tree"]);
    golden("inspect-hex", "healthy", &["inspect", "PATH/read.2/000001.rec", "--hex", "-n", "0"]);
    golden("inspect-hex", "foreign", &["inspect", "PATH", "--hex", "--record", "1"]);
}

#[test]
fn preview_report_and_export_output_is_stable() {
    for fixed in FIXED {
        golden("preview", fixed, &["preview", "PATH", "-o", "sheet.png", "--generation", "2"]);
        golden("report", fixed, &["report", "PATH", "-o", "report.html"]);
        golden("export", fixed, &["export", "PATH", "-o", "out", "--as", "wds", "--generation", "2"]);
    }
    golden("preview-json", "healthy", &["preview", "PATH", "-o", "sheet.png", "--json"]);
}

#[test]
fn top_and_metrics_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("metrics", fixed, &["metrics", "PATH"]);
        golden("top", fixed, &["top", "PATH", "--once", "--size", "90x30"]);
    }
}

#[test]
fn repair_gc_and_promote_output_for_fixed_rings_is_stable() {
    for fixed in FIXED {
        golden("repair", fixed, &["repair", "-c", "config.yaml"]);
        golden("gc", fixed, &["gc", "-c", "config.yaml"]);
        golden("promote", fixed, &["promote", "-c", "config.yaml"]);
    }
}

#[test]
fn manager_and_generate_errors_for_fixed_rings_are_stable() {
    for fixed in ["other-version", "foreign"] {
        golden("manager", fixed, &["manager", "-c", "config.yaml"]);
        golden("generate", fixed, &["generate", "-c", "config.yaml", "--samples", "1"]);
        golden("import", fixed, &["import", "-c", "config.yaml", "--from", "text", "config.yaml"]);
        golden("put", fixed, &["put", "-c", "config.yaml"]);
    }
}

#[test]
fn pack_output_for_a_fixed_input_is_stable() {
    for fixed in FIXED {
        golden("pack", fixed, &["pack", "--from", "npy", "PATH", "-o", "packed"]);
    }
    golden("pack-text", "healthy", &["pack", "--from", "text", "config.yaml", "-o", "lines"]);
    golden("pack-list", "healthy", &["pack", "--list", "--recursive", "images", "PATH"]);
    golden("pack-images", "healthy", &["pack", "images", "PATH"]);
}

#[test]
fn import_refuses_inputs_without_the_parts_of_the_ring() {
    golden("import-text", "healthy", &["import", "-c", "config.yaml", "--from", "text", "config.yaml"]);
    golden("import-images", "healthy", &["import", "-c", "config.yaml", "--from", "images", "PATH"]);
}

#[test]
fn doctor_says_the_same_of_the_same_ring() {
    for fixed in FIXED {
        // tests/ops/doctor.rs tests the findings that depend on the machine.
        golden_lines("doctor", fixed, &["doctor", "-c", "config.yaml", "--json"], "\"check\":\"ring\"");
    }
}

/// Returns what a command writes to a terminal; none if `script` (of util-linux) is missing.
fn on_a_terminal(command: &str, no_color: bool) -> Option<String> {
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{} {command}", testkit::binary()), "/dev/null"]);
    script.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("RINGREEL_LOG");
    if no_color {
        script.env("NO_COLOR", "1");
    }
    let said = script.stdin(std::process::Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&said.stdout).into_owned())
}

#[test]
fn colours_need_a_terminal_and_obey_no_color() {
    let (Some(coloured), Some(plain)) = (on_a_terminal("--help", false), on_a_terminal("--help", true)) else {
        return golden::loudly("SKIPPED: colours on a terminal: `script` is missing");
    };
    assert!(coloured.contains("\u{1b}["), "{coloured:?}");
    for command in ["--help", "verify --help", "verify /nothing/here", "status -c /nothing/here", "verify --no-such"] {
        let plain = if command == "--help" { plain.clone() } else { on_a_terminal(command, true).unwrap() };
        let colours = plain
            .split("\u{1b}[")
            .skip(1)
            .filter(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'));
        assert_eq!(colours.count(), 0, "{command}: {plain:?}");
    }
}

#[test]
fn read_only_commands_do_not_change_fixed_rings() {
    let looks: [&[&str]; 11] = [
        &["verify", "PATH"],
        &["status", "PATH"],
        &["inspect", "PATH"],
        &["inspect", "PATH", "--tree"],
        &["cat", "PATH", "--as", "json"],
        &["preview", "PATH", "-o", "sheet.png"],
        &["report", "PATH", "-o", "report.html"],
        &["export", "PATH", "-o", "out"],
        &["top", "PATH", "--once"],
        &["metrics", "PATH"],
        &["gc", "PATH", "--keep", "0"],
    ];
    for args in looks {
        let fixed = Fixed::new("damaged");
        let before = golden::listing(&fixed.path());
        fixed.told(args);
        assert_eq!(golden::listing(&fixed.path()), before, "{args:?}");
    }
}

/// Recreates `tests/golden/healthy.ring`:
///
/// ```text
/// unshare --uts sh -c 'hostname node-1 && cargo test --test main cli::golden::make -- --ignored'
/// ```
#[test]
#[ignore = "it recreates the ring that the other tests read"]
fn make_the_fixed_ring() {
    let home = testkit::workspace().join("tests/golden");
    let yaml = "RING: healthy.ring\nSWAP_CAP: 4\nSAMPLE: [data, label]\nKEEP: 5\nCOMPRESS: {label: 3}\n";
    let config = Config::parse(yaml, "here", &home, true).unwrap();
    assert!(!config.ring.exists(), "remove {} first", config.ring.display());
    let [mut one, mut two] = [0, 1].map(|_| Generator::open(&config).unwrap());
    for n in 0..14u64 {
        let (shape, at) = ([6, 8, 10], |i: u64| (i / 80, i / 10 % 8, i % 10));
        let inside = |i: &u64| {
            let (x, y, z) = at(*i);
            x.abs_diff(2 + n % 2) <= 2 && y.abs_diff(4) <= 2 && z.abs_diff(5) <= 3
        };
        let data: Vec<u8> = (0..480u64)
            .flat_map(|i| (at(i).2 as f32 / 10.0 + if inside(&i) { 1.0 + n as f32 / 14.0 } else { 0.0 }).to_le_bytes())
            .collect();
        let label: Vec<u8> = (0..480u64).map(|i| u8::from(inside(&i)) + u8::from(inside(&i) && at(i).2 > 5)).collect();
        let parts =
            [NamedPart::new("data", DType::F32, &shape, &data), NamedPart::new("label", DType::U8, &shape, &label)];
        let mut meta = Meta::new();
        meta.set("seed", n);
        let generator = if n % 3 == 0 { &mut two } else { &mut one };
        generator.write(&parts, &meta, &|| false).unwrap();
    }
    // The generators end without promoting, so two samples wait in write.4.
    for generator in [one, two] {
        generator.finish(false, &|| false).unwrap();
    }
}
