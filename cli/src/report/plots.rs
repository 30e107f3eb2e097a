//! Plots as SVG: axes with units, times in UTC, colours by the page's style sheet.
//!
//! The size of a plot is bounded: many points are thinned out to extremes, so that no peak is lost.

use super::text::escaped;
use crate::humanize::utc;
use std::fmt::Write;

/// Sizes in units of the drawing; the page scales it.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;
/// Number of pieces to which points are thinned out; each piece keeps at most four points.
const PIECES: usize = 150;
/// Most periods that are shaded.
const SHADED: usize = 200;

/// Greater values are drawn at the upper edge.
const MOST: f64 = 1e18;

/// A point: Unix time in milliseconds, and a value. `None` interrupts the line.
pub type Point = (u64, Option<f64>);

/// Values over time.
pub struct Plot<'a> {
    /// Title, for screen readers.
    pub name: &'a str,
    /// The unit of the values.
    pub unit: &'a str,
    /// The points, ordered by time.
    pub points: &'a [Point],
    /// Begin and end of the time axis.
    pub span: (u64, u64),
    /// Periods that are shaded.
    pub shaded: &'a [(u64, u64)],
    /// How its points are drawn.
    pub style: Style,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line.
    Line,
    /// A line, and the area below it.
    Area,
    /// Single dots.
    Dots,
}

struct Scale {
    span: (u64, u64),
    most: f64,
}

impl Scale {
    fn x(&self, unix_ms: u64) -> f64 {
        let of = (self.span.1 - self.span.0).max(1) as f64;
        let share = unix_ms.saturating_sub(self.span.0) as f64 / of;
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value / self.most).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// Plots values over time.
pub fn over_time(plot: &Plot<'_>) -> String {
    let values = plot.points.iter().filter_map(|point| point.1).filter(|value| value.is_finite());
    let greatest = values.fold(0.0, f64::max).min(MOST);
    let step = nice(greatest / 4.0);
    let most = ((greatest / step).ceil() * step).max(step);
    let scale = Scale { span: (plot.span.0, plot.span.1.max(plot.span.0.saturating_add(1))), most };
    let mut out = begin(plot.name);
    for (from, to) in plot.shaded.iter().take(SHADED) {
        let (x, to) = (scale.x(*from), scale.x(*to));
        let _ = write!(
            out,
            "<rect class=\"gap\" x=\"{x:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            (to - x).max(1.0),
            HEIGHT - TOP - BOTTOM
        );
    }
    grid(&mut out, &scale, step);
    times(&mut out, &scale);
    lines(&mut out, plot, &scale);
    let _ = write!(out, "<text class=\"unit\" x=\"{LEFT}\" y=\"8\">{}</text></svg>", escaped(plot.unit));
    out
}

fn begin(name: &str) -> String {
    let name = escaped(name);
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{name}\"><title>{name}</title>")
}

/// Draws a line at each step from zero to the maximum.
fn grid(out: &mut String, scale: &Scale, step: f64) {
    for n in 0..=(scale.most / step).round().min(20.0) as u32 {
        let value = f64::from(n) * step;
        horizontal(out, scale.y(value), &number(value));
    }
}

fn horizontal(out: &mut String, y: f64, label: &str) {
    let _ = write!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
         <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        WIDTH - RIGHT,
        LEFT - 6.0,
        y + 3.5
    );
}

/// Labels the time axis at round times.
fn times(out: &mut String, scale: &Scale) {
    const STEPS: [u64; 22] = [
        1,
        2,
        5,
        10,
        15,
        30,
        60,
        120,
        300,
        600,
        900,
        1800,
        3600,
        7200,
        10_800,
        21_600,
        43_200,
        86_400,
        2 * 86_400,
        7 * 86_400,
        14 * 86_400,
        30 * 86_400,
    ];
    let (from, to) = scale.span;
    let seconds = (to - from) / 1000;
    let last = STEPS[STEPS.len() - 1];
    let step =
        STEPS.into_iter().find(|step| seconds / step <= 4).unwrap_or((seconds / 4 / last + 1).saturating_mul(last));
    let mut at = (from / 1000).div_ceil(step).saturating_mul(step);
    for _ in 0..8 {
        let Some(ms) = at.checked_mul(1000).filter(|ms| *ms <= to) else { return };
        let (date, time) = utc(ms);
        let label = match step {
            ..60 => &time[..],
            60..43_200 => &time[..5],
            _ => &date[5..],
        };
        let x = scale.x(ms);
        let (below, near) = (HEIGHT - BOTTOM, (WIDTH - RIGHT - x < 14.0, x - LEFT < 14.0));
        let anchor = if near.0 {
            "end"
        } else if near.1 {
            "start"
        } else {
            "middle"
        };
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{below}\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>",
            below + 4.0,
            below + 17.0
        );
        at = at.saturating_add(step);
    }
}

fn lines(out: &mut String, plot: &Plot<'_>, scale: &Scale) {
    let base = scale.y(0.0);
    let is_gap = |point: &Point| point.1.is_none_or(|value| !value.is_finite());
    let mut runs: Vec<Vec<(u64, f64)>> = plot
        .points
        .split(is_gap)
        .map(|run| run.iter().filter_map(|(at, value)| Some((*at, (*value)?))).collect())
        .filter(|run: &Vec<_>| !run.is_empty())
        .collect();
    if runs.len() > PIECES {
        runs = vec![runs.concat()]; // such short gaps are not visible
    }
    for points in runs {
        let share = PIECES * points.len() / plot.points.len().max(1);
        let mut path = String::new();
        let points = thinned(&points, share.max(1));
        for (at, value) in &points {
            let _ = write!(path, "{:.1},{:.1} ", scale.x(*at), scale.y(*value));
        }
        let path = path.trim_end();
        match (plot.style, points.first(), points.last()) {
            (Style::Dots, ..) => {
                points.iter().for_each(|point| dot(out, plot, scale, *point));
                continue;
            }
            (Style::Area, Some(first), Some(last)) => {
                let (first, last) = (scale.x(first.0), scale.x(last.0));
                let _ =
                    write!(out, "<polygon class=\"area\" points=\"{first:.1},{base:.1} {path} {last:.1},{base:.1}\"/>");
            }
            _ => {}
        }
        let _ = write!(out, "<polyline class=\"line\" points=\"{path}\"/>");
    }
}

/// Draws one dot, with its value as a tooltip.
fn dot(out: &mut String, plot: &Plot<'_>, scale: &Scale, (at, value): (u64, f64)) {
    let (date, time) = utc(at);
    let _ = write!(
        out,
        "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"><title>{date} {time}: {} {}</title></circle>",
        scale.x(at),
        scale.y(value),
        number(value),
        escaped(plot.unit)
    );
}

/// Keeps at most four points of each piece of time: the first, the least, the greatest and the last.
pub fn thinned(points: &[(u64, f64)], pieces: usize) -> Vec<(u64, f64)> {
    if points.len() <= 4 * pieces {
        return points.to_vec();
    }
    let mut out = Vec::with_capacity(4 * pieces);
    for piece in points.chunks(points.len().div_ceil(pieces)) {
        let by_value = |a: &&(u64, f64), b: &&(u64, f64)| a.1.total_cmp(&b.1);
        let mut kept: Vec<(u64, f64)> =
            [piece.first(), piece.iter().min_by(by_value), piece.iter().max_by(by_value), piece.last()]
                .into_iter()
                .flatten()
                .copied()
                .collect();
        kept.sort_by_key(|point| point.0);
        kept.dedup();
        out.extend(kept);
    }
    out
}

/// Draws labelled bars.
pub fn bars(name: &str, bars: &[(String, u64)]) -> String {
    let mut out = begin(name);
    let greatest = bars.iter().map(|bar| bar.1).max().unwrap_or(0).max(1) as f64;
    let step = nice(greatest / 4.0).max(1.0);
    let scale = Scale { span: (0, 1), most: (greatest / step).ceil() * step };
    grid(&mut out, &scale, step);
    let room = (WIDTH - LEFT - RIGHT) / bars.len().max(1) as f64;
    for (n, (label, count)) in bars.iter().enumerate() {
        let (middle, top, wide) = (LEFT + room * (n as f64 + 0.5), scale.y(*count as f64), (room * 0.7).min(56.0));
        let _ = write!(
            out,
            "<rect class=\"bar\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" rx=\"2\"><title>{}: {count}</title></rect>\
             <text class=\"tick\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            middle - wide / 2.0,
            (HEIGHT - BOTTOM - top).max(0.0),
            escaped(label),
            HEIGHT - BOTTOM + 17.0,
            escaped(label)
        );
    }
    out + "</svg>"
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn nice(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let ten = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * ten).find(|nice| *nice >= value * 0.999).unwrap_or(10.0 * ten)
}

/// Formats a number in few characters.
pub fn number(value: f64) -> String {
    let short = |value: f64| {
        let digits = if value.abs() < 0.1 {
            3
        } else if value.abs() < 10.0 {
            2
        } else {
            1
        };
        let text = format!("{value:.digits$}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        ..1e-3 => format!("{value:.0e}"),
        ..1e4 => short(value),
        ..1e6 => short(value / 1e3) + "k",
        ..1e9 => short(value / 1e6) + "M",
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!([0.7, 3.1, 23.0, 0.012, 0.0].map(nice), [1.0, 5.0, 50.0, 0.02, 1.0]);
        let texts = [0.0, 0.025, 1.5, 250.0, 12_500.0, 3e6].map(number);
        assert_eq!(texts, ["0", "0.025", "1.5", "250", "12.5k", "3M"]);
    }

    #[test]
    fn thinning_keeps_every_peak() {
        let mut points: Vec<(u64, f64)> = (0..100_000).map(|n| (n * 1000, 5.0)).collect();
        points[77_777].1 = 900.0;
        points[33_333].1 = 1.0;
        let few = thinned(&points, PIECES);
        assert!(few.len() <= 4 * PIECES && few.contains(&(77_777_000, 900.0)) && few.contains(&(33_333_000, 1.0)));
        assert!(few.is_sorted_by_key(|point| point.0));
        let plot: Vec<Point> = points.iter().map(|(at, value)| (*at, Some(*value))).collect();
        let plot =
            Plot { name: "a", unit: "s", points: &plot, span: (0, 100_000_000), shaded: &[], style: Style::Area };
        assert!(over_time(&plot).len() < 40_000);
        assert!(over_time(&Plot { style: Style::Dots, ..plot }).len() < 120_000);
    }

    #[test]
    fn extreme_numbers_give_a_valid_plot() {
        for points in [
            &[][..],
            &[(5, Some(1.0))],
            &[(5, None), (u64::MAX, Some(f64::INFINITY))],
            &[(0, Some(f64::MAX)), (0, Some(0.0))],
        ] {
            for span in [(0, 0), (0, u64::MAX), (5, 4)] {
                let svg =
                    over_time(&Plot { name: "<", unit: "&", points, span, shaded: &[(9, 2)], style: Style::Dots });
                assert!(
                    svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"),
                    "{points:?} {span:?}: {svg}"
                );
            }
        }
        assert!(bars("x", &[]).ends_with("</svg>"));
    }
}
