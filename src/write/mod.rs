//! Writing samples: a generator appends each sample to a segment, seals the segment and commits it.
//!
//! | file | contents |
//! |---|---|
//! | [`generator`] | writes samples to segments, with backpressure |
//! | [`commit`] | links a sealed segment into the generation that fills, until a manifest lists it |

pub mod commit;
pub mod generator;
