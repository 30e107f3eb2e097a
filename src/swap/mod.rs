//! The steps in the life of a generation: it fills, is promoted, and is reclaimed. One file for
//! each step.
//!
//! A round of maintenance promotes the next generation if it is time, reclaims old generations, and
//! recovers the files of dead owners, in this order. A manager runs rounds continuously. Other
//! processes run single steps: a generator without a living manager, a generator that ends, a reader
//! whose next generation no other process promotes, `ringreel gc` and `ringreel repair`.
//!
//! Any process may run any step, two processes may run it at once, and it may be repeated. The
//! steps use the filesystem and the coordination store only through their traits. For the reasons
//! behind the steps see `docs/internals/protocol.md`.

pub mod adopt;
pub mod manager;
pub mod orphans;
pub mod promote;
pub mod prune;
pub mod reclaim;
