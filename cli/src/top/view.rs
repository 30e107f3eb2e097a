//! Draws a ring: as much as fits, the most important parts first.

use super::state::State;
use super::{graph, members};
use crate::humanize::{human_bytes, human_seconds};
use crate::output::plain;
use crate::render::times;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, Wrap};
use ringreel_ops::history::Swap;
use ringreel_ops::monitor::Observation;
use ringreel_ops::status::{ReuseStatus, Status, WritingStatus};

/// Below this width, the parts on the right are left out.
const NARROW: u16 = 70;
/// Share of the readers' time without samples from which on the first line is yellow.
const STARVED: f64 = 0.1;
/// Lines of the overview, with its title.
const OVERVIEW: u16 = 9;

/// Styles, with or without colours.
#[derive(Clone, Copy)]
pub struct Paint {
    pub colours: bool,
}

impl Paint {
    pub fn fg(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub fn faint(self) -> Style {
        self.fg(Color::DarkGray)
    }

    /// The style of problems: bold, so that they stand out without colours too.
    pub fn alarm(self) -> Style {
        self.fg(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub fn heading(self) -> Style {
        self.fg(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Returns a section of the view: a rule with a title above it.
    pub fn section<'a>(self, title: impl Into<Line<'a>>) -> Block<'a> {
        Block::new().borders(Borders::TOP).border_style(self.faint()).title(title.into().style(self.heading()))
    }
}

/// Draws the whole view.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, colours: bool) {
    let paint = Paint { colours };
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let trouble = state.trouble.as_ref().map(|trouble| format!("retrying: {}", plain(trouble)));
    // Wrapping between words leaves some space unused.
    let lines = |text: &String| (text.chars().count() * 9).div_ceil(usize::from(area.width) * 8).min(4) as u16;
    let lines = trouble.as_ref().map_or(0, lines);
    let (spent, readers) = state.reader_times();
    let starved = times::starved(&spent, readers).filter(|_| area.height > 6);
    let [first, title, why, body, keys] = Layout::vertical([
        Constraint::Length(u16::from(starved.is_some())),
        Constraint::Length(1),
        Constraint::Length(lines),
        Constraint::Fill(1),
        Constraint::Length(u16::from(area.height > 6)),
    ])
    .areas(area);
    if let Some(text) = starved {
        let hungry = spent.starved().is_some_and(|starved| starved >= STARVED);
        let style = if hungry { paint.fg(Color::Yellow) } else { Style::new() };
        frame.render_widget(Line::styled(format!(" {text}"), style.add_modifier(Modifier::BOLD)), first);
    }
    frame.render_widget(title_line(state, paint, area.width), title);
    let trouble = trouble.map(|text| Paragraph::new(text).wrap(Wrap { trim: true }).style(paint.alarm()));
    frame.render_widget(trouble, why);
    match state.look.clone() {
        None if state.trouble.is_none() => frame.render_widget(Line::raw(" loading ..."), body),
        None => {}
        Some(look) => draw_body(frame, state, &look, paint, body),
    }
    frame.render_widget(key_line(state, paint), keys);
    if state.help {
        draw_help(frame, paint);
    }
}

fn title_line(state: &State, paint: Paint, width: u16) -> Line<'static> {
    let mut right = Vec::new();
    if state.paused {
        right.push(Span::styled(" PAUSED ", paint.fg(Color::Yellow).add_modifier(Modifier::REVERSED)));
    }
    let silent = state.heard.elapsed();
    if silent > state.interval * 2 + std::time::Duration::from_secs(1) {
        let text = format!(" no response for {} ", human_seconds(silent.as_secs_f64()));
        right.push(Span::styled(text, paint.alarm()));
    }
    match (&state.look, state.arrived) {
        (Some(_), Some(at)) if state.trouble.is_some() || state.paused => {
            right.push(Span::raw(format!(" as of {} ago ", human_seconds(at.elapsed().as_secs_f64()))));
        }
        (Some(look), _) => right.push(Span::raw(format!(" {} UTC ", crate::humanize::utc(look.unix_ms).1))),
        _ => {}
    }
    let used: usize = right.iter().map(Span::width).sum();
    let room = usize::from(width).saturating_sub(used);
    let left = fit(&format!(" ringreel  {}", plain(&state.place)), room);
    let gap = " ".repeat(room.saturating_sub(Span::raw(left.as_str()).width()));
    let mut spans = vec![Span::styled(left, paint.heading()), Span::raw(gap)];
    spans.append(&mut right);
    Line::from(spans).style(Style::new().add_modifier(Modifier::BOLD))
}

/// Shortens `text` to `width` columns from the front, because the end of a path matters most.
fn fit(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    std::iter::once('…').take(width.min(1)).chain(text.chars().skip(count - keep)).collect()
}

fn key_line(state: &State, paint: Paint) -> Line<'static> {
    let keys = [("q", "quit"), ("s", "sort"), ("r", "reverse"), ("p", "pause"), ("↑↓", "scroll"), ("?", "help")];
    let mut spans = vec![Span::raw(" ")];
    for (key, what) in keys {
        spans.push(Span::styled(key, paint.fg(Color::Cyan).add_modifier(Modifier::BOLD)));
        spans.push(Span::raw(format!(" {what}   ")));
    }
    spans.push(Span::styled(format!("every {}", human_seconds(state.interval.as_secs_f64())), paint.faint()));
    Line::from(spans)
}

fn draw_body(frame: &mut Frame<'_>, state: &mut State, look: &Observation, paint: Paint, area: Rect) {
    let wide = area.width >= NARROW;
    let failures = match look.status.failures.len() as u16 {
        0 => 0,
        n if area.height >= 20 => 1 + n.min((area.height - 14) / 6),
        _ => 0,
    };
    // Members have priority over swaps, up to their share. On a high screen the graph gets more lines.
    let graph = (area.height.saturating_sub(28) / 3).min(14);
    let rest = area.height.saturating_sub(OVERVIEW + graph + failures);
    let wish = |lines: usize| u16::try_from(lines + 2).unwrap_or(u16::MAX);
    let members = wish(state.members().len()).clamp(rest.min(5), (rest * 6 / 10).max(5));
    let swaps = rest.saturating_sub(members).min(wish(look.swaps.len()));
    let swaps = if swaps < 3 { 0 } else { swaps };
    let overview = OVERVIEW + graph;
    let [overview, swaps, members, failed] = Layout::vertical([
        Constraint::Length(overview),
        Constraint::Length(swaps),
        Constraint::Fill(1),
        Constraint::Length(failures),
    ])
    .areas(area);
    let side = |area: Rect, right: u16| {
        let right = if wide { Constraint::Length(right) } else { Constraint::Length(0) };
        Layout::horizontal([Constraint::Fill(1), right]).spacing(u16::from(wide)).areas::<2>(area)
    };
    let [facts, rates] = side(overview, (area.width / 5 * 2).max(area.width.saturating_sub(80)));
    draw_facts(frame, look, paint, facts);
    graph::draw(frame, state, look, paint, rates);
    let [list, reuse] = side(swaps, 26);
    draw_swaps(frame, look, paint, list);
    draw_reuse(frame, &look.status, paint, reuse);
    members::draw(frame, state, paint, members);
    draw_failures(frame, look, paint, failed);
}

fn draw_facts(frame: &mut Frame<'_>, look: &Observation, paint: Paint, area: Rect) {
    let block = paint.section(format!(" {} ", plain(&look.status.sample.join(", "))));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [gauge, facts] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(inner);
    frame.render_widget(gauge_line(&look.status.writing, paint, gauge.width), gauge);
    frame.render_widget(Paragraph::new(facts_of(look, paint)), facts);
}

/// Draws the fill level of the filling generation as a bar with a label, readable without colours too.
fn gauge_line(writing: &WritingStatus, paint: Paint, width: u16) -> Line<'static> {
    let full = if writing.cap > 0 { writing.samples as f64 / writing.cap as f64 } else { 0.0 };
    let filled = (full.clamp(0.0, 1.0) * f64::from(width)) as usize;
    let state = if writing.swapping { ", being promoted" } else { "" };
    let label = format!(" generation {}: {}/{} samples{state} ", writing.generation, writing.samples, writing.cap);
    let before = usize::from(width).saturating_sub(label.len()) / 2;
    let (bar, bold) = (paint.fg(Color::Blue), Modifier::BOLD);
    let letter = |(x, c): (usize, char)| {
        let in_label = (before..before + label.len()).contains(&x);
        match (in_label, x < filled) {
            (true, true) => Span::styled(c.to_string(), bar.add_modifier(bold | Modifier::REVERSED)),
            (true, false) => Span::styled(c.to_string(), Style::new().add_modifier(bold)),
            (false, true) => Span::styled("█", bar),
            (false, false) => Span::styled("░", paint.faint()),
        }
    };
    let text = format!("{}{label}", " ".repeat(before));
    text.chars().chain(std::iter::repeat(' ')).take(width.into()).enumerate().map(letter).collect()
}

fn facts_of(look: &Observation, paint: Paint) -> Vec<Line<'static>> {
    let status = &look.status;
    let fact =
        |name: &str, text: String| Line::from(vec![Span::styled(format!("{name:<9} "), paint.faint()), text.into()]);
    let newest = status.generations.iter().find(|generation| generation.generation == status.newest);
    let mut lines = vec![match (status.newest_age_seconds, newest) {
        (Some(age), Some(newest)) => {
            let read = newest.passes.map_or(String::new(), |passes| format!(", read {passes}x"));
            fact("newest", format!("generation {}, {} old{read}", newest.generation, human_seconds(age)))
        }
        _ => fact("newest", "none yet; readers wait".to_owned()),
    }];
    let waiting = status.samples_waiting;
    lines.push(fact("delivered", format!("{} samples, {waiting} waiting", status.samples_delivered)));
    let now = look.speed.map_or(String::new(), |speed| format!("; now {}", rate(speed.samples_per_second)));
    let over = status.samples_per_second.map_or("unknown".to_owned(), |per_second| format!("{}/s", rate(per_second)));
    lines.push(fact("rate", format!("{over} over recent swaps{now}")));
    let swap = match (status.swap_ms_mean, look.swaps.last()) {
        (Some(mean), Some(last)) => {
            format!("{}, blocked {:.1} ms, mean {mean:.1} ms", status.swaps, last.swap_ms)
        }
        _ => "none yet".to_owned(),
    };
    lines.push(fact("swaps", swap));
    lines.push(disk(status, paint, &fact));
    lines.push(match &status.index_away {
        Some(why) => Line::styled(format!("index     UNREACHABLE: {}", plain(why)), paint.alarm()),
        None => fact("index", plain(&status.index)),
    });
    lines.push(match &status.manager {
        _ if status.index_away.is_some() => fact("manager", "unknown".to_owned()),
        Some(manager) => fact("manager", plain(manager)),
        None => fact("manager", "none; generators promote".to_owned()),
    });
    if status.quarantined > 0 {
        let text = format!("{} segments in quarantine/", status.quarantined);
        lines.push(Line::styled(text, paint.alarm()));
    }
    lines
}

fn disk(status: &Status, paint: Paint, fact: &impl Fn(&str, String) -> Line<'static>) -> Line<'static> {
    let free = status.free_bytes.map_or(String::new(), |free| format!(", {} free", human_bytes(free)));
    let most = status.max_bytes.map_or(String::new(), |most| format!(" of {}", human_bytes(most)));
    let text = format!("{}{most}{free}, {} files", human_bytes(status.bytes), status.files);
    let tight = status.free_bytes.is_some_and(|free| free < status.bytes / 2)
        || status.max_bytes.is_some_and(|most| status.bytes > most / 10 * 9);
    let line = fact("disk", text);
    if tight { line.style(paint.fg(Color::Yellow)) } else { line }
}

/// Formats a rate with three significant digits.
pub fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r => format!("{r:.2}"),
    }
}

fn draw_swaps(frame: &mut Frame<'_>, look: &Observation, paint: Paint, area: Rect) {
    if look.swaps.is_empty() {
        return;
    }
    let heads = [("swap", 8), ("ago", 9), ("after", 9), ("blocked", 9), ("samples", 9), ("size", 10), ("samples/s", 9)];
    let cells = |swap: &Swap| {
        let ago = look.unix_ms.saturating_sub(swap.unix_ms) as f64 / 1e3;
        [
            swap.generation.to_string(),
            human_seconds(ago),
            swap.seconds.map_or("?".to_owned(), human_seconds),
            format!("{:.1} ms", swap.swap_ms),
            swap.samples.to_string(),
            human_bytes(swap.bytes),
            swap.samples_per_second.map_or("?".to_owned(), rate),
        ]
    };
    let fitting = columns(&heads.map(|(_, width)| width), area.width);
    let right = |texts: &[String]| {
        let cells = texts.iter().take(fitting).map(|text| Line::raw(text.clone()).right_aligned());
        Row::new(cells.collect::<Vec<_>>())
    };
    let head = right(&heads.map(|(name, _)| name.to_owned())).style(paint.faint());
    let rows = look.swaps.iter().rev().take(area.height.into()).map(|swap| right(&cells(swap)));
    let widths = heads.iter().take(fitting).map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths).header(head).block(paint.section(" swaps "));
    frame.render_widget(table, area);
}

/// Returns how many of these columns fit side by side.
pub fn columns(widths: &[u16], room: u16) -> usize {
    let mut used = 0;
    widths
        .iter()
        .take_while(|width| {
            used += *width + 1;
            used <= room + 1
        })
        .count()
}

fn draw_reuse(frame: &mut Frame<'_>, status: &Status, paint: Paint, area: Rect) {
    if area.is_empty() {
        return;
    }
    let block = paint.section(" times read ");
    let bars = bars(&status.reuse, area.height.saturating_sub(1).into());
    let most = bars.iter().map(|(_, generations)| *generations).max().unwrap_or(1);
    let room = u64::from(area.width.saturating_sub(14));
    let bar = |(passes, generations): &(String, u64)| {
        let length = (generations * room).div_ceil(most.max(1)) as usize;
        let blocks = Span::styled("█".repeat(length), paint.fg(Color::Green));
        Line::from(vec![Span::raw(format!("{passes:>9}x ")), blocks, Span::raw(format!(" {generations}"))])
    };
    let mut lines: Vec<Line<'_>> = bars.iter().map(bar).collect();
    if lines.is_empty() {
        lines.push(Line::styled("no data yet", paint.faint()));
    }
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// Returns labels and numbers of generations by how often they were read. If there are more than `most`, groups them
/// by powers of two.
fn bars(reuse: &[ReuseStatus], most: usize) -> Vec<(String, u64)> {
    if reuse.len() <= most {
        return reuse.iter().map(|bar| (bar.passes.to_string(), bar.generations)).collect();
    }
    let mut by_power = std::collections::BTreeMap::<u32, u64>::new();
    for bar in reuse {
        *by_power.entry(u64::BITS - bar.passes.leading_zeros()).or_default() += bar.generations;
    }
    let name = |bits: u32| match bits {
        0 | 1 => bits.to_string(),
        _ => format!("{}-{}", 1u64 << (bits - 1), u64::MAX >> (u64::BITS - bits)),
    };
    by_power.into_iter().map(|(bits, generations)| (name(bits), generations)).collect()
}

fn draw_failures(frame: &mut Frame<'_>, look: &Observation, paint: Paint, area: Rect) {
    let line = |failure: &ringreel::failure_log::Failure| {
        let ago = human_seconds(look.unix_ms.saturating_sub(failure.unix_ms) as f64 / 1e3);
        let text = format!("{} {}, {ago} ago: {}", failure.role, failure.name, failure.message);
        Line::raw(plain(&text))
    };
    let lines: Vec<Line<'_>> = look.status.failures.iter().take(area.height.into()).map(line).collect();
    let title = Span::styled(format!(" failures: {} most recent ", look.status.failures.len()), paint.alarm());
    frame.render_widget(Paragraph::new(lines).block(paint.section(title)), area);
}

fn draw_help(frame: &mut Frame<'_>, paint: Paint) {
    let text = "\
q, Esc, Ctrl-C    quit
s                 sort members by the next column
r                 reverse the order
Up, Down          scroll; also PgUp, PgDn, Home, End
p                 pause or resume
?                 show this help

swap     generation that became readable
after    time since the previous swap
blocked  time for which generators could not commit
seen     time since the last heartbeat";
    let area = frame.area();
    let (width, height) = (area.width.min(54), area.height.min(13));
    let (x, y) = ((area.width - width) / 2, (area.height - height) / 2);
    let area = Rect { x, y, width, height };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys and columns ").border_style(paint.fg(Color::Cyan));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}
