//! A model of the ring's rules, and the search for counter-examples to them.
//!
//! The model follows one segment through the generations, in every order of the steps of its owner, of adopters and of
//! managers, with deaths, late calls, lost replies and stale views between any two steps. `docs/internals/model.md`
//! lists what the model includes and omits.
//!
//! | file | contents |
//! |---|---|
//! | [`state`] | the state at one moment |
//! | [`rules`] | properties, and rules that can be omitted |
//! | [`model`] | possible next steps; a run without faults |
//! | `commit`, `manage` | the steps of committers and managers |
//! | `power` | what reaches the disk, and power cuts |
//! | [`creation`] | two concurrent creators of one ring |
//! | [`runs`] | readers of a run, and the generations kept for them |
//! | [`check`] | the search |

pub mod check;
mod commit;
pub mod creation;
mod manage;
pub mod model;
mod power;
pub mod rules;
pub mod runs;
pub mod state;
