//! Output of `ringreel index`.

use ringreel::coordination::{Lease, SwapStatus};
use std::path::Path;

/// The contents of an index.
pub struct Contents<'a> {
    pub place: &'a str,
    pub status: Option<&'a SwapStatus>,
    pub filling: u64,
    pub handed_out: u64,
    pub manager: Option<&'a Lease>,
    pub members: &'a [(String, u64)],
}

/// Describes the contents of an index.
pub fn contents(contents: &Contents<'_>) -> Vec<String> {
    let Contents { place, status, filling, handed_out, manager, members } = contents;
    let status = match status {
        Some(status) => format!("generation {}, {} samples in total", status.generation, status.total_samples),
        None => "no swap yet".to_owned(),
    };
    let manager = match manager {
        Some(lease) if lease.released => format!("none; {} released the lease", lease.holder),
        Some(lease) => format!("{} (token {})", lease.holder, lease.token),
        None => "none; the lease was never taken".to_owned(),
    };
    let mut lines = vec![
        format!("place      {place}"),
        format!("status     {status}"),
        format!("counter    {handed_out} indices handed out in generation {filling}"),
        format!("manager    {manager}"),
        format!("members    {}", members.len()),
    ];
    lines.extend(members.iter().map(|(name, beat)| format!("  {name}: heartbeat {beat}")));
    lines
}

/// Describes a move of the index, and what remains to be done: `setting` is the new value of INDEX in the file `config`,
/// and `using` the number of processes that still use the old index.
pub fn moved(from: &str, to: &str, setting: &str, config: &Path, using: usize) -> Vec<String> {
    let mut lines = vec![
        format!("moved the index from {from} to {to}"),
        format!("set `INDEX: {setting}` in {}, and restart all processes of the ring", config.display()),
    ];
    if using > 0 {
        lines.push(format!(
            "{using} processes still use the old index: no sample is lost, but two managers may be active"
        ));
    }
    lines
}

/// Describes an index that cannot be moved because it cannot be opened.
pub fn cannot_move(error: &ringreel::Error) -> String {
    format!("the index to move cannot be opened ({error}); to rebuild the index in files, run `ringreel repair`")
}
