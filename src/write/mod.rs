//! Writing samples: a generator appends each sample to a segment, seals the segment and commits it.

pub mod generator;
