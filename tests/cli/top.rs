//! `ringreel top` draws rings in every state, at every size, and restores the terminal.

use ringreel::Generator;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::cli::{PATIENCE, Place, Running, Said, eventually, generate, listing, loudly, put};

fn place(more: &str) -> Place {
    Place::new(&format!("SWAP_CAP: 5\nSAMPLE: [data, label]\n{more}"))
}

fn once(place: &Place, size: &str) -> Said {
    let said = place.run(&["top", "--once", "--size", size]);
    let (width, height) = size.split_once('x').unwrap();
    assert_eq!(said.out.lines().count(), height.parse::<usize>().unwrap(), "{said:?}");
    assert!(said.out.lines().all(|line| line.chars().count() <= width.parse().unwrap()), "{}", said.out);
    assert!(!said.out.contains('\x1b') && !said.err.contains("panicked"), "{said:?}");
    said
}

#[test]
fn frame_shows_fill_swaps_rates_and_members() {
    let place = place("");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..22).for_each(|n| drop(put(&mut generator, n)));
    let before = listing(&place.ring().join("manifests"));
    let text = once(&place, "80x24").ok().out;
    for part in [
        "generation 5: 2/5 samples",
        "generation 4,",
        "20 samples, 2 waiting",
        "swaps     4, blocked",
        " free",
        "1 members",
        "generator ",
        "q quit",
        "times read",
    ] {
        assert!(text.contains(part), "no {part:?}:\n{text}");
    }
    let swaps = text.lines().skip_while(|line| !line.contains("blocked   samples")).skip(1).take(4);
    let numbers: Vec<_> = swaps.map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(numbers, ["4", "3", "2", "1"], "{text}");
    assert_eq!(listing(&place.ring().join("manifests")), before);
    let wide = once(&place, "200x60").ok().out;
    assert!(wide.contains("samples/s") && wide.contains(" host "), "{wide}");
}

#[test]
fn frame_is_drawn_at_every_terminal_size() {
    let place = place("");
    generate(&place.config(), 0..15);
    for size in ["1x1", "2x7", "10x3", "19x9", "20x6", "40x12", "69x24", "70x10", "81x15", "120x35", "300x100"] {
        once(&place, size).ok();
    }
    let small = once(&place, "40x12").ok().out;
    assert!(
        small.contains("generation 4: 0/5") && small.contains("delivered 15") && small.contains("q quit"),
        "{small}"
    );
    for wrong in ["0x5", "5x0", "80", "80x", "9999x9999", "axb"] {
        assert_eq!(place.run(&["top", "--once", "--size", wrong]).code, Some(2), "{wrong}");
    }
}

#[test]
fn absent_empty_and_damaged_rings_are_named() {
    let place = place("");
    let said = once(&place, "100x10");
    assert!(said.code == Some(1) && said.out.contains("no ring at") && said.out.contains("retrying: "), "{said:?}");
    drop(Generator::open(&place.config()).unwrap());
    let text = once(&place, "80x24").ok().out;
    assert!(
        text.contains("none yet; readers wait") && text.contains("generation 1: 0/5") && text.contains("no members"),
        "{text}"
    );
    generate(&place.config(), 0..5);
    let by_path = place.run(&["top", "demo.ring", "--once"]).ok().out;
    assert!(by_path.contains("generation 1,"), "{by_path}");
    std::fs::remove_dir_all(place.ring().join("manifests")).unwrap();
    assert!(once(&place, "80x24").out.contains("no ring at"));
}

#[test]
fn top_reports_an_unreachable_index_and_shows_the_rest() {
    let place = place("");
    generate(&place.config(), 0..10);
    let away = "MONGOURI: mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=200\nINDEX: mongodb\n";
    place.configure(&format!("DBNAME: demo\nSAMPLE: [data, label]\n{away}"));
    let text = once(&place, "100x30").ok().out;
    assert!(text.contains("UNREACHABLE") && text.contains("generation 2,") && text.contains("unknown"), "{text}");
}

#[test]
fn failures_are_escaped_and_shown_on_one_line_each() {
    let place = place("");
    generate(&place.config(), 0..5);
    let ring = ringreel::Ring::find(std::sync::Arc::new(ringreel::fs::Posix), &place.config()).unwrap();
    ringreel::failure_log::record(&*ring.coordination, "me", ringreel::Role::Generator, "first\nsecond\x1b[2J\u{7}");
    let text = once(&place, "80x24").ok().out;
    assert!(text.contains("failures: 1 most recent") && text.contains(r": first\nsecond\u{1b}[2J"), "{text}");
}

#[test]
fn top_without_terminal_suggests_other_commands() {
    let place = place("");
    let said = place.run(&["top"]);
    assert!(said.code == Some(2) && said.err.contains("status --watch") && said.err.contains("metrics"), "{said:?}");
    let said = place.run(&["top", "--once", "--json"]);
    assert!(said.code == Some(2) && said.err.contains("metrics --json"), "{said:?}");
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Runs the command in a separate terminal; its output is what it draws. Returns none, with a message, if `script`
/// is missing.
fn in_a_terminal(test: &str, place: &Place, then: &str) -> Option<(Running, std::process::ChildStdin)> {
    if Command::new("script").arg("--version").output().is_err() {
        loudly(&format!("SKIPPED: {test}: the command `script` is missing"));
        return None;
    }
    let top = format!("stty rows 24 cols 80; {} top --interval 0.1{then}; echo ended $?; stty -a", testkit::binary());
    let mut command = Command::new("script");
    command.args(["-qec", &top, "/dev/null"]).current_dir(place.path()).env_remove("NO_COLOR").env("TERM", "xterm");
    Some(Running::start_with_input(command))
}

/// What a terminal shows after it received `out`. (The program sends only changed cells, so words arrive in pieces.)
fn screen(out: &str) -> String {
    let (mut cells, mut row, mut column) = (BTreeMap::new(), 1, 1);
    let mut chars = out.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => {
                let mut sequence: String = chars.next().into_iter().collect();
                while sequence.starts_with('[')
                    && (sequence.len() == 1 || !sequence.ends_with(|c| ('@'..='~').contains(&c)))
                {
                    let Some(c) = chars.next() else { break };
                    sequence.push(c);
                }
                if let Some(place) = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('H')) {
                    let (r, c) = place.split_once(';').unwrap_or((place, "1"));
                    (row, column) = (r.parse().unwrap_or(1), c.parse().unwrap_or(1));
                } else if sequence.ends_with('J') {
                    cells.clear();
                }
            }
            '\n' => row += 1,
            '\r' => column = 1,
            c => {
                cells.insert((row, column), c);
                column += 1;
            }
        }
    }
    let mut shown = String::new();
    let mut last = (1, 1);
    for ((row, column), c) in cells {
        if row != last.0 {
            shown.push('\n');
        } else if column != last.1 {
            shown.push(' ');
        }
        shown.push(c);
        last = (row, column + 1);
    }
    shown
}

/// Waits until the terminal shows `text`. Panics with what it shows if the command ends before that.
fn await_screen(running: &mut Running, text: &str) {
    let begun = Instant::now();
    loop {
        let shown = screen(&running.out());
        if shown.contains(text) {
            return;
        }
        let is_running = running.is_running() && begun.elapsed() < PATIENCE;
        assert!(is_running, "the terminal never showed {text:?} (running: {}):\n{shown}", running.is_running());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The second frame keeps the `g` and the `t` of the first one, so the bytes never contain the word.
#[test]
fn screen_shows_words_that_arrive_in_pieces() {
    let bytes = "\x1b[2J\x1b[1;1Hgxxxxatxxx\x1b[1;2Hener\x1b[1;8Hion\x1b[2;1H\x1b[31mred\x1b[0m";
    assert_eq!(screen(bytes), "generation\nred");
    assert!(!bytes.contains("generation"));
    assert_eq!(screen(&format!("{bytes}\x1b[2J\x1b[3;4Hx")).trim(), "x");
}

#[test]
fn top_handles_keys_and_restores_the_terminal() {
    let place = place("");
    let Some((mut running, mut keys)) = in_a_terminal("top_handles_keys", &place, "") else { return };
    await_screen(&mut running, "no ring at");
    generate(&place.config(), 0..10);
    await_screen(&mut running, "generation");
    assert!(running.out().contains(ENTER) && !running.out().contains(LEAVE));
    keys.write_all(b"?").unwrap();
    await_screen(&mut running, "columns");
    assert!(running.is_running());
    keys.write_all(b"qq").unwrap();
    let said = running.finish();
    let (_, after) = said.out.rsplit_once(LEAVE).unwrap();
    assert!(after.contains("ended 0") && after.contains(" echo ") && after.contains(" icanon "), "{after}");
}

#[test]
fn top_restores_the_terminal_after_a_signal() {
    let place = place("");
    generate(&place.config(), 0..10);
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let then =
            format!(" </dev/tty & top=$!; while ! [ -e go ]; do sleep 0.02; done; kill -{signal} $top; wait $top");
        let _ = std::fs::remove_file(place.path().join("go"));
        let Some((mut running, _keys)) = in_a_terminal("top_restores_the_terminal_after_a_signal", &place, &then)
        else {
            return;
        };
        await_screen(&mut running, "generation");
        std::fs::write(place.path().join("go"), "").unwrap();
        let said = running.finish();
        let (_, after) = said.out.rsplit_once(LEAVE).unwrap();
        assert!(
            after.contains("ended 0") && after.contains(" echo ") && after.contains(" icanon "),
            "{signal}: {after}"
        );
    }
}

/// Counts the processes of the command that were started in this directory.
fn running_in(dir: &std::path::Path) -> usize {
    let dir = dir.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let ours = |process: &std::path::PathBuf| {
        std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == dir)
            && std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "ringreel")
    };
    processes.filter(ours).count()
}

#[test]
fn top_exits_when_its_terminal_closes() {
    let place = place("");
    generate(&place.config(), 0..10);
    let Some((mut running, keys)) = in_a_terminal("top_exits_when_its_terminal_closes", &place, "") else { return };
    await_screen(&mut running, "generation");
    assert_eq!(running_in(place.path()), 1);
    drop((running, keys));
    eventually("top exits", || running_in(place.path()) == 0);
}
