//! The steps in the life of a generation: it fills, is promoted, and is reclaimed. One file for
//! each step.
//!
//! | file | step |
//! |---|---|
//! | [`promote`] | promotes a full generation: renames it and publishes its manifest |
//! | [`promote_partial`] | promotes a generation that is not full |
//! | [`reclaim`] | removes old generations and litter |
//! | [`prune`] | removes old manifests |
//! | [`adopt`] | commits the sealed segments of dead owners |
//! | [`orphans`] | finds segments that would be lost with a directory |
//! | [`maintenance`] | runs a round of these steps |
//! | [`manager`] | the process that runs maintenance continuously |
//!
//! Any process may run any step, two processes may run it at once, and it may be repeated. The
//! steps use the filesystem and the coordination store only through their traits. For the reasons
//! behind the steps see `docs/internals/protocol.md`.

pub mod adopt;
pub mod maintenance;
pub mod manager;
pub mod orphans;
pub mod promote;
pub mod promote_partial;
pub mod prune;
pub mod reclaim;
