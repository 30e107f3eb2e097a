//! What the tests against a MongoDB share: servers to start and kill, and a proxy that loses and repeats messages.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod proxy;
mod server;
mod wire;

pub use proxy::{Counts, Faults, Proxy};
pub use server::{Good, Kind, Server};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A port on 127.0.0.1 on which nobody listens.
///
/// It lies below those that Linux gives to connections. Above, a client that tries again and again to reach a server
/// which is down may be given the very port that it connects to, be connected to itself, and keep the server out.
pub fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const PORTS: u32 = 16_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Several test processes run at a time: each begins elsewhere.
    let begin = std::process::id().wrapping_mul(2_654_435_761) >> 8;
    for _ in 0..PORTS {
        let port = FIRST + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port as u16)).is_ok() {
            return port as u16;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + PORTS);
}

/// What keeps a port silent, as long as it lives.
pub struct Blackhole {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

/// A port on 127.0.0.1 to which connections are neither accepted nor refused: a host that does not answer.
pub fn blackhole() -> (Blackhole, u16) {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap();
    // Nobody accepts. When the queue is full, the kernel drops what else comes.
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queued.push(stream);
        assert!(queued.len() < 64, "a queue of length 0 does not fill");
    }
    (Blackhole { _listener: listener, _queued: queued }, address.port())
}
