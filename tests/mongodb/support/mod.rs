//! What the MongoDB tests share: servers to start and kill, and a proxy that loses and repeats messages.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod proxy;
mod server;
mod wire;

pub use proxy::{Counts, Faults, Proxy};
pub use server::{Good, Kind, Server};

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A port on 127.0.0.1 without a listener.
///
/// It is below Linux's ephemeral ports. From that range, a client that keeps connecting to a server which is down might
/// get the very port it connects to as its own, connect to itself, and block the server's port.
pub fn free_port() -> u16 {
    const FIRST: u32 = 15_000;
    const PORTS: u32 = 16_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Several test processes run at a time, so each begins with another port.
    let begin = std::process::id().wrapping_mul(2_654_435_761) >> 8;
    for _ in 0..PORTS {
        let port = FIRST + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port as u16)).is_ok() {
            return port as u16;
        }
    }
    panic!("no port from {FIRST} to {} is free", FIRST + PORTS);
}

/// Keeps a port silent until it is dropped.
pub struct Blackhole {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

/// A port on 127.0.0.1 to which connections are neither accepted nor refused, like that of a host that is down.
pub fn blackhole() -> (Blackhole, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // SAFETY: the descriptor is open. A second call shortens the queue.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let address = listener.local_addr().unwrap();
    // Nothing accepts connections. When the queue is full, the kernel drops further ones.
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queued.push(stream);
        assert!(queued.len() < 64, "the accept queue does not fill");
    }
    (Blackhole { _listener: listener, _queued: queued }, address.port())
}
