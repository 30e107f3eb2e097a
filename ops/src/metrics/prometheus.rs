//! Metrics in the Prometheus text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>).
//!
//! Every metric has the label `ring`, the ring's directory, so that one file may contain several rings. Units are seconds,
//! bytes and samples. Unknown values have no line.

use crate::monitor::Observation;
use crate::status::{MemberStatus, Status};
use ringreel::escape::escape;
use ringreel::times::{GeneratorTimes, StreamStats};
use ringreel::unix_ms;
use std::fmt::Write;

/// Media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the metrics of an observation.
#[must_use]
pub fn text(look: &Observation) -> String {
    let status = &look.status;
    let mut text = Text::of(&status.ring, true);
    ring(&mut text, look);
    members(&mut text, status);
    times(&mut text, status);
    text.family("generations_read", "gauge", "Generations before the newest, at most 64, by number of passes.");
    for bar in &status.reuse {
        text.sample(&[("passes", &bar.passes.to_string())], bar.generations as f64);
    }
    text.one("failures", "gauge", "Recorded failures of generators and managers, at most 16.", {
        status.failures.len() as f64
    });
    let newest = status.failures.first().map(|failure| failure.unix_ms as f64 / 1e3);
    text.maybe("last_failure_timestamp_seconds", "Unix time of the most recent failure.", newest);
    text.out
}

/// Returns the metrics for an observation that failed.
#[must_use]
pub fn text_of_failure(ring: &str) -> String {
    Text::of(ring, false).out
}

fn ring(text: &mut Text, look: &Observation) {
    let status = &look.status;
    let whole = |n: u64| n as f64;
    text.one("index_up", "gauge", "Whether the index is reachable.", f64::from(u8::from(status.index_away.is_none())));
    for (name, help, value) in [
        ("samples_delivered_total", "Samples that became readable so far.", status.samples_delivered),
        ("bytes_delivered_total", "Size of all segments that became readable so far.", status.bytes_delivered),
        ("swaps_total", "Generations that became readable so far.", status.swaps),
    ] {
        text.one(name, "counter", help, whole(value));
    }
    for (name, help, value) in [
        ("samples_waiting", "Finished samples not yet in a readable generation.", status.samples_waiting),
        ("newest_generation", "Number of the newest generation.", status.newest),
        ("readable_generations", "Readable generations.", status.generations.len() as u64),
        ("writing_samples", "Samples in the filling generation.", status.writing.samples),
        ("writing_bytes", "Size of the segments in the filling generation.", status.writing.bytes),
        ("swap_cap_samples", "Samples at which a generation is full.", status.swap_cap),
        ("ring_bytes", "Size of the ring's segments on disk.", status.bytes),
        ("ring_files", "Segment files of the ring.", status.files),
        ("quarantined_segments", "Segments in quarantine.", status.quarantined),
    ] {
        text.one(name, "gauge", help, whole(value));
    }
    let last = look.swaps.last();
    for (name, help, value) in [
        (
            "newest_generation_age_seconds",
            "Time since the newest generation became readable.",
            status.newest_age_seconds,
        ),
        (
            "last_swap_timestamp_seconds",
            "Unix time at which the newest generation became readable.",
            last.map(|swap| swap.unix_ms as f64 / 1e3),
        ),
        (
            "last_swap_blocked_seconds",
            "Time for which generators could not commit at the last swap.",
            last.map(|swap| swap.swap_ms / 1e3),
        ),
        (
            "swap_blocked_seconds_mean",
            "Mean time for which generators could not commit at recent swaps.",
            status.swap_ms_mean.map(|ms| ms / 1e3),
        ),
        (
            "samples_per_second",
            "Samples that became readable per second, over recent swaps.",
            status.samples_per_second,
        ),
        ("free_bytes", "Free bytes on the ring's filesystem.", status.free_bytes.map(whole)),
        ("free_files", "Free inodes on the ring's filesystem.", status.free_files.map(whole)),
        ("max_bytes", "Configured maximum size of the ring (MAX_BYTES).", status.max_bytes.map(whole)),
    ] {
        text.maybe(name, help, value);
    }
}

fn members(text: &mut Text, status: &Status) {
    let roles = [("manager", &status.managers), ("generator", &status.generators), ("reader", &status.readers)];
    text.family("members", "gauge", "Live members, by role.");
    for (role, members) in roles {
        text.sample(&[("role", role)], members.len() as f64);
    }
    let silent = "Members without a heartbeat for a lease.";
    text.one("members_silent", "gauge", silent, status.silent.len() as f64);
    let one = u8::from(status.manager.is_some());
    text.one("manager_up", "gauge", "Whether a live manager holds the lease.", f64::from(one));
    type Column = (&'static str, &'static str, &'static str, fn(&MemberStatus) -> f64);
    let columns: [Column; 4] = [
        ("member_silent_seconds", "gauge", "Time since the member's last heartbeat.", |member| member.silent_seconds),
        ("member_samples_total", "counter", "Samples generated, promoted or read.", |m| m.report.samples as f64),
        ("member_bytes_total", "counter", "Bytes generated, promoted or read.", |member| member.report.bytes as f64),
        ("member_samples_per_second", "gauge", "Recent samples per second.", |member| member.report.per_second),
    ];
    for (name, kind, help, value) in columns {
        text.family(name, kind, help);
        for (role, members) in roles {
            for member in members {
                text.sample(&[("role", role), ("name", &member.name), ("host", &member.report.host)], value(member));
            }
        }
    }
}

/// How readers and generators spend their time. Members that have not published it have no line.
fn times(text: &mut Text, status: &Status) {
    type Reader = (&'static str, &'static str, &'static str, fn(&StreamStats) -> Option<f64>);
    let readers: [Reader; 6] = [
        ("reader_waited_seconds_total", "counter", "Time in which the ring had no sample for it.", |s| {
            Some(s.waited_seconds)
        }),
        ("reader_read_seconds_total", "counter", "Time in which its caller waited for samples to be read.", |s| {
            Some(s.read_seconds)
        }),
        ("reader_step_seconds_total", "counter", "Time that its caller used between samples.", |s| {
            Some(s.step_seconds)
        }),
        ("reader_share_read", "gauge", "Distinct samples read, per sample in the generations it read.", |s| {
            s.share_read
        }),
        ("reader_reads_per_sample", "gauge", "Reads of each distinct sample, on average.", |s| s.reads_per_sample),
        ("reader_sample_age_seconds", "gauge", "Age of samples when read, on average, by two machines' clocks.", |s| {
            s.age_seconds
        }),
    ];
    for (name, kind, help, value) in readers {
        let value = |member: &MemberStatus| member.report.reading.as_ref().and_then(value);
        text.per_member((name, kind, help), &status.readers, &value);
    }
    type Generator = (&'static str, &'static str, fn(&GeneratorTimes) -> f64);
    let generators: [Generator; 4] = [
        ("generator_made_seconds_total", "Time that its caller used between calls.", |times| times.made_seconds),
        ("generator_wrote_seconds_total", "Time in calls, without the waits.", |times| times.wrote_seconds),
        ("generator_waited_room_seconds_total", "Time in which it waited for room or a promotion.", |times| {
            times.waited_room_seconds
        }),
        ("generator_waited_readers_seconds_total", "Time in which it waited for readers (REUSE min).", |times| {
            times.waited_readers_seconds
        }),
    ];
    for (name, help, value) in generators {
        let value = |member: &MemberStatus| member.report.generating.as_ref().map(value);
        text.per_member((name, "counter", help), &status.generators, &value);
    }
}

/// A builder of metric families of one ring.
struct Text {
    out: String,
    ring: String,
    family: &'static str,
}

impl Text {
    fn of(ring: &str, is_up: bool) -> Text {
        let mut text = Text { out: String::new(), ring: label_value(ring), family: "" };
        text.one("up", "gauge", "Whether the ring could be observed.", f64::from(u8::from(is_up)));
        let now = unix_ms() as f64 / 1e3;
        text.one("looked_timestamp_seconds", "gauge", "Unix time of this observation.", now);
        text
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        let _ = writeln!(self.out, "# HELP ringreel_{name} {help}\n# TYPE ringreel_{name} {kind}");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.out, "ringreel_{}{{ring=\"{}\"", self.family, self.ring);
        for (name, value) in labels {
            let _ = write!(self.out, ",{name}=\"{}\"", label_value(value));
        }
        let _ = writeln!(self.out, "}} {}", number(value));
    }

    /// A family with one line for each member that has a value.
    fn per_member(
        &mut self,
        (name, kind, help): (&'static str, &str, &str),
        members: &[MemberStatus],
        value: &dyn Fn(&MemberStatus) -> Option<f64>,
    ) {
        self.family(name, kind, help);
        for member in members {
            if let Some(value) = value(member) {
                self.sample(&[("name", &member.name), ("host", &member.report.host)], value);
            }
        }
    }

    fn one(&mut self, name: &'static str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(&[], value);
    }

    fn maybe(&mut self, name: &'static str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.one(name, "gauge", help, value);
        }
    }
}

/// Returns `text` as a label's value: backslash, quote and line feed escaped as the format requires, other control and
/// bidi characters as in the log.
fn label_value(text: &str) -> String {
    let line = |line| escape(line).replace('\\', "\\\\").replace('"', "\\\"");
    text.split('\n').map(line).collect::<Vec<_>>().join("\\n")
}

/// Formats a number as the format requires.
fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".to_owned(),
        v if v.is_infinite() => if v > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_numbers_are_valid() {
        let mut text = Text { out: String::new(), ring: label_value("a\"b\\c\nd"), family: "" };
        text.one("x", "gauge", "Words.", 1e300);
        text.sample(&[("name", "\n")], f64::NEG_INFINITY);
        let lines: Vec<_> = text.out.lines().collect();
        assert_eq!(lines[..2], ["# HELP ringreel_x Words.", "# TYPE ringreel_x gauge"]);
        assert_eq!(lines[2].split_once(' ').map(|(name, _)| name), Some(r#"ringreel_x{ring="a\"b\\c\nd"}"#));
        assert_eq!(lines[3], r#"ringreel_x{ring="a\"b\\c\nd",name="\n"} -Inf"#);
        assert_eq!([number(f64::NAN), number(f64::INFINITY), number(0.25), number(3.0)], ["NaN", "+Inf", "0.25", "3"]);
    }
}
