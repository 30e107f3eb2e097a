//! Rates over time: delivered by each swap, finished now, and read.

use super::state::State;
use super::view::{Paint, rate};
use crate::humanize::human_seconds;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};
use ringreel_ops::monitor::Observation;

/// The graph covers at most this number of swaps, and at least this number of seconds.
const SWAPS: usize = 60;
const SECONDS: f64 = 60.0;

type Points = Vec<(f64, f64)>;

/// Points of seconds before now (negative), and samples per second.
struct Rates {
    seconds: f64,
    swaps: Points,
    finished: Points,
    read: Points,
}

impl Rates {
    fn of(state: &State, look: &Observation) -> Rates {
        let at = |unix_ms: u64| (unix_ms as f64 - look.unix_ms as f64) / 1e3;
        let last = &look.swaps[look.swaps.len().saturating_sub(SWAPS)..];
        let swaps: Points = last.iter().filter_map(|swap| Some((at(swap.unix_ms), swap.samples_per_second?))).collect();
        let seconds = swaps.first().map_or(0.0, |(x, _)| -x).max(SECONDS);
        let live = |of: fn(&super::state::Rates) -> Option<f64>| -> Points {
            let points = state.live.iter().filter_map(|live| Some((at(live.unix_ms), of(live)?)));
            points.filter(|(x, _)| *x >= -seconds).collect()
        };
        Rates { seconds, swaps, finished: live(|live| live.finished), read: live(|live| live.read) }
    }
}

/// One line or scatter plot.
struct Series {
    name: &'static str,
    colour: Color,
    graph: GraphType,
    points: Points,
}

/// Returns the highest rate that is drawn, and whether higher ones are cut off: two swaps at almost the same time would
/// otherwise flatten all other values.
fn top(all: &[Series]) -> (f64, bool) {
    let mut values: Vec<f64> = all.iter().flat_map(|series| &series.points).map(|(_, y)| *y).collect();
    values.retain(|y| y.is_finite() && *y > 0.0);
    values.sort_by(f64::total_cmp);
    let most = values.last().copied().unwrap_or(0.0);
    let usual = values.get(values.len() / 2).map_or(most, |median| median * 5.0);
    (most.min(usual), most > usual)
}

/// Draws two graphs, one above the other, because the rate of reading may be a hundred times that of generating.
pub fn draw(frame: &mut Frame<'_>, state: &State, look: &Observation, paint: Paint, area: Rect) {
    if area.width < 20 || area.height < 5 {
        return;
    }
    let Rates { seconds, swaps, finished, read } = Rates::of(state, look);
    let generated = [
        Series { name: "each swap", colour: Color::Cyan, graph: GraphType::Line, points: swaps },
        Series { name: "finished", colour: Color::Green, graph: GraphType::Scatter, points: finished },
    ];
    let read = [Series { name: "read", colour: Color::Magenta, graph: GraphType::Line, points: read }];
    let lower = if read[0].points.is_empty() { 0 } else { area.height / 2 };
    let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(lower)]).areas(area);
    draw_one(frame, (&generated, seconds), lower == 0, paint, above);
    draw_one(frame, (&read, seconds), true, paint, below);
}

fn draw_one(frame: &mut Frame<'_>, (all, seconds): (&[Series], f64), has_time: bool, paint: Paint, area: Rect) {
    if area.is_empty() {
        return;
    }
    let mut title = vec![Span::raw(" samples/s: ")];
    for Series { name, colour, points, .. } in all {
        if let Some((_, y)) = points.last() {
            title.push(Span::styled(format!("{name} {} ", rate(*y)), paint.fg(*colour)));
        }
    }
    let block = paint.section(Line::from(title));
    let (most, is_cut) = top(all);
    if most == 0.0 {
        let text = Line::styled("no data yet", paint.faint());
        return frame.render_widget(Paragraph::new(text).block(block), area);
    }
    let below = |points: &Points| points.iter().map(|(x, y)| (*x, y.min(most))).collect::<Points>();
    let points: Vec<Points> = all.iter().map(|series| below(&series.points)).collect();
    let sets = all.iter().zip(&points).map(|(series, points)| {
        let marker = if series.graph == GraphType::Line { Marker::Braille } else { Marker::Dot };
        let set = Dataset::default().data(points).marker(marker).graph_type(series.graph);
        set.style(paint.fg(series.colour))
    });
    let faint = |text: String| Span::styled(text, paint.faint());
    let from = human_seconds(seconds);
    let x = Axis::default().bounds([-seconds, 0.0]).style(paint.faint());
    let x = if has_time { x.labels([faint(format!("-{from}")), faint("now".to_owned())]) } else { x };
    let y = Axis::default().bounds([0.0, most * 1.05]).style(paint.faint());
    let y = y.labels([faint("0".to_owned()), faint(format!("{}{}", if is_cut { ">" } else { "" }, rate(most)))]);
    frame.render_widget(Chart::new(sets.collect()).block(block).x_axis(x).y_axis(y).legend_position(None), area);
}
