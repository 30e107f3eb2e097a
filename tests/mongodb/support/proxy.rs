//! An unreliable proxy between a client and a server.
//!
//! Each client connection has a separate connection to the server, and two threads, one per direction. Faults affect
//! whole messages.

use super::wire::Message;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The faults from now on. Each probability is from 0 to 1, and is drawn for each request.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The connection is closed, and the server does not see the request.
    pub cut_before: f64,
    /// Limits the number of such cuts; none: unlimited.
    pub cuts: Option<u64>,
    /// The server answers the request, and the connection is closed in place of its reply.
    pub cut_after: f64,
    /// The server gets the request twice; when it has answered both, the client gets the first reply.
    pub duplicate: f64,
    /// After a repeated request, the client gets the second reply, as if the client had repeated it.
    pub second_reply: bool,
    /// Replies are delayed by this time.
    pub delay: (f64, Duration),
    /// Connections are cut, and new ones closed at once.
    pub refuse: bool,
    /// Connections stay open and are accepted, but no message passes in any direction until this ends. Then all of them
    /// pass, also requests whose client has given up.
    pub hang: bool,
    /// The faults with a probability also affect the messages with which drivers greet a server, log in, and check
    /// whether it is alive.
    pub handshakes: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that the server got, each counted once, even if repeated.
    pub passed: u64,
    /// Replies discarded by `cut_after`.
    pub dropped: u64,
    /// Requests that the server got twice.
    pub duplicated: u64,
    /// Connections closed by `cut_before`, `cut_after` and `refuse`.
    pub cut: u64,
    /// Delayed replies.
    pub delayed: u64,
}

/// A port on 127.0.0.1 that forwards to a server. Its connections are cut when this is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    faults: Faults,
    closed: bool,
    random: u64,
    counts: Counts,
    operations: BTreeMap<String, u64>,
    connections: HashMap<u64, Arc<Connection>>,
    next: u64,
}

struct Connection {
    number: u64,
    client: TcpStream,
    server: TcpStream,
    /// What happens to the reply to a request, by the request's id.
    plans: Mutex<HashMap<i32, Plan>>,
}

#[derive(Default)]
struct Plan {
    cut: bool,
    delay: Option<Duration>,
    twin: Option<Twin>,
}

enum Twin {
    /// Keeps this reply until the reply to the second of the two requests has arrived.
    First,
    /// The client knows the request by this id.
    Second { of: i32 },
}

/// Ids of repeated requests are in a separate range, because drivers count from 0.
const COPIES: i32 = 0x7000_0000;

impl Proxy {
    pub fn start(target: SocketAddr) -> Proxy {
        Proxy::start_seeded(target, 0x9e37_79b9_7f4a_7c15)
    }

    /// With one connection, the same seed causes the same faults for the same requests.
    pub fn start_seeded(target: SocketAddr, seed: u64) -> Proxy {
        let port = super::free_port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let state = State {
            faults: Faults::default(),
            closed: false,
            random: seed.max(1),
            counts: Counts::default(),
            operations: BTreeMap::new(),
            connections: HashMap::new(),
            next: 0,
        };
        let shared = Arc::new(Shared { target, state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Proxy { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, faults: Faults) {
        let mut state = self.shared.state.lock().unwrap();
        if faults.refuse {
            state.cut_all();
        }
        state.faults = faults;
        self.shared.changed.notify_all();
    }

    pub fn counts(&self) -> Counts {
        self.shared.state.lock().unwrap().counts
    }

    /// How many requests of each name the server got: `hello`, `findAndModify`, ... A repeated request counts once.
    pub fn operations(&self) -> BTreeMap<String, u64> {
        self.shared.state.lock().unwrap().operations.clone()
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.state.lock().unwrap().connections.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap();
        state.closed = true;
        state.cut_all();
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl State {
    fn cut_all(&mut self) {
        for connection in self.connections.values() {
            connection.close();
        }
        self.counts.cut += self.connections.len() as u64;
        self.connections.clear();
    }

    /// Returns true with this probability. (xorshift64*)
    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (drawn as f64) < probability * (1u64 << 53) as f64
    }

    /// Draws the faults of a request. None: its connection is cut before it.
    fn plan(&mut self, request: &Message, name: &str) -> Option<Plan> {
        let faults = self.faults.clone();
        let mut plan = Plan::default();
        if !is_handshake(name) || faults.handshakes {
            if self.faults.cuts != Some(0) && self.happens(faults.cut_before) {
                self.faults.cuts = self.faults.cuts.map(|left| left - 1);
                return None;
            }
            plan.cut = self.happens(faults.cut_after);
            // A request with any number of replies has no defined first and second reply.
            if self.happens(faults.duplicate) && !request.may_stream() {
                plan.twin = Some(Twin::First);
            }
            if self.happens(faults.delay.0) {
                plan.delay = Some(faults.delay.1);
            }
        }
        Some(plan)
    }
}

impl Connection {
    /// Closes the connection; both of its threads notice at their next read or write.
    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Shared {
    /// Blocks while no message may pass. Returns false if the connection was closed.
    fn may_pass(&self, connection: &Connection) -> bool {
        let state = self.state.lock().unwrap();
        let gone = |state: &State| !state.connections.contains_key(&connection.number);
        let state = self.changed.wait_while(state, |state| state.faults.hang && !gone(state)).unwrap();
        !gone(&state)
    }

    /// Sleeps. Returns false if the connection was closed.
    fn sleep(&self, connection: &Connection, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        let mut state = self.state.lock().unwrap();
        while state.connections.contains_key(&connection.number) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
        false
    }

    /// Closes a connection, after removing it from the list, so that it is never counted as open afterwards.
    fn close(&self, connection: &Connection, as_fault: bool) {
        let mut state = self.state.lock().unwrap();
        let removed = state.connections.remove(&connection.number).is_some();
        state.counts.cut += u64::from(removed && as_fault);
        drop(state);
        connection.close();
        self.changed.notify_all();
    }
}

/// Whether a driver sends this command on its own.
fn is_handshake(name: &str) -> bool {
    ["hello", "isMaster", "saslStart", "saslContinue"].iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let mut state = shared.state.lock().unwrap();
        if state.closed {
            return;
        }
        if state.faults.refuse {
            state.counts.cut += 1;
            continue;
        }
        drop(state);
        // Without a server, the client's connection is closed.
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(shared.target)) else { continue };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);

        let mut state = shared.state.lock().unwrap();
        if state.closed || state.faults.refuse {
            continue;
        }
        let number = state.next;
        state.next += 1;
        let connection = Arc::new(Connection { number, client, server, plans: Mutex::default() });
        state.connections.insert(number, Arc::clone(&connection));
        drop(state);
        for direction in [requests, replies] {
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            thread::spawn(move || {
                direction(&shared, &connection);
                shared.close(&connection, false);
            });
        }
    }
}

/// Forwards requests from the client to the server, until either closes.
fn requests(shared: &Shared, connection: &Connection) {
    let mut copies = COPIES;
    while let Ok(Some(request)) = Message::read(&mut &connection.client) {
        if !shared.may_pass(connection) {
            return;
        }
        let name = request.name();
        let mut state = shared.state.lock().unwrap();
        let Some(mut plan) = state.plan(&request, &name) else {
            drop(state);
            return shared.close(connection, true);
        };
        state.counts.passed += 1;
        state.counts.duplicated += u64::from(plan.twin.is_some());
        state.counts.delayed += u64::from(plan.delay.is_some());
        *state.operations.entry(name).or_default() += 1;
        drop(state);

        let cut_unanswered = plan.cut && !request.has_reply();
        let copy = plan.twin.is_some().then(|| {
            copies += 1;
            request.copy(copies)
        });
        // Before the request is sent, because its reply may be quick.
        if request.has_reply() {
            let mut plans = connection.plans.lock().unwrap();
            let mut last = request.id();
            if let Some(copy) = &copy {
                plans.insert(request.id(), Plan { twin: Some(Twin::First), ..Plan::default() });
                plan.twin = Some(Twin::Second { of: request.id() });
                last = copy.id();
            }
            plans.insert(last, plan);
        }

        for message in [Some(request), copy].into_iter().flatten() {
            if message.write(&mut &connection.server).is_err() {
                return;
            }
        }
        if cut_unanswered {
            return shared.close(connection, true);
        }
    }
}

/// Forwards replies from the server to the client, until either closes.
fn replies(shared: &Shared, connection: &Connection) {
    let mut first = None;
    while let Ok(Some(mut reply)) = Message::read(&mut &connection.server) {
        // A reply that follows another one unrequested answers no request, and has no plan.
        let plan = connection.plans.lock().unwrap().remove(&reply.response_to()).unwrap_or_default();
        match plan.twin {
            None => {}
            Some(Twin::First) => {
                first = Some(reply);
                continue;
            }
            Some(Twin::Second { of }) => {
                reply.set_response_to(of);
                if let Some(first) = first.take()
                    && !shared.state.lock().unwrap().faults.second_reply
                {
                    reply = first;
                }
            }
        }
        if plan.cut {
            shared.state.lock().unwrap().counts.dropped += 1;
            return shared.close(connection, true);
        }
        if plan.delay.is_some_and(|delay| !shared.sleep(connection, delay)) || !shared.may_pass(connection) {
            return;
        }
        if reply.write(&mut &connection.client).is_err() {
            return;
        }
    }
}
