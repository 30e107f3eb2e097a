//! Lines on stdout, and a progress bar on stderr where a person watches.

use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringreel::escape::{escape, is_obeyed, json_text};
use ringreel::humanize::utc;
use ringreel::unix_ms;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Writes one JSON object as a line, at once.
pub fn json_line(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(json_text(value).as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// stderr, for the log: what comes is one event with its end of line. Names out of files may be in it: nothing in them
/// breaks the line, or moves the cursor. Colours, which are set by us, stay where `colours` says so.
pub struct PlainLog {
    /// Whether the sequences that set colours are ours.
    pub colours: bool,
}

impl PlainLog {
    fn plain_event(&self, event: &str) -> String {
        let (body, end) = event.strip_suffix('\n').map_or((event, ""), |body| (body, "\n"));
        let mut out = String::with_capacity(event.len());
        let mut rest = body;
        while let Some(c) = rest.chars().next() {
            let colour = if self.colours { colour(rest) } else { 0 };
            if colour > 0 {
                out.push_str(&rest[..colour]);
            } else if is_obeyed(c) && c != '\t' {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
            rest = &rest[colour.max(c.len_utf8())..];
        }
        if self.colours {
            out.push_str("\u{1b}[0m"); // whatever a name in it may have set
        }
        out + end
    }
}

/// What the log sets: plain, bold, faint, italic, and the colours of its levels.
const SET_BY_US: [&str; 10] = ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"];

/// The length of the sequence that sets a colour with which `text` begins, as the log does it: `ESC [ 31 m`.
fn colour(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let len = numbers.bytes().take_while(u8::is_ascii_digit).count();
    let ours = SET_BY_US.contains(&&numbers[..len]) && numbers[len..].starts_with('m');
    if ours { 2 + len + 1 } else { 0 }
}

/// The log's clock: UTC, ISO 8601, milliseconds. The Python package logs the same.
pub struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let now = unix_ms();
        let (date, time) = utc(now);
        write!(w, "{date}T{time}.{:03}Z", now % 1000)
    }
}

/// The progress bars on the terminal. A line of the log is written while they are hidden.
static BARS: LazyLock<MultiProgress> = LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));

impl Write for PlainLog {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = self.plain_event(&String::from_utf8_lossy(event));
        BARS.suspend(|| io::stderr().write_all(line.as_bytes()))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes one line of text to stdout, escaped: text from the ring cannot break the line.
pub fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", escape(text))
}

/// Whether whoever read our output went away: no failure of ours.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(broken))
}

/// Tells an error, and gives the exit status `code`. A reader of our output that went away is no failure.
pub fn failed(error: &anyhow::Error, code: i32) -> i32 {
    if is_broken_pipe(error) {
        return 0;
    }
    let _ = writeln!(io::stderr(), "ringreel: {}", escape(&in_words(error)));
    code
}

/// Says why something that was asked for makes no sense, or cannot be looked at; the exit status of that.
pub fn refused(why: &str) -> i32 {
    let _ = writeln!(io::stderr(), "ringreel: {}", escape(why));
    2
}

/// What an error says. Ours tell their causes themselves.
pub fn in_words(error: &anyhow::Error) -> String {
    error.downcast_ref::<ringreel::Error>().map_or_else(|| format!("{error:#}"), ToString::to_string)
}

/// A bar on a terminal; nothing elsewhere, and nothing where stdout is for a program that shares the terminal.
pub fn progress(total: Option<u64>, what: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let bar = BARS.add(bar);
    let template = match total {
        Some(_) => "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}",
        None => "{msg} {pos} {per_sec} {spinner}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The same for bytes, whose number is told later.
pub fn progress_bytes(what: &str) -> ProgressBar {
    let bar = progress(Some(0), what);
    if let Ok(style) = ProgressStyle::with_template(
        "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// A path on one line, whatever is in its name.
pub fn plain_path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// A text on one line, whatever is in it.
pub fn plain(text: &str) -> String {
    escape(text).into_owned()
}

/// Tells, on stderr, what is waited for.
pub fn tell(what: &str) {
    tracing::info!("waiting for {what}");
}

/// Returns the file that `-o` names; `None` means stdout, which `-` names as well.
pub fn file_of(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| path.as_os_str() != "-")
}

/// Whether a file may be written there: nothing is written into a ring, and only a file is replaced.
///
/// # Errors
/// In words: why not.
pub fn may_write(path: &Path, ring: &Path) -> anyhow::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = fs::canonicalize(dir).with_context(|| dir.display().to_string())?;
    if fs::canonicalize(ring).is_ok_and(|ring| dir.starts_with(ring)) {
        bail!("{}: this is in the ring, where nothing is written: give another place", path.display());
    }
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => bail!("{}: this is no file: give another name", path.display()),
        _ => Ok(()),
    }
}

/// Writes a file, or replaces it in one step, so that nobody reads half of it.
///
/// # Errors
/// What the system says; what was there is there still.
pub fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(name);
    let _ = fs::remove_file(&new); // left by one of our number who was killed
    let write = || OpenOptions::new().write(true).create_new(true).open(&new)?.write_all(text.as_bytes());
    let done = write().and_then(|()| fs::rename(&new, path));
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done.with_context(|| path.display().to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NASTY: &str = "a\u{1b}[2Jb\u{7f}c\u{9b}31md\u{202e}e\r\nf";

    #[test]
    fn a_line_of_the_log_is_one_line_whatever_names_are_in_it() {
        let log = |colours| PlainLog { colours }.plain_event(&format!("\u{1b}[31mERROR\u{1b}[0m {NASTY}\n"));
        for (colours, first) in [(false, "\\u{1b}[31mERROR"), (true, "\u{1b}[31mERROR\u{1b}[0m ")] {
            let line = log(colours);
            let end = if colours { "f\u{1b}[0m\n" } else { "f\n" };
            assert!(line.starts_with(first) && line.ends_with(end), "{line:?}");
            let named = line.split("ERROR").nth(1).unwrap().trim_end_matches('\n').replace("\u{1b}[0m", "");
            assert!(!named.chars().any(is_obeyed), "{named:?}");
        }
    }
}
