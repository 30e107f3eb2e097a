//! The command `ringreel`. Everything it does is in the crate `ringreel_cli`, which the Python package runs as well.

use std::process::ExitCode;

fn main() -> ExitCode {
    let code = ringreel_cli::run_from(std::env::args_os().collect());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
