//! The roles handle SIGTERM from their first action on.

use std::fs;
use std::process::Command;
use testkit::cli::{Place, eventually};

/// The configuration is a named pipe, so each role blocks while it opens its configuration.
#[test]
fn roles_catch_sigterm_before_they_read_the_configuration() {
    let yaml = "DBNAME: demo\nSWAP_CAP: 2\nSAMPLE: [data]\nINDEX: files\n";
    for args in [&["manager"][..], &["generate"], &["put"], &["read"]] {
        let place = Place::verbatim("");
        let pipe = place.path().join("pipe.yaml");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let role = place.start(&[args, &["-c", "pipe.yaml"]].concat());
        eventually("the role catches SIGTERM", || role.catches_sigterm());
        role.terminate();
        fs::write(&pipe, yaml).unwrap();
        assert_eq!(role.finish().code, Some(0), "{args:?}");
    }
}
