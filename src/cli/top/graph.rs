//! Rates over time: what each swap brought, what is finished now, and what is read.

use super::state::State;
use super::view::{Paint, rate};
use crate::cli::output::human_seconds;
use crate::watch::Look;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};

/// The graph goes back over so many swaps at most, and over so many seconds at least.
const SWAPS: usize = 60;
const SECONDS: f64 = 60.0;

type Points = Vec<(f64, f64)>;

/// Seconds before now (negative), and samples a second.
struct Rates {
    seconds: f64,
    swaps: Points,
    finished: Points,
    read: Points,
}

impl Rates {
    fn of(state: &State, look: &Look) -> Rates {
        let at = |unix_ms: u64| (unix_ms as f64 - look.unix_ms as f64) / 1e3;
        let last = &look.swaps[look.swaps.len().saturating_sub(SWAPS)..];
        let swaps: Points = last.iter().filter_map(|swap| Some((at(swap.unix_ms), swap.samples_per_second?))).collect();
        let seconds = swaps.first().map_or(0.0, |(x, _)| -x).max(SECONDS);
        let live = |of: fn(&super::state::Live) -> Option<f64>| -> Points {
            let points = state.live.iter().filter_map(|live| Some((at(live.unix_ms), of(live)?)));
            points.filter(|(x, _)| *x >= -seconds).collect()
        };
        Rates { seconds, swaps, finished: live(|live| live.finished), read: live(|live| live.read) }
    }

    fn most(&self) -> f64 {
        let all = [&self.swaps, &self.finished, &self.read].into_iter().flatten();
        all.map(|(_, y)| *y).filter(|y| y.is_finite()).fold(0.0, f64::max)
    }
}

pub fn draw(frame: &mut Frame<'_>, state: &State, look: &Look, paint: Paint, area: Rect) {
    if area.width < 20 || area.height < 5 {
        return;
    }
    let rates = Rates::of(state, look);
    let names = [("each swap", Color::Cyan), ("finished", Color::Green), ("read", Color::Magenta)];
    let series = [&rates.swaps, &rates.finished, &rates.read];
    let mut title = vec![Span::raw(" samples/s ")];
    for ((name, colour), points) in names.iter().zip(series) {
        if let Some((_, y)) = points.last() {
            title.push(Span::styled(format!("{name} {} ", rate(*y)), paint.fg(*colour)));
        }
    }
    let block = paint.section(Line::from(title));
    let most = rates.most();
    if most == 0.0 {
        let text = Line::styled("no rate is known before the second swap", paint.faint());
        return frame.render_widget(Paragraph::new(text).block(block), area);
    }
    let kinds =
        [(Marker::Braille, GraphType::Line), (Marker::Dot, GraphType::Scatter), (Marker::Braille, GraphType::Line)];
    let sets = series.iter().zip(names).zip(kinds).map(|((points, (_, colour)), (marker, kind))| {
        Dataset::default().data(points).marker(marker).graph_type(kind).style(paint.fg(colour))
    });
    let faint = |text: String| Span::styled(text, paint.faint());
    let x = Axis::default()
        .bounds([-rates.seconds, 0.0])
        .labels([faint(format!("-{}", human_seconds(rates.seconds))), faint("now".to_owned())])
        .style(paint.faint());
    let y = Axis::default()
        .bounds([0.0, most * 1.05])
        .labels([faint("0".to_owned()), faint(rate(most))])
        .style(paint.faint());
    frame.render_widget(Chart::new(sets.collect()).block(block).x_axis(x).y_axis(y).legend_position(None), area);
}
