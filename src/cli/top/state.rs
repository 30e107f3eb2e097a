//! What `ringreel top` knows and what its user wants to see: changed by looks that arrive and by keys, drawn by `view`.

use crate::status::{MemberStatus, Status};
use crate::watch::Look;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Looks whose rates are kept for the graph.
const LIVE: usize = 1000;
/// A member that was silent for so many leases is not counted among those that do something.
const SILENT_LEASES: u32 = 3;

/// Rates at one look, in samples a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Live {
    pub unix_ms: u64,
    /// Finished by all generators since the look before.
    pub finished: Option<f64>,
    /// Read by all readers, as they say.
    pub read: Option<f64>,
}

/// By what members are sorted.
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

    /// Which of two comes first: of numbers, the larger one.
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

/// One who takes part.
pub struct Member<'a> {
    pub role: &'static str,
    pub status: &'a MemberStatus,
}

/// All of it.
pub struct State {
    /// The ring's directory.
    pub place: String,
    /// Time between two looks.
    pub interval: Duration,
    /// After this time without a sign of life somebody counts as silent.
    pub lease: Duration,
    /// The last look that saw something.
    pub look: Option<Arc<Look>>,
    /// When it arrived.
    pub arrived: Option<Instant>,
    /// When any arrived, or when the first one was begun.
    pub heard: Instant,
    /// Why the last look saw nothing.
    pub trouble: Option<String>,
    /// Rates at the last looks.
    pub live: VecDeque<Live>,
    pub sort: Column,
    pub reversed: bool,
    /// Members above the first one that is shown.
    pub scroll: usize,
    /// Members for which there is room, as they were drawn last.
    pub page: usize,
    pub paused: bool,
    pub help: bool,
}

impl State {
    pub fn new(place: String, interval: Duration, lease: Duration) -> State {
        State {
            place,
            interval,
            lease,
            look: None,
            arrived: None,
            heard: Instant::now(),
            trouble: None,
            live: VecDeque::new(),
            sort: Column::Role,
            reversed: false,
            scroll: 0,
            page: 1,
            paused: false,
            help: false,
        }
    }

    /// A look arrived; or why it saw nothing. What was seen before stays.
    pub fn arrive(&mut self, seen: Result<Look, String>) {
        self.heard = Instant::now();
        if self.paused {
            return;
        }
        match seen {
            Err(why) => self.trouble = Some(why),
            Ok(look) => {
                let read = look.status.readers.iter().filter(|reader| !self.is_silent(reader));
                let read = read.map(|reader| reader.report.per_second).reduce(|a, b| a + b);
                let finished = look.speed.map(|speed| speed.samples_per_second);
                self.live.push_back(Live { unix_ms: look.unix_ms, finished, read });
                if self.live.len() > LIVE {
                    self.live.pop_front();
                }
                (self.look, self.arrived, self.trouble) = (Some(Arc::new(look)), Some(Instant::now()), None);
            }
        }
    }

    /// Whether so long ago was its last sign of life that nothing of it can be said.
    pub fn is_silent(&self, member: &MemberStatus) -> bool {
        member.silent_seconds > (self.lease * SILENT_LEASES).as_secs_f64()
    }

    /// True: it is to end.
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

    /// Never beyond the last page.
    fn scroll_by(&mut self, members: isize) {
        let most = self.members().len().saturating_sub(self.page);
        self.scroll = self.scroll.saturating_add_signed(members).min(most);
    }

    /// Who takes part, in the order that was asked for.
    pub fn members(&self) -> Vec<Member<'_>> {
        let Some(Status { managers, generators, readers, .. }) = self.look.as_ref().map(|look| &look.status) else {
            return Vec::new();
        };
        let mut members = Vec::new();
        for (role, of_role) in [("manager", managers), ("generator", generators), ("reader", readers)] {
            members.extend(of_role.iter().map(|status| Member { role, status }));
        }
        members.sort_by(|a, b| self.sort.order(a, b).then_with(|| a.status.name.cmp(&b.status.name)));
        if self.reversed {
            members.reverse();
        }
        members
    }
}
