//! Detects the graphics protocols of the terminal, by the environment and, for sixels, by a query.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// How a picture is shown in a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphics {
    Kitty,
    Sixel,
    Blocks,
}

/// Longest time for the terminal to reply.
const PATIENCE: Duration = Duration::from_millis(300);
/// Most bytes of the reply.
const ANSWER: usize = 256;
/// Assumed width of a column in pixels if the terminal does not report it.
const COLUMN: u32 = 9;

/// Returns the best graphics protocol of the terminal on stdout.
///
/// # Errors
/// Stdout is not a terminal, or has no colours.
pub fn graphics() -> anyhow::Result<Graphics> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let term = variable("TERM");
    if !io::stdout().is_terminal() {
        anyhow::bail!("stdout is not a terminal: write a file with -o FILE.png");
    }
    // A multiplexer does not pass on the graphics of kitty.
    let is_inside = ["tmux", "screen"].iter().any(|name| term.starts_with(name));
    let program = variable("TERM_PROGRAM");
    let speaks_kitty = !variable("KITTY_WINDOW_ID").is_empty()
        || term == "xterm-kitty"
        || term == "xterm-ghostty"
        || program == "ghostty"
        || program == "WezTerm";
    if speaks_kitty && !is_inside {
        return Ok(Graphics::Kitty);
    }
    if term != "dumb" && has_sixels() {
        return Ok(Graphics::Sixel);
    }
    if term.is_empty() || term == "dumb" || std::env::var_os("NO_COLOR").is_some() {
        anyhow::bail!("this terminal has no colours: write a file with -o FILE.png, or add --as blocks");
    }
    Ok(Graphics::Blocks)
}

/// Returns the columns of the terminal on stdout, which are the pixels of a picture in half blocks.
pub fn columns() -> u32 {
    tcgetwinsize(io::stdout()).ok().map(|size| u32::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(80)
}

/// Returns the width of the terminal on stdout in pixels, at most that of a sheet.
pub fn pixels() -> u32 {
    let told = tcgetwinsize(io::stdout()).ok().map(|size| u32::from(size.ws_xpixel)).filter(|pixels| *pixels > 0);
    told.unwrap_or_else(|| columns() * COLUMN).clamp(320, 1200)
}

/// Returns whether the terminal supports sixels: its device attributes (`CSI c`) contain 4.
fn has_sixels() -> bool {
    ask().is_ok_and(|answer| says_sixels(&answer))
}

fn says_sixels(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let attributes = text.split_once("\x1b[?").and_then(|(_, rest)| rest.split_once('c'));
    attributes.is_some_and(|(attributes, _)| attributes.split(';').skip(1).any(|one| one == "4"))
}

/// Restores the terminal's mode when dropped.
struct Quiet<'a>(&'a File, Termios);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.0, OptionalActions::Now, &self.1);
    }
}

fn ask() -> io::Result<Vec<u8>> {
    let mut terminal = File::options().read(true).write(true).open("/dev/tty")?;
    if tcgetpgrp(&terminal)? != rustix::process::getpgrp() {
        return Err(io::Error::other("in the background, where changing the terminal would stop the process"));
    }
    let handle = terminal.try_clone()?;
    let before = tcgetattr(&handle)?;
    let mut mode = before.clone();
    mode.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    let quiet = Quiet(&handle, before);
    tcsetattr(quiet.0, OptionalActions::Now, &mode)?;
    terminal.write_all(b"\x1b[c")?;
    let (begun, mut answer) = (Instant::now(), Vec::new());
    while answer.len() < ANSWER && !answer.ends_with(b"c") {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        let left = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        if poll(&mut [PollFd::new(&terminal, PollFlags::IN)], Some(&left))? == 0 {
            break;
        }
        let mut some = [0; 64];
        match terminal.read(&mut some)? {
            0 => break,
            n => answer.extend_from_slice(&some[..n]),
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_attributes_show_support_for_sixels() {
        for (answer, draws) in [
            (&b"\x1b[?62;4;22c"[..], true),  // xterm as a VT340
            (b"\x1b[?63;1;2;4c", true),      // foot
            (b"\x1b[?6c", false),            // the Linux console
            (b"\x1b[?4c", false),            // the first number is the terminal's class
            (b"\x1b[?65;1;9;14;22c", false), // 14 is not 4
            (b"q\x1b[?62;4c", true),         // after a key press
            (b"", false),
        ] {
            assert_eq!(says_sixels(answer), draws, "{:?}", String::from_utf8_lossy(answer));
        }
    }
}
