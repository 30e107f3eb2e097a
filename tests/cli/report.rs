//! `ringreel report` writes one self-contained page on the ring's state, and escapes all names.

use base64::Engine;
use ringreel::fs::Posix;
use ringreel::{Generator, NamedPart, Ring};
use ringreel_cli::report::{facts::Facts, page};
use ringreel_format::{DType, Meta};
use ringreel_ops::history::{Share, Swap};
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use testkit::cli::{Place, listing};

const NASTY: &str = "<script>alert('1')</script>&\"";

/// A ring of three generations of small images; the name of one part contains markup.
fn ring() -> Place {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data, \"<script>alert('1')</script>&\\\"\"]\nKEEP: 5\n");
    let mut generator = Generator::open(&place.config()).unwrap();
    for n in 0..13u8 {
        let image: Vec<u8> = (0..=255).map(|i| i ^ n).collect();
        let number = [n];
        let parts =
            [NamedPart::new("data", DType::U8, &[16, 16], &image), NamedPart::new(NASTY, DType::U8, &[], &number)];
        generator.write(&parts, &Meta::new(), &|| false).unwrap();
    }
    place
}

fn report(place: &Place, more: &[&str]) -> String {
    let before = listing(&place.ring());
    let out = place.path().join("report.html");
    let ring = place.ring();
    let args = ["report", ring.to_str().unwrap(), "-o", out.to_str().unwrap()];
    place.run(&[&args, more].concat()).ok();
    assert_eq!(listing(&place.ring()), before, "report wrote into the ring");
    fs::read_to_string(out).unwrap()
}

/// Checks that tags are closed in order, that attributes are quoted, and other rules that the pages need.
fn check_tags(html: &str) {
    let mut open: Vec<String> = Vec::new();
    let body = html.strip_prefix("<!DOCTYPE html>\n").unwrap();
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap_or_else(|| panic!("an unclosed tag: {piece:.80}"));
        assert_eq!(tag.matches('"').count() % 2, 0, "an unclosed quote: <{tag:.200}>");
        assert!(!tag.contains(" on"), "an event handler: <{tag:.200}>");
        let name = tag.split_whitespace().next().unwrap().trim_end_matches('/');
        assert!(open.last().is_some_and(|tag| tag == "style") || !text.contains('>'), "a bare > in text: {text:.80}");
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name), "before {text:.80}"),
            None if tag.ends_with('/') || ["meta", "img"].contains(&name) => {}
            None => open.push(name.to_owned()),
        }
    }
    assert!(open.is_empty(), "tags without an end: {open:?}");
}

/// Checks that the page refers to no address, script or other file.
fn check_self_contained(html: &str) {
    let mut without_pictures = String::new();
    for (n, piece) in html.split("base64,").enumerate() {
        without_pictures += if n == 0 { piece } else { piece.split_once('"').unwrap().1 };
    }
    for word in ["http:", "https:", "//", "<script", "javascript:", "@import", "url(", "<link", "<iframe"] {
        let found = without_pictures.find(word);
        assert!(found.is_none(), "{word}: {:.120}", &without_pictures[found.unwrap_or(0)..]);
    }
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("name=\"viewport\""));
}

#[test]
fn report_is_self_contained_and_lists_the_rings_state() {
    let place = ring();
    let html = report(&place, &[]);
    check_tags(&html);
    check_self_contained(&html);
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"));
    let png = html.split("base64,").nth(1).unwrap().split('"').next().unwrap();
    let png = base64::engine::general_purpose::STANDARD.decode(png).unwrap();
    assert_eq!(image::load_from_memory(&png).unwrap().width(), 1200);
    for words in [
        "<b>12</b><span>samples delivered",
        "<b>3</b><span>swaps",
        "it does not read every byte",
        "ringreel verify",
        "Finished samples not yet in a readable generation: 1.",
        "Filling generation 4: 1 of 4 samples",
        "100.0 %",
        "Staleness",
        " UTC",
    ] {
        assert!(html.contains(words), "{words}");
    }
    assert_eq!(html.matches("<svg").count(), 5, "four charts over time, and one of reuse");
    assert!(!report(&place, &["--samples", "0"]).contains("base64"));
}

fn facts(place: &Place) -> Facts {
    let ring = Ring::find(Arc::new(Posix), &place.config()).unwrap();
    Facts::of(&ring, 100, 0, Duration::from_secs(300)).unwrap()
}

#[test]
fn report_names_damage_and_is_written_nevertheless() {
    let place = ring();
    fs::remove_file(place.ring().join("manifests/2")).unwrap();
    for entry in fs::read_dir(place.ring().join("read.3")).unwrap() {
        let path = entry.unwrap().path();
        fs::write(&path, &fs::read(&path).unwrap()[..100]).unwrap();
    }
    let html = report(&place, &[]);
    check_tags(&html);
    assert!(html.contains("Missing or damaged manifests of these swaps: 1."), "{html}");
    assert!(html.contains("No pictures: "), "no sample of the newest generation is readable");
}

#[test]
fn report_covers_a_ring_without_generations() {
    let place = Place::new("SWAP_CAP: 4\nSAMPLE: [data]\n");
    drop(Generator::open(&place.config()).unwrap());
    let html = report(&place, &[]);
    check_tags(&html);
    assert!(html.contains("No generation is readable yet") && html.contains("No swap yet"));
    let said = place.run(&["report", "nowhere", "-o", "x.html"]);
    assert!(said.code != Some(0) && !place.path().join("x.html").exists(), "{said:?}");
}

#[test]
fn report_of_many_swaps_is_small_and_shows_every_gap() {
    let place = ring();
    let mut facts = facts(&place);
    let begin = facts.unix_ms - 100_000_000 - 3_600_000;
    let swap = |n: u64| Swap {
        generation: n,
        // One swap per second, with a gap of an hour in the middle.
        unix_ms: begin + n * 1000 + if n > 60_000 { 3_600_000 } else { 0 },
        samples: 4,
        bytes: 1000,
        total_samples: 4 * n,
        total_bytes: 1000 * n,
        swap_ms: 2.0,
        by: NASTY.to_owned(),
        seconds: Some(1.0),
        samples_per_second: (!n.is_multiple_of(10)).then_some(4.0),
        generators: vec![Share { name: format!("{NASTY}{}", n % 50), samples: 4 }],
        others: 0,
    };
    facts.swaps = (1..=100_000).map(swap).collect();
    facts.status.newest = 100_000;
    facts.status.swaps = 100_000;
    facts.status.failures = vec![ringreel::failure_log::Failure {
        name: NASTY.to_owned(),
        role: NASTY.to_owned(),
        host: String::new(),
        pid: 1,
        unix_ms: u64::MAX,
        message: NASTY.repeat(10),
    }];
    facts.pictures = Err(NASTY.to_owned());
    let html = page(&facts);
    check_tags(&html);
    check_self_contained(&html);
    assert!(html.len() < 400_000, "{} bytes", html.len());
    assert!(html.contains("Shaded: older than 5.0 min (1 time)"));
    assert_eq!(html.matches("class=\"gap\"").count(), 1);
    assert!(html.contains("all others") && html.contains("2.0 %"), "20 of 50 generators are named");
}
