//! What a generator reports while it works: to the other members in its heartbeat, to people in the log.

use crate::coordination::PartCompression;
use crate::heartbeat::Heartbeat;
use crate::minutely::Minutely;

/// The heartbeat's report and the log lines.
pub(crate) struct StatusLog {
    heartbeat: Heartbeat,
    last_problem: Option<String>,
    /// Limits the log lines about progress.
    lines: Minutely,
}

impl StatusLog {
    pub fn new(heartbeat: Heartbeat) -> StatusLog {
        StatusLog { heartbeat, last_problem: None, lines: Minutely::from_now() }
    }

    /// Logs a problem and reports it, unless it is the same as the one before.
    pub fn problem(&mut self, message: String) {
        if self.last_problem.as_ref() != Some(&message) {
            tracing::warn!("{message}");
            self.heartbeat.report(|report| report.last_error = Some(message.clone()));
            self.last_problem = Some(message);
        }
    }

    /// Reports what the generator waits for.
    pub fn waiting_for(&self, what: &str) {
        self.heartbeat.report(|report| report.doing = format!("waiting for {what}"));
    }

    /// Reports the end of a wait.
    pub fn waits_no_more(&self) {
        self.heartbeat.report(|report| report.doing.clear());
    }

    /// Reports the samples that are finished, and their bytes.
    pub fn finished(&self, samples: u64, bytes: u64) {
        self.heartbeat.report(|report| (report.samples, report.bytes) = (samples, bytes));
    }

    /// Reports which parts are compressed.
    pub fn stored(&self, stored: Vec<PartCompression>) {
        self.heartbeat.report(|report| report.stored = stored);
    }

    /// Returns whether a log line about progress is due. The caller logs it.
    pub fn is_line_due(&mut self) -> bool {
        self.lines.is_due()
    }
}
