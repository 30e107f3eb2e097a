//! The load that a ring puts on its server.

use crate::config_at;
use crate::support::{Kind, Proxy, Server};
use crate::turning::turn;
use std::collections::BTreeMap;
use testkit::ring;

/// Commands that a connection sends for its own purposes.
const OF_THE_DRIVER: [&str; 6] = ["hello", "isMaster", "ismaster", "ping", "endSessions", "buildInfo"];

/// The number of readers in [`turn`].
const READERS: u64 = 2;

fn asked(operations: &BTreeMap<String, u64>) -> u64 {
    operations.iter().filter(|(name, _)| !OF_THE_DRIVER.contains(&name.as_str())).map(|(_, n)| n).sum()
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn segment_costs_at_most_two_operations() {
    for (cap, samples) in [(20, 500), (400, 500)] {
        let server = Server::start(Kind::Good);
        let proxy = Proxy::start(server.address());
        let dir = tempfile::tempdir().unwrap();
        let config = config_at(&proxy.uri(), dir.path(), cap, "");
        let turned = turn(&config, 4, samples, |_| true);
        let operations = proxy.operations();
        let each = asked(&operations) as f64 / turned.finished as f64;
        println!("SWAP_CAP {cap}: {each:.2} operations for each of {} segments: {operations:?}", turned.finished);
        // In addition, readers log their epochs, and managers query which generations readers need.
        let reading = (READERS * 8 * turned.generations) as f64 / turned.finished as f64;
        // All members send and poll heartbeats, at a cost that grows with the run's length.
        let living = 14.0 * turned.seconds / turned.finished as f64;
        assert!(each <= 2.0 + reading + living, "{each} with SWAP_CAP {cap}: {operations:?}");
    }
}

#[test]
#[ignore = "needs a server: scripts/mongodb.sh java"]
fn sixty_four_generators_do_not_overload_one_server() {
    let mut rates = Vec::new();
    for generators in [4, 64] {
        let server = Server::good();
        let dir = ring::scratch();
        let config = config_at(&server.uri(), dir.path(), 500, "");
        let turned = turn(&config, generators, 3200 / generators, |_| true);
        rates.push(turned.finished as f64 / turned.seconds);
        println!("{generators} generators: {:.0} samples/s, {turned:?}", rates.last().unwrap());
        assert_eq!(turned.stray, 0, "the server did not answer in time: {turned:?}");
    }
}
