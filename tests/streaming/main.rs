//! Streams: workers that read together get the same number of steps, disjoint and complete; reading ahead changes nothing;
//! a slow worker follows the others; a state goes on exactly there; a run can be read once more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod ahead;
#[path = "../common/mod.rs"]
mod common;
mod equal;
mod replay;
mod resume;
mod slow;
#[path = "../stream_support/mod.rs"]
mod support;
