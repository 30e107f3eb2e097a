//! The table of members, which can be scrolled and sorted.

use super::state::{Column, Member, State};
use super::view::{Paint, rate};
use crate::humanize::human_seconds;
use crate::output::plain;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table};

/// A column: its name, its sort key, its width, and the smallest width of the view that shows it.
struct Head {
    name: &'static str,
    sort: Option<Column>,
    width: Constraint,
    from: u16,
}

const HEADS: [Head; 7] = [
    Head { name: "role", sort: Some(Column::Role), width: Constraint::Length(9), from: 0 },
    Head { name: "name", sort: Some(Column::Name), width: Constraint::Fill(2), from: 0 },
    Head { name: "host", sort: Some(Column::Host), width: Constraint::Length(16), from: 110 },
    Head { name: "samples", sort: Some(Column::Samples), width: Constraint::Length(9), from: 60 },
    Head { name: "per s", sort: Some(Column::Rate), width: Constraint::Length(7), from: 45 },
    Head { name: "seen", sort: Some(Column::Seen), width: Constraint::Length(8), from: 0 },
    Head { name: "activity", sort: None, width: Constraint::Fill(3), from: 70 },
];

pub fn draw(frame: &mut Frame<'_>, state: &mut State, paint: Paint, area: Rect) {
    state.page = usize::from(area.height.saturating_sub(2)).max(1);
    let members = state.members();
    let scroll = state.scroll.min(members.len().saturating_sub(state.page));
    let (first, last) = (scroll + 1, (scroll + state.page).min(members.len()));
    let title = match members.len() {
        0 => " no members ".to_owned(),
        n if n > state.page => format!(" members {first} to {last} of {n} "),
        n => format!(" {n} members "),
    };
    let shown: Vec<&Head> = HEADS.iter().filter(|head| area.width >= head.from).collect();
    let head = shown.iter().map(|head| {
        let arrow = match head.sort == Some(state.sort) {
            true if state.reversed => "▲",
            true => "▼",
            false => "",
        };
        aligned(head, format!("{}{arrow}", head.name))
    });
    let head = Row::new(head.collect::<Vec<_>>()).style(paint.faint());
    let rows = members.iter().skip(scroll).take(state.page).map(|member| {
        let cells = shown.iter().map(|head| cell(head, member, state, paint));
        let faded = if member.silent { paint.faint() } else { Style::new() };
        Row::new(cells.collect::<Vec<_>>()).style(faded)
    });
    let widths: Vec<Constraint> = shown.iter().map(|head| head.width).collect();
    let table = Table::new(rows.collect::<Vec<_>>(), widths).header(head).block(paint.section(title));
    frame.render_widget(table, area);
    state.scroll = scroll;
}

fn aligned(head: &Head, text: String) -> Line<'static> {
    let is_number = matches!(head.sort, Some(Column::Samples | Column::Rate | Column::Seen));
    if is_number { Line::raw(text).right_aligned() } else { Line::raw(text) }
}

fn cell(head: &Head, member: &Member<'_>, state: &State, paint: Paint) -> Line<'static> {
    let report = &member.status.report;
    let text = match head.sort {
        Some(Column::Role) => {
            let colour = match member.role {
                "manager" => Color::Yellow,
                "generator" => Color::Cyan,
                _ => Color::Magenta,
            };
            return Line::styled(member.role, paint.fg(colour));
        }
        Some(Column::Name) => {
            let leads =
                state.look.as_ref().is_some_and(|look| look.status.manager.as_ref() == Some(&member.status.name));
            let style = if leads { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
            return Line::styled(plain(&member.status.name), style);
        }
        Some(Column::Host) => plain(&report.host),
        Some(Column::Samples) => report.samples.to_string(),
        Some(Column::Rate) => rate(report.per_second),
        Some(Column::Seen) => {
            let text = aligned(head, human_seconds(member.status.silent_seconds));
            return if member.silent { text.style(paint.alarm()) } else { text };
        }
        None => return does(member, paint),
    };
    aligned(head, text)
}

/// Describes the activity of a member, after its last error.
fn does(member: &Member<'_>, paint: Paint) -> Line<'static> {
    let report = &member.status.report;
    let mut spans = Vec::new();
    if let Some(error) = &report.last_error {
        spans.push(Span::styled(format!("{} ", plain(error)), paint.alarm()));
    }
    if let Some(generation) = report.generation {
        spans.push(Span::raw(format!("reading {generation}, {} epochs done ", report.epochs)));
    }
    spans.push(Span::raw(plain(&report.doing)));
    Line::from(spans)
}
