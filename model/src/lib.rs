//! A model of the ring's rules, and the search for counter-examples to them.
//!
//! One segment is followed through the generations, in every order in which the steps of its owner, of those who adopt it
//! and of managers can come, with deaths, late calls, lost replies and old views between any two. What is in it and what
//! is not stands in `docs/internals/model.md`.
//!
//! | file | what it holds |
//! |---|---|
//! | [`state`] | what the model knows at one moment |
//! | [`rules`] | promises, and rules that can be left out |
//! | [`model`] | what may happen next; a run in which nothing goes wrong |
//! | `commit`, `manage` | the steps of committers and managers |
//! | `power` | what reaches the disk, and power cuts |
//! | [`birth`] | two who make one ring |
//! | [`runs`] | readers of a run, and what is kept for them |
//! | [`check`] | the search |

pub mod birth;
pub mod check;
mod commit;
mod manage;
pub mod model;
mod power;
pub mod rules;
pub mod runs;
pub mod state;
