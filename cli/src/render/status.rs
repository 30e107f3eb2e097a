//! Output of `ringreel status`.

use super::times;
use crate::humanize::{counted, human_bytes, human_seconds};
use crate::output::plain;
use ringreel::failure_log::Failure;
use ringreel::times::total;
use ringreel::unix_ms;
use ringreel_ops::status::{GenerationStatus, MemberStatus, ReuseStatus, Status};

/// Returns the lines of `ringreel status`.
pub fn lines(status: &Status) -> Vec<String> {
    let mut out = vec![format!("ring       {} ({})", status.ring, status.sample.join(", "))];
    let writing = &status.writing;
    let state = if writing.swapping { ", being promoted" } else { "" };
    let (generation, samples, cap) = (writing.generation, writing.samples, writing.cap);
    out.push(format!("filling    generation {generation}: {samples} of {cap} samples{state}"));
    match status.newest_age_seconds {
        Some(age) => out.push(format!("newest     generation {}, readable for {}", status.newest, human_seconds(age))),
        None => out.push("newest     none yet; readers wait".to_owned()),
    }
    out.extend(status.generations.iter().map(generation_line));
    if !status.missing.is_empty() {
        out.push(format!("MISSING    generations {:?}, although KEEP covers them", status.missing));
    }
    if !status.reuse.is_empty() {
        let bar = |bar: &ReuseStatus| match bar.passes {
            0 => format!("{} not read", bar.generations),
            1 => format!("{} read once", bar.generations),
            n => format!("{} read {n} times", bar.generations),
        };
        let bars: Vec<String> = status.reuse.iter().map(bar).collect();
        out.push(format!("reuse      generations before the newest: {}", bars.join(", ")));
    }
    if status.validation > 0 {
        let damaged = match status.validation_damaged {
            0 => String::new(),
            n => format!(", {n} damaged"),
        };
        let (there, all) = (status.validation_readable, status.validation);
        out.push(format!("held out   {there} of {all} samples readable{damaged}"));
    }
    out.push(format!(
        "delivered  {} samples in {} swaps since the ring was created",
        status.samples_delivered, status.swaps
    ));
    out.push(format!("waiting    {} finished samples not yet in a readable generation", status.samples_waiting));
    if let Some(rate) = status.samples_per_second {
        out.push(format!("rate       {rate:.2} samples/s over recent swaps"));
    }
    if let Some(swap_ms) = status.swap_ms_mean {
        out.push(format!("swap       {swap_ms:.1} ms on average"));
    }
    let (size, files) = (human_bytes(status.bytes), counted(status.files, "file"));
    out.push(format!("disk       {size} in {files} of the readable generations and the filling one"));
    if status.quarantined > 0 {
        out.push(format!("quarantine {} segments; the reasons are in quarantine/*.why", status.quarantined));
    }
    out.push(format!("index      {}", status.index));
    if let Some(why) = &status.index_away {
        out.push(format!("           UNREACHABLE: {why}; the ring continues without it"));
    }
    let stats = || status.readers.iter().filter_map(|reader| reader.report.reading.as_ref());
    if let Some(text) = times::starved(&total(stats()), stats().count()) {
        out.push(format!("time       {text}"));
    }
    out.extend(members(status));
    if !status.failures.is_empty() {
        out.push(format!("failures   {} most recent", status.failures.len()));
        out.extend(status.failures.iter().map(failure));
    }
    out.iter().map(|text| plain(text)).collect()
}

/// Describes a readable generation in one line.
fn generation_line(generation: &GenerationStatus) -> String {
    let (n, samples, size) = (generation.generation, generation.samples, human_bytes(generation.bytes));
    let (segments, age) = (generation.segments, human_seconds(generation.age_seconds));
    let held_out = match generation.held_out {
        0 => String::new(),
        n => format!(", the first {n} held out"),
    };
    let passes = match generation.passes {
        None => String::new(),
        Some(0) => ", not read".to_owned(),
        Some(1) => ", read once".to_owned(),
        Some(n) => format!(", read {n} times"),
    };
    format!("  read.{n:<6} {samples} samples, {size} in {segments} files, {age} old{held_out}{passes}")
}

/// Lists the members of the ring: the manager that holds the lease, then all members by role.
fn members(status: &Status) -> Vec<String> {
    let mut out = vec![match &status.manager {
        _ if status.index_away.is_some() => "manager    unknown while the index is unreachable".to_owned(),
        Some(manager) => format!("manager    {manager}"),
        None => "manager    none; generators promote full generations".to_owned(),
    }];
    for (role, members) in
        [("managers", &status.managers), ("generators", &status.generators), ("readers", &status.readers)]
    {
        out.push(format!("{role:<10} {}", members.len()));
        out.extend(members.iter().flat_map(member));
    }
    if !status.silent.is_empty() {
        out.push(format!("silent     {} without a heartbeat for a lease", status.silent.len()));
        for silent in &status.silent {
            let mut lines = member(silent).into_iter();
            out.extend(lines.next().map(|line| format!("{line}, {}", silent.report.role)).into_iter().chain(lines));
        }
    }
    out
}

/// Describes a failure in one line: the first line of its message.
fn failure(failure: &Failure) -> String {
    let ago = human_seconds(unix_ms().saturating_sub(failure.unix_ms) as f64 / 1e3);
    let mut lines = failure.message.lines();
    let (what, more) = (lines.next().unwrap_or_default(), if lines.next().is_some() { " ..." } else { "" });
    format!("  {} {}, {ago} ago: {what}{more}", failure.role, failure.name)
}

fn member(member: &MemberStatus) -> Vec<String> {
    let report = &member.report;
    let mut text = format!(
        "  {}: {} samples, {:.2}/s, last heartbeat {} ago",
        member.name,
        report.samples,
        report.per_second,
        human_seconds(member.silent_seconds)
    );
    if let Some(generation) = report.generation {
        text.push_str(&format!(", reading generation {generation} after {} epochs", report.epochs));
    }
    for stored in &report.stored {
        let how = if stored.compressed { "compressed" } else { "not compressed" };
        text.push_str(&format!(", {} {how} ({:.1} to 1)", stored.part, stored.ratio));
    }
    if !report.doing.is_empty() {
        text.push_str(&format!(", {}", report.doing));
    }
    let times = times::of(report).map(|times| format!("    time: {times}"));
    let error = report.last_error.as_ref().map(|error| format!("    last error: {error}"));
    [text].into_iter().chain(times).chain(error).collect()
}
