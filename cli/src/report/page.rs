//! The report as one HTML page that contains its style sheet, plots and pictures.

use super::facts::Facts;
use super::plots::{Plot, Point, Style, bars, number, over_time};
use super::text::escaped;
use crate::humanize::{human_bytes, human_seconds, utc};
use crate::render::times;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringreel_ops::history::Swap;
use ringreel_ops::status::MemberStatus;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
/// Most generators that are listed by name.
const NAMED: usize = 20;
/// Most rows of a table; further ones are counted.
const ROWS: usize = 40;
/// Most bars in the plot of reuse.
const BARS: usize = 10;

/// Returns a whole HTML document.
pub fn page(facts: &Facts) -> String {
    let status = &facts.status;
    let name = status.ring.rsplit('/').find(|part| !part.is_empty()).unwrap_or("ring");
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title><style>\n{STYLE}</style></head>\n<body><main>\n",
        escaped(name)
    );
    head(&mut out, facts, name);
    tiles(&mut out, facts);
    health(&mut out, facts);
    over(&mut out, facts);
    pictures(&mut out, facts);
    shares(&mut out, facts);
    generations(&mut out, facts);
    members(&mut out, facts);
    failures(&mut out, facts);
    let _ = writeln!(
        out,
        "<footer>Written by ringreel {}. All times are UTC.</footer>\n</main></body></html>",
        env!("CARGO_PKG_VERSION")
    );
    out
}

fn at(unix_ms: u64) -> String {
    let (date, time) = utc(unix_ms);
    format!("{date} {time}")
}

fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

fn head(out: &mut String, facts: &Facts, name: &str) {
    let status = &facts.status;
    let _ = writeln!(
        out,
        "<header><h1>{}</h1><p class=\"dim\">State of the ring on {} UTC</p><p><code>{}</code></p>\
         <p class=\"dim\">Parts of a sample: {}. Up to {} samples per generation. Index: {}. Id: <code>{}</code></p></header>",
        escaped(name),
        at(facts.unix_ms),
        escaped(&status.ring),
        escaped(&status.sample.join(", ")),
        count(status.swap_cap),
        escaped(&status.index),
        escaped(&status.ring_id)
    );
}

fn tiles(out: &mut String, facts: &Facts) {
    let status = &facts.status;
    let rate = status.samples_per_second.unwrap_or(0.0);
    let (unit, times) = rate_unit(rate);
    let per = format!("{unit} over recent swaps");
    let age = status.newest_age_seconds.map_or("none yet".to_owned(), human_seconds);
    let swap = status.swap_ms_mean.map_or("–".to_owned(), |ms| format!("{} ms", number(ms)));
    out.push_str("<section class=\"tiles\">");
    for (value, what) in [
        (count(status.samples_delivered), "samples delivered"),
        (status.samples_per_second.map_or("–".to_owned(), |rate| number(rate * times)), per.as_str()),
        (count(status.swaps), "swaps"),
        (age, "age of the newest generation"),
        (swap, "mean duration of a swap"),
        (human_bytes(status.bytes), "on disk"),
        (
            status.starved.map_or("–".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            "of their time readers starved",
        ),
        (status.generators.len().to_string(), "generators"),
        (status.readers.len().to_string(), "readers"),
    ] {
        let _ = write!(out, "<div class=\"tile\"><b>{}</b><span>{what}</span></div>", escaped(&value));
    }
    out.push_str("</section>\n");
}

/// Writes the checks that need not read every byte.
fn health(out: &mut String, facts: &Facts) {
    let status = &facts.status;
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut say = |class, what: String| rows.push((class, what));
    match status.newest_age_seconds {
        None => say("warn", "No generation is readable yet.".to_owned()),
        Some(age) if age > facts.stale_after.as_secs_f64() => {
            let most = human_seconds(facts.stale_after.as_secs_f64());
            let age = human_seconds(age);
            say("warn", format!("The newest generation is {age} old, more than STALE_AFTER ({most})."));
        }
        Some(age) => say("good", format!("The newest generation is {} old.", human_seconds(age))),
    }
    match &status.index_away {
        Some(why) => {
            say("warn", format!("The index is unreachable: {why}. The ring continues; its members are unknown."));
        }
        None if status.manager.is_some() => say("good", "A manager is running.".to_owned()),
        None => say("good", "No manager is running; generators promote full generations.".to_owned()),
    }
    match facts.missing() {
        0 => say("good", "All manifests of these swaps are readable.".to_owned()),
        n => say("bad", format!("Missing or damaged manifests of these swaps: {}.", count(n))),
    }
    match &status.missing[..] {
        [] => say("good", "No required generation is missing.".to_owned()),
        missing => say("bad", format!("Missing generations that KEEP covers: {missing:?}.")),
    }
    match status.quarantined {
        0 => say("good", "No segment is in quarantine.".to_owned()),
        n => say("bad", format!("Segments in quarantine: {}. The reasons are in quarantine/*.why.", count(n))),
    }
    match status.samples_waiting {
        0 => say("good", "No finished sample is waiting in staging.".to_owned()),
        n => say("good", format!("Finished samples not yet in a readable generation: {}.", count(n))),
    }
    match status.failures.len() {
        0 => say("good", "No failure of a generator or manager is recorded.".to_owned()),
        n => say("warn", format!("Recorded failures of generators and managers: {n}; see below.")),
    }
    if facts.damaged > 0 {
        say("bad", format!("Damaged samples among those to draw: {}.", facts.damaged));
    }
    out.push_str("<h2>Health</h2><div class=\"card\"><div class=\"scroll\"><table>");
    for (class, what) in rows {
        let word = match class {
            "good" => "ok",
            "warn" => "warning",
            _ => "problem",
        };
        let _ = write!(out, "<tr><td class=\"{class}\">{word}</td><td>{}</td></tr>", escaped(&what));
    }
    let _ = writeln!(
        out,
        "</table></div><p class=\"note dim\">This is a quick check: it does not read every byte. \
         To verify all checksums, run <code>ringreel verify {}</code>.</p></div>",
        escaped(&status.ring)
    );
}

/// Writes the plots over time.
fn over(out: &mut String, facts: &Facts) {
    let (from, to) = facts.span();
    if facts.swaps.is_empty() {
        out.push_str("<h2>Over time</h2><p class=\"dim\">No swap yet.</p>\n");
        return;
    }
    let first = if facts.swaps.len() as u64 == facts.status.swaps { "All" } else { "The most recent" };
    let _ = write!(
        out,
        "<h2>Over time</h2><p class=\"dim\">{first} {} swaps, {} to {} UTC, by the clocks of the promoting processes</p>\
         <section class=\"grid\">",
        count(facts.swaps.len() as u64),
        at(from),
        at(to)
    );
    let gaps = facts.gaps();
    let most = human_seconds(facts.stale_after.as_secs_f64());
    let stale = match gaps.len() {
        0 => format!("Age of the newest generation. It was never older than {most}."),
        1 => format!("Age of the newest generation. Shaded: older than {most} (1 time)."),
        n => format!("Age of the newest generation. Shaded: older than {most} ({} times).", count(n as u64)),
    };
    let greatest = |points: &[Point]| points.iter().filter_map(|point| point.1).fold(0.0, f64::max);
    let rates = steps(facts, |swap| swap.samples_per_second);
    let between = steps(facts, |swap| swap.seconds);
    let swaps: Vec<Point> = facts.swaps.iter().map(|swap| (swap.unix_ms, Some(swap.swap_ms))).collect();
    let ages = facts.staleness();
    let (per, seconds, age) = (rate_unit(greatest(&rates)), time_unit(greatest(&between)), time_unit(greatest(&ages)));
    let kinds = [
        (
            "Samples delivered",
            (per.0, per.1),
            rates,
            "Samples of each generation, divided by the time since the previous swap.",
            Style::Line,
        ),
        ("Time between swaps", seconds, between, "Time from one swap to the next.", Style::Line),
        ("Duration of a swap", ("ms", 1.0), swaps, "Time for which generators could not commit.", Style::Dots),
        ("Staleness", age, ages, &stale, Style::Area),
    ];
    for (name, (unit, times), mut points, words, style) in kinds {
        points.iter_mut().filter_map(|point| point.1.as_mut()).for_each(|value| *value *= times);
        let shaded = if style == Style::Area { &gaps[..] } else { &[] };
        let svg = over_time(&Plot { name, unit, points: &points, span: (from, to), shaded, style });
        let words = escaped(words);
        let _ = write!(out, "<figure class=\"card\"><h3>{name}</h3>{svg}<figcaption>{words}</figcaption></figure>");
    }
    reuse(out, facts);
    out.push_str("</section>\n");
}

/// Returns a value that holds from one swap to the next, as steps.
fn steps(facts: &Facts, value: fn(&Swap) -> Option<f64>) -> Vec<Point> {
    let mut points = Vec::with_capacity(2 * facts.swaps.len());
    let mut before = None;
    for swap in &facts.swaps {
        let value = value(swap);
        points.extend(before.filter(|_| value.is_some()).map(|before| (before, value)));
        points.push((swap.unix_ms, value));
        before = Some(swap.unix_ms);
    }
    points
}

/// Returns a readable unit for a rate, and the factor that converts samples per second to it.
fn rate_unit(per_second: f64) -> (&'static str, f64) {
    if per_second > 0.0 && per_second < 0.5 { ("samples/min", 60.0) } else { ("samples/s", 1.0) }
}

/// Returns a readable unit for a time, and the factor that converts seconds to it.
fn time_unit(seconds: f64) -> (&'static str, f64) {
    match seconds {
        ..180.0 => ("s", 1.0),
        ..10_800.0 => ("min", 1.0 / 60.0),
        ..432_000.0 => ("h", 1.0 / 3600.0),
        _ => ("d", 1.0 / 86_400.0),
    }
}

fn reuse(out: &mut String, facts: &Facts) {
    let reuse = &facts.status.reuse;
    if reuse.is_empty() {
        return;
    }
    let mut shown: Vec<(String, u64)> =
        reuse.iter().take(BARS).map(|bar| (format!("{}×", bar.passes), bar.generations)).collect();
    let more: u64 = reuse.iter().skip(BARS).map(|bar| bar.generations).sum();
    if more > 0 {
        shown.push(("more".to_owned(), more));
    }
    let _ = write!(
        out,
        "<figure class=\"card\"><h3>Reuse</h3>{}<figcaption>Number of generations by how often they were read, for the last {} \
         without the newest, by the run logs that are kept.</figcaption></figure>",
        bars("Generations by the number of times they were read", &shown),
        count(reuse.iter().map(|bar| bar.generations).sum())
    );
}

fn pictures(out: &mut String, facts: &Facts) {
    out.push_str("<h2>Samples</h2>");
    match &facts.pictures {
        Ok(png) => {
            let _ = writeln!(
                out,
                "<figure class=\"scroll\"><img alt=\"Slices of samples of the newest generation\" src=\"data:image/png;base64,{}\"></figure>",
                STANDARD.encode(png)
            );
        }
        Err(why) => {
            let _ = writeln!(out, "<p class=\"dim\">No pictures: {}</p>", escaped(why));
        }
    }
    for note in facts.notes.iter().take(ROWS) {
        let _ = writeln!(out, "<p class=\"note dim\">{}</p>", escaped(note));
    }
}

fn shares(out: &mut String, facts: &Facts) {
    let (named, others) = facts.shares(NAMED);
    let all = named.iter().fold(others, |sum, (_, n)| sum.saturating_add(*n)).max(1);
    if named.is_empty() {
        return;
    }
    out.push_str("<h2>Generators</h2><div class=\"card\"><div class=\"scroll\"><table><tr><th>generator</th><th class=\"n\">samples</th><th class=\"n\">share</th><th></th></tr>");
    let others = (others > 0).then(|| ("all others".to_owned(), others));
    for (name, samples) in named.into_iter().chain(others) {
        let percent = samples as f64 * 100.0 / all as f64;
        let _ = write!(
            out,
            "<tr><td class=\"name\">{}</td><td class=\"n\">{}</td><td class=\"n\">{percent:.1} %</td>\
             <td class=\"share-cell\"><span class=\"share\" style=\"width:{percent:.1}%\"></span></td></tr>",
            escaped(&name),
            count(samples)
        );
    }
    out.push_str("</table></div></div>\n");
}

fn generations(out: &mut String, facts: &Facts) {
    let status = &facts.status;
    let writing = &status.writing;
    let _ = write!(
        out,
        "<h2>Generations</h2><div class=\"card\"><p class=\"dim\">Filling generation {}: {} of {} samples.</p>",
        writing.generation,
        count(writing.samples),
        count(writing.cap)
    );
    out.push_str("<div class=\"scroll\"><table><tr><th>generation</th><th class=\"n\">samples</th><th class=\"n\">size</th><th class=\"n\">files</th><th class=\"n\">age</th><th class=\"n\">read</th></tr>");
    for generation in status.generations.iter().rev().take(ROWS) {
        let passes = generation.passes.map_or("–".to_owned(), |passes| format!("{passes}×"));
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{passes}</td></tr>",
            generation.generation,
            count(generation.samples),
            human_bytes(generation.bytes),
            count(generation.segments),
            human_seconds(generation.age_seconds)
        );
    }
    out.push_str("</table></div>");
    more(out, status.generations.len());
    out.push_str("</div>\n");
}

fn more(out: &mut String, rows: usize) {
    if rows > ROWS {
        let _ = write!(out, "<p class=\"note dim\">and {} more</p>", rows - ROWS);
    }
}

fn members(out: &mut String, facts: &Facts) {
    let status = &facts.status;
    if status.index_away.is_some() {
        return;
    }
    out.push_str("<h2>Members</h2><div class=\"card\">");
    let all: Vec<&MemberStatus> =
        [&status.managers, &status.generators, &status.readers, &status.silent].into_iter().flatten().collect();
    if all.is_empty() {
        out.push_str("<p class=\"dim\">No members at the moment.</p></div>\n");
        return;
    }
    out.push_str("<div class=\"scroll\"><table><tr><th>role</th><th>name</th><th class=\"n\">samples</th><th class=\"n\">per second</th><th class=\"n\">last heartbeat</th><th>time</th><th>activity</th></tr>");
    for member in all.iter().take(ROWS) {
        let report = &member.report;
        let error = report.last_error.as_ref().map_or(String::new(), |error| format!("; last error: {error}"));
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"name\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{} ago</td><td>{}</td><td>{}</td></tr>",
            escaped(&report.role),
            escaped(&member.name),
            count(report.samples),
            number(report.per_second),
            human_seconds(member.silent_seconds),
            escaped(&times::of(report).unwrap_or_default()),
            escaped(&format!("{}{error}", report.doing))
        );
    }
    out.push_str("</table></div>");
    more(out, all.len());
    out.push_str("</div>\n");
}

fn failures(out: &mut String, facts: &Facts) {
    let failures = &facts.status.failures;
    if failures.is_empty() {
        return;
    }
    out.push_str("<h2>Failures</h2><div class=\"card\"><div class=\"scroll\"><table><tr><th>time</th><th>process</th><th>message</th></tr>");
    for failure in failures.iter().take(ROWS) {
        let _ = write!(
            out,
            "<tr><td>{}</td><td class=\"name\">{} {}</td><td>{}</td></tr>",
            at(failure.unix_ms),
            escaped(&failure.role),
            escaped(&failure.name),
            escaped(&failure.message)
        );
    }
    out.push_str("</table></div></div>\n");
}
