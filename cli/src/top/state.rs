//! The state of `ringreel top`: the last observation and the user's choices. Observations and keys change it, `view`
//! draws it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ringreel::times::{StreamStats, total};
use ringreel_ops::monitor::Observation;
use ringreel_ops::status::{MemberStatus, Status};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of observations whose rates are kept for the graph.
const LIVE: usize = 1000;

/// Time over which the readers' times are compared.
const MINUTE: Duration = Duration::from_secs(60);

/// Rates at one observation, in samples per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub unix_ms: u64,
    /// Finished by all generators since the previous observation.
    pub finished: Option<f64>,
    /// Read by all readers, by their reports.
    pub read: Option<f64>,
}

/// Sort keys of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Role,
    Name,
    Host,
    Samples,
    Rate,
    Seen,
}

impl Column {
    /// In the order of the key `s`.
    pub const ALL: [Column; 6] =
        [Column::Role, Column::Name, Column::Host, Column::Samples, Column::Rate, Column::Seen];

    fn next(self) -> Column {
        let at = Column::ALL.iter().position(|column| *column == self).unwrap_or(0);
        Column::ALL[(at + 1) % Column::ALL.len()]
    }

    /// Compares two members; larger numbers come first.
    fn order(self, a: &Member<'_>, b: &Member<'_>) -> Ordering {
        let (x, y) = (&a.status.report, &b.status.report);
        match self {
            Column::Role => a.role.cmp(b.role),
            Column::Name => Ordering::Equal,
            Column::Host => x.host.cmp(&y.host),
            Column::Samples => y.samples.cmp(&x.samples),
            Column::Rate => y.per_second.total_cmp(&x.per_second),
            Column::Seen => b.status.silent_seconds.total_cmp(&a.status.silent_seconds),
        }
    }
}

/// A member and its role.
pub struct Member<'a> {
    pub role: &'static str,
    pub status: &'a MemberStatus,
    /// Whether it had no heartbeat for a lease.
    pub silent: bool,
}

fn role_of(member: &MemberStatus) -> &str {
    match &*member.report.role {
        role @ ("manager" | "generator") => role,
        _ => "reader",
    }
}

/// Everything that is drawn.
pub struct State {
    /// The ring's directory.
    pub place: String,
    /// Time between two observations.
    pub interval: Duration,
    /// The last successful observation.
    pub look: Option<Arc<Observation>>,
    /// When it arrived.
    pub arrived: Option<Instant>,
    /// When the last observation arrived, successful or not; before the first one, the start.
    pub heard: Instant,
    /// Why the last observation failed.
    pub trouble: Option<String>,
    /// The times that readers reported in the last minute, the oldest first.
    times: VecDeque<(Instant, Vec<(String, StreamStats)>)>,
    /// Rates at the most recent observations.
    pub live: VecDeque<Rates>,
    pub sort: Column,
    pub reversed: bool,
    /// Number of members above the first one that is shown.
    pub scroll: usize,
    /// Number of members that fit on the screen, as drawn last.
    pub page: usize,
    pub paused: bool,
    pub help: bool,
}

impl State {
    pub fn new(place: String, interval: Duration) -> State {
        State {
            place,
            interval,
            look: None,
            arrived: None,
            heard: Instant::now(),
            trouble: None,
            times: VecDeque::new(),
            live: VecDeque::new(),
            sort: Column::Role,
            reversed: false,
            scroll: 0,
            page: 1,
            paused: false,
            help: false,
        }
    }

    /// Takes an observation or an error. After an error, the previous observation stays.
    pub fn arrive(&mut self, seen: Result<Observation, String>) {
        self.heard = Instant::now();
        if self.paused {
            return;
        }
        match seen {
            Err(why) => self.trouble = Some(why),
            Ok(look) => {
                let read = look.status.readers.iter().map(|reader| reader.report.per_second).reduce(|a, b| a + b);
                self.note_times(&look.status.readers, Instant::now());
                let finished = look.speed.map(|speed| speed.samples_per_second);
                self.live.push_back(Rates { unix_ms: look.unix_ms, finished, read });
                if self.live.len() > LIVE {
                    self.live.pop_front();
                }
                (self.look, self.arrived, self.trouble) = (Some(Arc::new(look)), Some(Instant::now()), None);
            }
        }
    }

    /// Keeps the readers' times of one minute.
    fn note_times(&mut self, readers: &[MemberStatus], now: Instant) {
        let stats = |reader: &MemberStatus| Some((reader.name.clone(), reader.report.reading.clone()?));
        self.times.push_back((now, readers.iter().filter_map(stats).collect()));
        while self.times.len() > LIVE || self.times.get(1).is_some_and(|(at, _)| now - *at >= MINUTE) {
            self.times.pop_front();
        }
    }

    /// Returns the times of the readers since the oldest refresh that is kept, added up, and the number of readers.
    /// Before the second report of a reader, its times since its start.
    pub fn reader_times(&self) -> (StreamStats, usize) {
        let (Some((_, first)), Some((_, last))) = (self.times.front(), self.times.back()) else {
            return Default::default();
        };
        let since = |(name, stats): &(String, StreamStats)| {
            let before = first.iter().find(|(known, _)| known == name).map(|(_, before)| before);
            let difference = before.map(|before| StreamStats {
                waited_seconds: stats.waited_seconds - before.waited_seconds,
                read_seconds: stats.read_seconds - before.read_seconds,
                step_seconds: stats.step_seconds - before.step_seconds,
                ..StreamStats::default()
            });
            difference.filter(|stats| stats.shares().is_some()).unwrap_or_else(|| stats.clone())
        };
        let all: Vec<StreamStats> = last.iter().map(since).collect();
        (total(all.iter()), all.len())
    }

    /// Handles a key. Returns true if the program is to end.
    pub fn on_key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let helped = std::mem::take(&mut self.help);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Esc if helped => {}
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('?') | KeyCode::Char('h') | KeyCode::F(1) => self.help = !helped,
            KeyCode::Down | KeyCode::Char('j') => self.scroll_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll_by(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_by(self.page as isize),
            KeyCode::PageUp => self.scroll_by(-(self.page as isize)),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll_by(isize::MAX),
            _ => {}
        }
        false
    }

    /// Scrolls, not beyond the last page.
    fn scroll_by(&mut self, members: isize) {
        let most = self.members().len().saturating_sub(self.page);
        self.scroll = self.scroll.saturating_add_signed(members).min(most);
    }

    /// Returns the members in the selected order.
    pub fn members(&self) -> Vec<Member<'_>> {
        let Some(status) = self.look.as_ref().map(|look| &look.status) else { return Vec::new() };
        let Status { managers, generators, readers, silent, .. } = status;
        let mut members = Vec::new();
        for (role, of_role) in [("manager", managers), ("generator", generators), ("reader", readers)] {
            members.extend(of_role.iter().map(|status| Member { role, status, silent: false }));
            let of_role = silent.iter().filter(|member| role_of(member) == role);
            members.extend(of_role.map(|status| Member { role, status, silent: true }));
        }
        members.sort_by(|a, b| self.sort.order(a, b).then_with(|| a.status.name.cmp(&b.status.name)));
        if self.reversed {
            members.reverse();
        }
        members
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEventState;
    use ringreel::coordination::Report;
    use ringreel_ops::status::WritingStatus;

    fn member(name: &str, host: &str, samples: u64, per_second: f64, silent_seconds: f64) -> MemberStatus {
        let report = Report { host: host.to_owned(), samples, per_second, ..Report::default() };
        MemberStatus { name: name.to_owned(), silent_seconds, starved: None, report }
    }

    fn look(readers: Vec<MemberStatus>) -> Observation {
        let (readers, silent) = readers.into_iter().partition(|reader| reader.silent_seconds < 30.0);
        let writing = WritingStatus { generation: 1, samples: 0, cap: 1, bytes: 0, swapping: false };
        let status = Status {
            ring: "demo.ring".to_owned(),
            ring_id: "id".to_owned(),
            sample: Vec::new(),
            swap_cap: 1,
            validation: 0,
            validation_readable: 0,
            validation_damaged: 0,
            newest: 0,
            newest_age_seconds: None,
            swaps: 0,
            swap_ms_mean: None,
            samples_delivered: 0,
            samples_waiting: 0,
            samples_generated: 0,
            bytes_delivered: 0,
            samples_per_second: None,
            bytes: 0,
            files: 0,
            free_bytes: None,
            free_files: None,
            max_bytes: None,
            generations: Vec::new(),
            missing: Vec::new(),
            reuse: Vec::new(),
            writing,
            manager: None,
            managers: vec![member("m", "c", 7, 0.0, 1.0)],
            generators: vec![member("b", "a", 1, 3.0, 99.0), member("a", "b", 9, 2.0, 2.0)],
            starved: None,
            readers,
            silent,
            index: "files".to_owned(),
            index_away: None,
            failures: Vec::new(),
            quarantined: 0,
        };
        Observation { unix_ms: 1, status, swaps: Vec::new(), speed: None }
    }

    fn state(readers: Vec<MemberStatus>) -> State {
        let mut state = State::new("demo.ring".to_owned(), Duration::from_secs(2));
        state.arrive(Ok(look(readers)));
        state
    }

    fn press(state: &mut State, code: KeyCode) -> bool {
        state.on_key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn names(state: &State) -> String {
        state.members().iter().map(|member| member.status.name.as_str()).collect()
    }

    #[test]
    fn s_selects_the_next_column_and_r_reverses_the_order() {
        let mut state = state(vec![member("r", "d", 2, 50.0, 0.5)]);
        assert_eq!((state.sort, names(&state).as_str()), (Column::Role, "abmr"));
        for (column, order) in [
            (Column::Name, "abmr"),
            (Column::Host, "bamr"),
            (Column::Samples, "amrb"),
            (Column::Rate, "rbam"),
            (Column::Seen, "bamr"),
            (Column::Role, "abmr"),
        ] {
            assert!(!press(&mut state, KeyCode::Char('s')));
            assert_eq!((state.sort, names(&state).as_str()), (column, order));
        }
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(names(&state), "rmba");
    }

    #[test]
    fn members_are_scrolled_to_the_last_page_and_no_further() {
        let mut state = state((0..20).map(|n| member(&format!("r{n}"), "h", n, 0.0, 0.0)).collect());
        state.page = 5; // of 23
        for (key, at) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 6),
            (KeyCode::PageUp, 1),
            (KeyCode::End, 18),
            (KeyCode::PageDown, 18),
            (KeyCode::Up, 17),
            (KeyCode::Home, 0),
            (KeyCode::PageUp, 0),
        ] {
            press(&mut state, key);
            assert_eq!(state.scroll, at, "{key:?}");
        }
    }

    /// The keys q, Escape and Control-C end the view. While the help is open, Escape closes the help instead.
    #[test]
    fn quit_keys_end_the_view_and_escape_closes_the_help_first() {
        let mut state = state(Vec::new());
        press(&mut state, KeyCode::Char('?'));
        assert!(state.help);
        assert!(!press(&mut state, KeyCode::Esc));
        assert!(!state.help);
        assert!(press(&mut state, KeyCode::Esc) && press(&mut state, KeyCode::Char('q')));
        assert!(!press(&mut state, KeyCode::Char('c')) && !press(&mut state, KeyCode::Char('x')));
        assert!(state.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        let (code, modifiers) = (KeyCode::Char('q'), KeyModifiers::NONE);
        let released = KeyEvent { code, modifiers, kind: KeyEventKind::Release, state: KeyEventState::NONE };
        assert!(!state.on_key(released), "releasing a key does nothing");
    }

    #[test]
    fn nothing_changes_while_paused() {
        let mut state = state(Vec::new());
        press(&mut state, KeyCode::Char('p'));
        state.arrive(Ok(look(vec![member("r", "h", 1, 1.0, 0.0)])));
        state.arrive(Err("away".to_owned()));
        assert!(names(&state) == "abm" && state.trouble.is_none());
        press(&mut state, KeyCode::Char('p'));
        state.arrive(Err("away".to_owned()));
        assert!(names(&state) == "abm" && state.trouble.as_deref() == Some("away"), "the observation stays");
        state.arrive(Ok(look(Vec::new())));
        assert_eq!(state.trouble, None);
    }

    /// The first look shows the times since the readers' start, later ones those of the last minute.
    #[test]
    fn reader_times_are_those_of_the_last_minute() {
        let reader = |name: &str, waited_seconds, step_seconds| {
            let stats = StreamStats { waited_seconds, step_seconds, ..StreamStats::default() };
            let mut member = member(name, "h", 1, 1.0, 0.0);
            member.report.reading = Some(stats);
            member
        };
        let (mut state, start) = (State::new("demo.ring".to_owned(), Duration::from_secs(2)), Instant::now());
        assert_eq!(state.reader_times().1, 0);
        state.note_times(&[reader("a", 50.0, 50.0)], start);
        assert_eq!(state.reader_times().0.starved(), Some(0.5));
        state.note_times(&[reader("a", 50.0, 60.0), reader("new", 10.0, 0.0)], start + Duration::from_secs(10));
        assert_eq!((state.reader_times().0.starved(), state.reader_times().1), (Some(0.5), 2));
        state.note_times(&[reader("a", 50.0, 110.0)], start + Duration::from_secs(59));
        assert_eq!(state.reader_times().0.starved(), Some(0.0));
        state.note_times(&[reader("a", 70.0, 120.0)], start + Duration::from_secs(100));
        assert_eq!(state.reader_times().0.starved(), Some(0.25), "since second 10, over a minute ago");
        state.note_times(&[reader("a", 1.0, 1.0)], start + Duration::from_secs(101));
        assert_eq!(state.reader_times().0.starved(), Some(0.5), "a process that has started again");
    }

    #[test]
    fn silent_readers_read_nothing() {
        let reader = |per_second, silent| member("r", "h", 1, per_second, silent);
        let read = |readers| state(readers).live[0].read;
        assert_eq!(read(vec![reader(2.0, 1.0), reader(3.0, 29.0), reader(100.0, 31.0)]), Some(5.0));
        assert_eq!(read(vec![reader(2.0, 60.0)]), None);
        let mut state = state(Vec::new());
        (0..2 * LIVE).for_each(|_| state.arrive(Ok(look(Vec::new()))));
        assert_eq!(state.live.len(), LIVE);
    }
}
