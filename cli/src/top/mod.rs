//! `ringreel top`: a ring on the terminal, live.
//!
//! | file | contents |
//! |---|---|
//! | this one | arguments, the terminal, and the thread that observes the ring |
//! | `state` | observations, and the effects of keys |
//! | `view`, `members`, `graph` | drawing |
//! | `frame` | one frame as text, without a terminal |

mod frame;
mod graph;
mod members;
mod state;
mod view;

use super::RingArgs;
use super::output::line;
use super::signals::{Stop, interval};
use crate::output::refused;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ringreel_ops::monitor::{Observation, Watcher};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use state::State;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

/// Number of swaps that are kept.
const SWAPS: usize = 256;
/// Longest delay until a key, an observation or a signal is noticed.
const TICK: Duration = Duration::from_millis(200);

/// Arguments of `ringreel top`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel top demo.ring                       show the ring live; q quits, ? lists all keys
  ringreel top -c config.yaml --interval 5     refresh every five seconds
  ringreel top demo.ring --once --size 100x30  print one frame as text

Without a terminal, use `ringreel status --watch` or `ringreel metrics`.")]
pub struct Options {
    #[command(flatten)]
    pub ring: RingArgs,
    /// Refresh interval
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,
    /// Print one frame as text and exit
    #[arg(long)]
    pub once: bool,
    /// Size of the frame
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "80x24", requires = "once", value_parser = size)]
    size: (u16, u16),
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let numbers = text.split_once('x').and_then(|(width, height)| width.parse().ok().zip(height.parse().ok()));
    match numbers {
        Some((width @ 1..=1000, height @ 1..=1000)) => Ok((width, height)),
        _ => Err("expected COLUMNSxROWS, as in 100x30, each from 1 to 1000".to_owned()),
    }
}

/// Shows the ring until the user quits, or prints one frame.
pub fn run(options: &Options) -> anyhow::Result<i32> {
    if options.ring.common.json {
        return Ok(refused("top has no JSON output: use `ringreel metrics --json`"));
    }
    let config = options.ring.config()?;
    let colours = std::env::var_os("NO_COLOR").is_none();
    let watcher = Watcher::new(config, SWAPS);
    let mut state = State::new(watcher.place(), options.interval);
    if options.once {
        return once(watcher, &mut state, options.size, colours && io::stdout().is_terminal());
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Ok(refused("top needs a terminal: use `ringreel status --watch` or `ringreel metrics`, or add --once"));
    }
    let stop = Stop::on_all_signals()?;
    let looks = look_in_background(watcher, options.interval)?;
    let mut terminal = ratatui::try_init()?; // from here on, a panic restores the terminal
    let done = show(&mut terminal, &mut state, &looks, &stop, colours);
    let restored = ratatui::try_restore();
    done?;
    restored?;
    Ok(0)
}

/// Prints one frame. Returns 1 if the ring could not be observed; the frame then says why.
fn once(mut watcher: Watcher, state: &mut State, size: (u16, u16), colours: bool) -> anyhow::Result<i32> {
    state.arrive(watcher.look().map_err(|error| error.to_string()));
    for text in frame::lines(state, size, colours)? {
        line(&text)?;
    }
    Ok(i32::from(state.look.is_none()))
}

/// Observations of a background thread. An unresponsive filesystem blocks only that thread, not the display.
struct Looks {
    seen: Receiver<Result<Observation, String>>,
    /// The thread ends when this is dropped.
    _wish: Sender<()>,
}

fn look_in_background(mut watcher: Watcher, interval: Duration) -> io::Result<Looks> {
    let (tell, seen) = sync_channel(1); // bounded, so that a blocked terminal costs no memory
    let (wish, wishes) = channel::<()>();
    std::thread::Builder::new().name("ringreel-top".into()).spawn(move || {
        while tell.send(watcher.look().map_err(|error| error.to_string())).is_ok() {
            match wishes.recv_timeout(interval) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => break,
            }
        }
    })?;
    Ok(Looks { seen, _wish: wish })
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    looks: &Looks,
    stop: &Stop,
    colours: bool,
) -> anyhow::Result<()> {
    while !stop.is_set() {
        looks.seen.try_iter().for_each(|seen| state.arrive(seen));
        terminal.draw(|frame| view::draw(frame, state, colours))?;
        match wait_for_input()? {
            Input::Gone => break,
            Input::None => {}
            Input::Some => {
                if event::poll(Duration::ZERO)?
                    && let Event::Key(key) = event::read()?
                    && state.on_key(key)
                {
                    break;
                }
            }
        }
    }
    Ok(())
}

enum Input {
    None,
    Some,
    /// The terminal was closed.
    Gone,
}

/// Waits for a key or a tick. (After the terminal is closed, `crossterm` would loop without end.)
fn wait_for_input() -> io::Result<Input> {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
    match poll(&mut fds, Some(&tick)) {
        Err(Errno::INTR) | Ok(0) => return Ok(Input::None),
        other => other?,
    };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(if fds[0].revents().intersects(gone) { Input::Gone } else { Input::Some })
}
