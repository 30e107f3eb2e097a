//! How readers and generators spend their time, as text.

use crate::humanize::human_seconds;
use ringreel::coordination::Report;
use ringreel::times::StreamStats;

/// Returns a share from 0 to 1 as percent.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns how readers spent their time together, as in `trainer starved 38 % of the time`.
pub(crate) fn starved(total: &StreamStats, readers: usize) -> Option<String> {
    let [waited, read, step] = total.shares()?.map(percent);
    let count = if readers == 1 { String::new() } else { format!(" ({readers} readers)") };
    Some(format!("trainer starved {waited} of the time, reading {read}, in its step {step}{count}"))
}

/// Returns how a member spent its time. `None` if it has published no times.
pub(crate) fn of(report: &Report) -> Option<String> {
    let reading = report.reading.as_ref().and_then(reader);
    let generating = report.generating.as_ref().and_then(|times| times.shares());
    let generating = generating.map(|shares| {
        let [made, wrote, room, readers] = shares.map(percent);
        format!("making {made}, writing {wrote}, waiting for room {room}, for readers {readers}")
    });
    reading.or(generating)
}

fn reader(stats: &StreamStats) -> Option<String> {
    let [waited, read, step] = stats.shares()?.map(percent);
    let mut text = format!("starved {waited}, reading {read}, step {step}");
    // The contents of a report are not verified.
    let known = |value: Option<f64>| value.filter(|value| (0.0..1e9).contains(value));
    if let (Some(share), Some(reads)) = (known(stats.share_read), known(stats.reads_per_sample)) {
        text += &format!(", {} of the samples read {reads:.1} times", percent(share));
    }
    if let Some(age) = known(stats.age_seconds) {
        text += &format!(", {} old when read", human_seconds(age));
    }
    Some(text)
}
