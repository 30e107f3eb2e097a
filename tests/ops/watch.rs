//! `ringreel status --watch` and `ringreel metrics`: their repeated output, and that they change nothing.

use ringreel::Generator;
use ringreel::coordination::Report;
use ringreel::times::{GeneratorTimes, StreamStats};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::Path;
use testkit::cli::{self, Place, Running, eventually, generate, listing, put};

/// Two generations of five samples each, two samples in the third, and three finished samples that are not linked.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nMAX_BYTES: 123456789\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    (0..12).for_each(|n| drop(put(&mut generator, n)));
    place
}

#[test]
fn damaged_old_manifest_hides_no_other_generation() {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nKEEP: 9\n");
    generate(&place.config(), 0..15);
    let path = place.ring().join("manifests/2");
    fs::write(&path, &fs::read(&path).unwrap()[..40]).unwrap();
    let said = place.run(&["status"]).ok();
    assert!(said.out.contains("read.1 ") && said.out.contains("read.3 ") && !said.out.contains("read.2 "), "{said:?}");
    assert!(place.run(&["metrics"]).ok().out.contains("ringreel_up{"));
    place.run(&["report", "-o", "report.html"]).ok();
}

/// Members choose their names, hosts and error messages. None of these may reach a terminal or a log with an escape
/// sequence, a bidi override, or a line break.
#[test]
fn text_from_the_ring_is_escaped_in_every_output() {
    let nasty = "n\u{1b}[2J\u{7}\u{9b}\u{202e}\u{2028}\r\nringreel_up 0";
    let place = ring();
    let ring = ringreel::Ring::find(std::sync::Arc::new(ringreel::fs::Posix), &place.config()).unwrap();
    ringreel::failure_log::record(&*ring.coordination, "me", ringreel::Role::Generator, nasty);
    let text = || nasty.to_owned();
    let report = Report {
        role: "reader".to_owned(),
        host: text(),
        doing: text(),
        last_error: Some(text()),
        unix_ms: ringreel::unix_ms(),
        ..Report::default()
    };
    ring.coordination.beat("m\u{202e}\u{1b}", 7, &report).unwrap();
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["metrics"],
        &["metrics", "--json"],
        &["index", "show"],
        &["top", "--once"],
    ] {
        let said = place.run(args);
        let obeyed = |c: char| c != '\n' && ringreel::escape::is_obeyed(c);
        assert!(!said.out.contains(obeyed) && !said.err.contains(obeyed), "{args:?}: {said:?}");
        assert!(!said.out.lines().any(|line| line.starts_with("ringreel_up 0")), "{args:?}: {said:?}");
    }
    assert!(prometheus(&place.run(&["metrics"]).ok().out)["ringreel_up"].1[0].1 == 1.0);
}

/// Writes the reports of a reader that waited for 38 % of its time, of one of an older version, and of a generator.
fn publish_times(place: &Place) {
    let ring = ringreel::Ring::find(std::sync::Arc::new(ringreel::fs::Posix), &place.config()).unwrap();
    let report = |role: &str| Report {
        role: role.to_owned(),
        host: "node".to_owned(),
        unix_ms: ringreel::unix_ms(),
        lease_seconds: 600.0,
        ..Report::default()
    };
    let reading = StreamStats {
        waited_seconds: 38.0,
        read_seconds: 7.0,
        step_seconds: 55.0,
        distinct: 3,
        offered: 5,
        share_read: Some(0.6),
        reads_per_sample: Some(2.5),
        age_seconds: Some(90.0),
        now: String::new(),
    };
    let generating = GeneratorTimes {
        made_seconds: 60.0,
        wrote_seconds: 10.0,
        waited_room_seconds: 25.0,
        waited_readers_seconds: 5.0,
        now: String::new(),
    };
    let beat = |name: &str, report: Report| ring.coordination.beat(name, 1, &report).unwrap();
    beat("trainer-1-a", Report { reading: Some(reading), ..report("reader") });
    beat("old-1-a", report("reader"));
    beat("maker-1-a", Report { generating: Some(generating), ..report("generator") });
}

#[test]
fn times_of_members_are_shown_in_every_output() {
    let place = no_ring();
    generate(&place.config(), 0..12);
    publish_times(&place);
    let starved = "trainer starved 38 % of the time, reading 7 %, in its step 55 %";
    let said = place.run(&["status"]).ok().out;
    assert!(said.contains(&format!("time       {starved}\n")), "{said}");
    let reader = "starved 38 %, reading 7 %, step 55 %, 60 % of the samples read 2.5 times, 90.0 s old when read";
    let generator = "making 60 %, writing 10 %, waiting for room 25 %, for readers 5 %";
    assert!(said.contains(&format!("    time: {reader}\n")), "{said}");
    assert!(said.contains(&format!("    time: {generator}\n")), "{said}");
    let top = place.run(&["top", "--once"]).ok().out;
    assert_eq!(top.lines().next(), Some(format!(" {starved}").as_str()), "{top}");

    for args in [["status", "--json"], ["metrics", "--json"]] {
        let said = &place.run(&args).ok().json()[0];
        assert_eq!(said["starved"], 0.38);
        let of = |name: &str| {
            let all = said["readers"].as_array().unwrap().iter().chain(said["generators"].as_array().unwrap());
            all.clone().find(|member| member["name"] == name).unwrap().clone()
        };
        assert_eq!(
            (&of("trainer-1-a")["starved"], &of("trainer-1-a")["reading"]["read_seconds"]),
            (&0.38.into(), &7.0.into())
        );
        assert_eq!(of("maker-1-a")["generating"]["waited_readers_seconds"], 5.0);
        assert!(of("old-1-a").get("starved").is_none() && of("old-1-a").get("reading").is_none());
    }
    let families = prometheus(&place.run(&["metrics"]).ok().out);
    for (name, member, value) in [
        ("reader_waited_seconds_total", "trainer-1-a", 38.0),
        ("reader_read_seconds_total", "trainer-1-a", 7.0),
        ("reader_step_seconds_total", "trainer-1-a", 55.0),
        ("reader_share_read", "trainer-1-a", 0.6),
        ("reader_reads_per_sample", "trainer-1-a", 2.5),
        ("reader_sample_age_seconds", "trainer-1-a", 90.0),
        ("generator_made_seconds_total", "maker-1-a", 60.0),
        ("generator_wrote_seconds_total", "maker-1-a", 10.0),
        ("generator_waited_room_seconds_total", "maker-1-a", 25.0),
        ("generator_waited_readers_seconds_total", "maker-1-a", 5.0),
    ] {
        let lines = &families[&format!("ringreel_{name}")].1;
        let found: Vec<_> = lines.iter().map(|(labels, value)| (labels["name"].as_str(), *value)).collect();
        assert_eq!(found, [(member, value)], "{name}");
    }
    place.run(&["report", "-o", "report.html", "--samples", "0"]).ok();
    let page = fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("<b>38 %</b>") && page.contains(reader) && page.contains(generator), "{page}");
}

#[test]
fn report_refuses_an_output_path_in_the_ring() {
    let place = ring();
    let before = fs::read(place.ring().join("ring.json")).unwrap();
    let said = place.run(&["report", "-o", "demo.ring/ring.json"]);
    assert!(said.code == Some(2) && said.err.contains("in the ring"), "{said:?}");
    assert_eq!(fs::read(place.ring().join("ring.json")).unwrap(), before);
}

fn no_ring() -> Place {
    Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\n")
}

type Labels = BTreeMap<String, String>;
/// The type of each metric family, and its values by labels.
type Families = BTreeMap<String, (String, Vec<(Labels, f64)>)>;

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
}

/// Splits text into the labels between braces and the rest.
fn labels(mut text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (name, rest) = text.split_once("=\"").unwrap();
        assert!(is_name(name), "{name:?}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} is not an escape"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        match rest[end + 1..].strip_prefix(',') {
            Some(more) => text = more,
            None => return (labels, rest[end + 1..].strip_prefix('}').unwrap()),
        }
    }
}

/// A strict parser of the text format, version 0.0.4: each family has one HELP, one TYPE and its lines in one block.
fn prometheus(text: &str) -> Families {
    assert!(text.ends_with('\n') && !text.contains("\n\n"), "{text}");
    let (mut families, mut current) = (Families::new(), (String::new(), 0));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && words.ends_with('.'), "{line}");
            current = (name.to_owned(), 1);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!((name, current.1), (current.0.as_str(), 1), "{line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(families.insert(name.to_owned(), (kind.to_owned(), Vec::new())).is_none(), "{name} twice");
            current.1 = 2;
        } else {
            let (name, rest) = line.split_once('{').unwrap();
            assert_eq!((name, current.1), (current.0.as_str(), 2), "{line}");
            let (labels, value) = labels(rest);
            let value = value.strip_prefix(' ').unwrap().parse::<f64>().unwrap();
            let all = &mut families.get_mut(name).unwrap().1;
            assert!(all.iter().all(|(other, _)| *other != labels), "{line} twice");
            assert!(labels.contains_key("ring"), "{line}");
            all.push((labels, value));
        }
    }
    families
}

fn value(families: &Families, name: &str) -> f64 {
    let (_, values) = families.get(&format!("ringreel_{name}")).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(values.len(), 1, "{name}");
    values[0].1
}

#[test]
fn prometheus_text_is_valid_and_agrees_with_status() {
    let place = ring();
    let mut living = Generator::open(&place.config()).unwrap();
    put(&mut living, 12);
    eventually("the generator has reported its sample", || {
        let found = prometheus(&place.run(&["metrics"]).ok().out);
        found["ringreel_member_samples_total"].1.iter().any(|(_, samples)| *samples == 1.0)
    });
    let said = place.run(&["metrics", "--prometheus"]).ok();
    let mine = place.run(&["status", "--json"]).ok().json().remove(0);
    let found = prometheus(&said.out);
    let whole = |name: &str| mine[name].as_u64().unwrap_or_else(|| panic!("{name}: {mine}")) as f64;
    for (metric, name) in [
        ("samples_delivered_total", "samples_delivered"),
        ("bytes_delivered_total", "bytes_delivered"),
        ("swaps_total", "swaps"),
        ("samples_waiting", "samples_waiting"),
        ("newest_generation", "newest"),
        ("swap_cap_samples", "swap_cap"),
        ("ring_bytes", "bytes"),
        ("ring_files", "files"),
        ("max_bytes", "max_bytes"),
        ("quarantined_segments", "quarantined"),
    ] {
        assert_eq!(value(&found, metric), whole(name), "{metric}");
    }
    assert_eq!((value(&found, "up"), value(&found, "index_up"), value(&found, "writing_samples")), (1.0, 1.0, 3.0));
    assert_eq!((value(&found, "swaps_total"), value(&found, "samples_delivered_total")), (2.0, 10.0));
    assert!(value(&found, "free_bytes") > 0.0 && value(&found, "newest_generation_age_seconds") < 600.0);
    assert!(
        (0.0..600.0)
            .contains(&(value(&found, "looked_timestamp_seconds") - value(&found, "last_swap_timestamp_seconds")))
    );
    let members: BTreeMap<_, _> =
        found["ringreel_members"].1.iter().map(|(labels, n)| (labels["role"].as_str(), *n)).collect();
    assert_eq!(members, BTreeMap::from([("manager", 0.0), ("generator", 1.0), ("reader", 0.0)]));
    assert_eq!(found["ringreel_member_samples_total"].1[0].0["role"], "generator");
    assert!(found.keys().all(|name| name.starts_with("ringreel_")));
    assert_eq!(found["ringreel_up"].1[0].0["ring"], place.ring().display().to_string());
}

#[test]
fn prometheus_labels_are_escaped() {
    let place = Place::new("SWAP_CAP: 5\nSAMPLE: [data, label]\nRING: \"a \\\"b\\\\c\\nd.ring\"\n");
    generate(&place.config(), 0..5);
    let found = prometheus(&place.run(&["metrics"]).ok().out);
    assert!(found["ringreel_up"].1[0].0["ring"].ends_with("/a \"b\\c\nd.ring"), "{found:?}");
}

#[test]
fn json_lines_have_ringreel_and_wirehead_names() {
    let place = ring();
    let said = place.run(&["metrics", "--json"]).ok().json();
    let mine = place.run(&["status", "--json"]).ok().json().remove(0);
    let [line] = &said[..] else { panic!("{said:?}") };
    let names = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert!(names(line).is_superset(&names(&mine)));
    for name in
        "samples_started samples_completed in_flight swap_cap fill_pct is_swapping swap_lock_duration swap_count \
        swap_timestamp swap_duration time_since_last_swap avg_swap_duration samples_per_s swaps_per_s write_mb_per_s \
        write_docs write_size_mb read_docs read_size_mb mongo_active_ops db_name poll_interval timestamp recent_swaps"
            .split_whitespace()
    {
        assert!(names(line).contains(name), "{name}");
    }
    assert_eq!((&line["swap_count"], &line["db_name"], &line["read_docs"]), (&2.into(), &"demo".into(), &5.into()));
    assert_eq!((&line["fill_pct"], &line["samples_completed"]), (&40.0.into(), &2.into()));
    assert_eq!(line["recent_swaps"][1]["swap_count"], 2);
}

#[test]
fn json_lines_continue_while_the_ring_is_absent() {
    let place = no_ring();
    let mut running = place.start(&["metrics", "--json", "--every", "0.05"]);
    running.await_err("no ring at");
    generate(&place.config(), 0..10);
    eventually("metrics finds the ring", || running.out().contains("\"samples_delivered\":10"));
    running.terminate();
    let said = running.finish().ok();
    let (first, last) = (&said.json()[0], said.json().pop().unwrap());
    assert!(first["error"].as_str().unwrap().contains("no ring") && first["timestamp"].as_f64().unwrap() > 1e9);
    assert_eq!((&last["samples_delivered"], &last["poll_interval"]), (&10.into(), &0.05.into()));
}

#[test]
fn prometheus_files_are_complete_and_report_absent_rings() {
    let place = ring();
    let file = place.path().join("ring.prom");
    let running = place.start(&["metrics", "--every", "0.05", "-o", "ring.prom"]);
    let up = |file: &Path| fs::read_to_string(file).ok().map(|text| value(&prometheus(&text), "up"));
    eventually("the file exists", || up(&file) == Some(1.0));
    for _ in 0..200 {
        assert_eq!(up(&file), Some(1.0), "the file is complete at every read");
    }
    fs::rename(place.ring(), place.path().join("away")).unwrap();
    eventually("metrics reports the absence", || up(&file) == Some(0.0));
    fs::rename(place.path().join("away"), place.ring()).unwrap();
    eventually("metrics finds the ring again", || up(&file) == Some(1.0));
    running.terminate();
    running.finish().ok();
    let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{names:?}");
}

#[test]
fn json_lines_in_a_file_are_appended() {
    let place = ring();
    for _ in 0..2 {
        place.run(&["metrics", "--json", "-o", "ring.jsonl"]).ok();
    }
    let text = fs::read_to_string(place.path().join("ring.jsonl")).unwrap();
    assert_eq!(text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count(), 2);
}

#[test]
fn metrics_write_nothing_into_the_ring_and_replace_only_files() {
    let place = ring();
    symlink(place.ring(), place.path().join("elsewhere")).unwrap();
    symlink("/dev/null", place.path().join("link")).unwrap();
    let before = listing(&place.ring());
    for path in
        ["demo.ring/x.prom", "demo.ring/manifests/7", "elsewhere/x.prom", "link", "/dev/null", "gone/x.prom", "."]
    {
        let said = place.run(&["metrics", "-o", path]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{path}: {said:?}");
    }
    assert_eq!(listing(&place.ring()), before);
    let said = place.run(&["metrics", "--every", "1"]);
    assert_eq!(said.code, Some(2), "repeated Prometheus text on stdout is refused: {said:?}");
    for wrong in [&["--every", "0"][..], &["--every", "x"], &["--listen", "x"], &["--json", "--prometheus"]] {
        assert_eq!(place.run(&[&["metrics"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
    assert_eq!(no_ring().run(&["metrics"]).code, Some(1));
}

/// Sends these bytes and returns the answer.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(cli::PATIENCE)).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn get(address: &str, path: &str) -> (String, String) {
    let answer = ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), body.len());
    (head.to_owned(), body.to_owned())
}

fn listening(place: &Place) -> (Running, String) {
    let mut running = place.start(&["metrics", "--listen", "0"]);
    running.await_err("/metrics");
    let err = running.err();
    let address = err.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    (running, address)
}

#[test]
fn metrics_are_served_on_a_local_port() {
    let place = ring();
    let (running, address) = listening(&place);
    let (head, body) = get(&address, "/metrics?x=y");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(value(&prometheus(&body), "samples_delivered_total"), 10.0);
    let (head, body) = get(&address, "/json");
    assert!(head.contains("application/json"), "{head}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&body).unwrap()["swap_count"], 2);
    assert!(get(&address, "/etc/passwd").0.starts_with("HTTP/1.1 404"));
    assert!(ask(&address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let head_only = ask(&address, "HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head_only.starts_with("HTTP/1.0 200") && head_only.ends_with("\r\n\r\n"), "{head_only}");
    fs::rename(place.ring(), place.path().join("away")).unwrap();
    eventually("metrics reports the absence", || value(&prometheus(&get(&address, "/metrics").1), "up") == 0.0);
    running.terminate();
    running.finish().ok();
}

#[test]
fn malformed_or_endless_requests_do_not_block_others() {
    let place = ring();
    let (running, address) = listening(&place);
    for request in ["\r\n\r\n", "nonsense\r\n\r\n", "GET", "\0\u{1}\r\n\r\n"] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap(); // disconnects without reading
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1 << 20));
    assert!(!ask(&address, &long).starts_with("HTTP/1.1 200"));
    let _silent = TcpStream::connect(&address).unwrap();
    assert_eq!(value(&prometheus(&get(&address, "/metrics").1), "up"), 1.0);
    running.terminate();
    running.finish().ok();
}

/// A port scanner, or a load balancer that opens connections in advance, does not delay a scrape.
#[test]
fn idle_connections_do_not_delay_a_scrape() {
    let place = ring();
    let (running, address) = listening(&place);
    let idle: Vec<_> = (0..64).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(value(&prometheus(&get(&address, "/metrics").1), "up"), 1.0);
    drop(idle);
    running.terminate();
    running.finish().ok();
}

#[test]
fn status_watch_repeats_until_a_signal() {
    let place = ring();
    let before = listing(&place.ring());
    let running = place.start(&["status", "--watch", "0.05"]);
    let times = |running: &Running| running.out().matches("\ndelivered  10 samples in 2 swaps").count();
    eventually("the status is repeated", || times(&running) > 2);
    running.terminate();
    assert!(!running.finish().ok().out.contains('\x1b'), "escape codes without a terminal");
    let running = place.start(&["status", "--json", "--watch", "0.05"]);
    eventually("the status is repeated", || running.out().lines().count() > 2);
    running.terminate();
    let lines = running.finish().ok().json();
    assert!(lines.iter().all(|line| line["samples_delivered"] == 10), "{lines:?}");
    assert_eq!(listing(&place.ring()), before);
}

#[test]
fn status_watch_waits_for_a_ring() {
    let place = no_ring();
    let running = place.start(&["status", "demo.ring", "--watch", "0.05"]);
    eventually("status reports that the ring is missing", || running.out().starts_with("no ring at "));
    generate(&place.config(), 0..5);
    eventually("status finds the ring", || running.out().contains("delivered  5 samples"));
    running.terminate();
    running.finish().ok();
    assert_eq!(place.run(&["status", "--watch", "soon"]).code, Some(2));
}
