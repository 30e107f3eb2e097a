//! A sample is written: a generator appends it to a segment, and commits the segment when it is sealed.
//!
//! | file | |
//! |---|---|
//! | [`generator`] | samples in, segments out; waiting where there is no room |
//! | [`commit`] | a sealed segment is linked into the generation that fills, until a manifest lists it |

pub mod commit;
pub mod generator;
