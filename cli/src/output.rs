//! Output: lines on stdout, the log and progress bars on stderr.

use crate::humanize::utc;
use anyhow::{Context, bail};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringreel::escape::{escape, is_obeyed};
use ringreel::unix_ms;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Writes one JSON object as a line, and flushes.
pub fn json_line(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(json_text(value).as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Returns `value` as JSON text on one line. JSON requires escapes only below U+0020; this escapes
/// every character that a terminal would act on. (Such a character can only be in a string.)
pub fn json_text(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if is_obeyed(c) {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

/// The log's writer to stderr. Each write is one event with its line end. Events may contain names from files, so control
/// characters are escaped, except the logger's own colour sequences with `colours`.
pub struct PlainLog {
    /// Whether the logger sets colours.
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
            out.push_str("\u{1b}[0m"); // a name may contain one of the colour sequences
        }
        out + end
    }
}

/// Colour codes of the logger: plain, bold, faint, italic, and those of the levels.
const SET_BY_US: [&str; 10] = ["0", "1", "2", "3", "31", "32", "33", "34", "35", "36"];

/// Returns the length of the logger's colour sequence at the start of `text`, such as `ESC [ 31 m`; 0 if there is none.
fn colour(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let len = numbers.bytes().take_while(u8::is_ascii_digit).count();
    let ours = SET_BY_US.contains(&&numbers[..len]) && numbers[len..].starts_with('m');
    if ours { 2 + len + 1 } else { 0 }
}

/// The log's clock: UTC, ISO 8601, milliseconds, as in the Python package.
pub struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let now = unix_ms();
        let (date, time) = utc(now);
        write!(w, "{date}T{time}.{:03}Z", now % 1000)
    }
}

/// The progress bars on the terminal. They are hidden while a line of the log is written.
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

/// Writes one line of text to stdout. Control characters are escaped, because the text may contain names from the ring.
pub fn line(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{}", escape(text))
}

/// Returns whether the reader of stdout closed the pipe. The command does not report this as a failure.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(broken))
}

/// Prints an error to stderr, and returns the exit status `code`; 0 if the reader of stdout closed the pipe.
pub fn failed(error: &anyhow::Error, code: i32) -> i32 {
    if is_broken_pipe(error) {
        return 0;
    }
    let _ = writeln!(io::stderr(), "ringreel: {}", escape(&in_words(error)));
    code
}

/// Prints why a request is invalid, and returns the exit status 2.
pub fn refused(why: &str) -> i32 {
    let _ = writeln!(io::stderr(), "ringreel: {}", escape(why));
    2
}

/// Returns the text of an error with its causes. The errors of `ringreel` contain their causes already.
pub fn in_words(error: &anyhow::Error) -> String {
    error.downcast_ref::<ringreel::Error>().map_or_else(|| format!("{error:#}"), ToString::to_string)
}

/// Returns a progress bar; a hidden one if stderr is not a terminal.
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

/// Returns a progress bar for a number of bytes that is set later.
pub fn progress_bytes(what: &str) -> ProgressBar {
    let bar = progress(Some(0), what);
    if let Ok(style) = ProgressStyle::with_template(
        "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
    ) {
        bar.set_style(style);
    }
    bar
}

/// Returns a path as text on one line, with control characters escaped.
pub fn plain_path(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Returns a text on one line, with control characters escaped.
pub fn plain(text: &str) -> String {
    escape(text).into_owned()
}

/// Logs what the command waits for.
pub fn tell(what: &str) {
    tracing::info!("waiting for {what}");
}

/// Returns the file that `-o` names; `None` means stdout, also for `-`.
pub fn file_of(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| path.as_os_str() != "-")
}

/// Checks that a file may be written at `path`: not inside a ring, and only in place of a regular file.
///
/// # Errors
/// The path is inside the ring, is not a regular file, or its directory is missing.
pub fn may_write(path: &Path, ring: &Path) -> anyhow::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = fs::canonicalize(dir).with_context(|| dir.display().to_string())?;
    if fs::canonicalize(ring).is_ok_and(|ring| dir.starts_with(ring)) {
        bail!("{} is in the ring: write the file to another directory", path.display());
    }
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => bail!("{} exists and is not a regular file: use another name", path.display()),
        _ => Ok(()),
    }
}

/// Writes or replaces a file in one step, so that no process reads half of it.
///
/// # Errors
/// The system's error; an existing file is then unchanged.
pub fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(name);
    let _ = fs::remove_file(&new); // left by a killed process with the same process id
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
    fn json_is_escaped_and_parses_to_the_same_value() {
        let value = serde_json::json!({ NASTY: [NASTY, "\u{1f600}\u{e9}"] });
        let text = json_text(&value);
        assert!(!text.contains(is_obeyed), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn log_lines_escape_control_characters_of_names() {
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
