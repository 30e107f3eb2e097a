//! A generation is swapped: it fills, is renamed, gets its manifest, and goes again. One file for each step.
//!
//! | file | step |
//! |---|---|
//! | [`promote`] | a full generation is renamed and gets its manifest |
//! | [`promote_partial`] | a generation that is not full becomes readable |
//! | [`reclaim`] | old generations and litter are removed |
//! | [`prune`] | old manifests are removed |
//! | [`adopt`] | what dead owners finished is committed for them |
//! | [`orphans`] | segments that would be lost with a directory |
//! | [`maintenance`] | a round of these steps |
//! | [`manager`] | the process that keeps a ring turning |
//!
//! Every step may be done by anybody, by two at once, and again. It knows the filesystem and the coordination store by
//! their traits alone. Why the steps are as they are: `docs/internals/protocol.md`.

pub mod adopt;
pub mod maintenance;
pub mod manager;
pub mod orphans;
pub mod promote;
pub mod promote_partial;
pub mod prune;
pub mod reclaim;
