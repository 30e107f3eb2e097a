//! The phase of a generation's directory.

use ringreel::layout::GenerationDir;

/// The phase of a generation's directory, which depends only on its name and the newest manifest.
///
/// It does not imply that the generation has a manifest, or that the directory may be removed: a
/// manifest may be lost or pruned, and a reader may still need an old generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The generation is filling: the next one, or the one after it while the next one waits for
    /// its manifest.
    Filling,
    /// The next generation, after its rename and before its manifest.
    Promoting,
    /// A generation that was promoted.
    Promoted,
    /// `write.<n>` of a generation that was promoted, created again by a late mkdir or rename.
    Retired,
    /// The number is too high for the newest manifest: manifests are lost, or the directory is
    /// litter.
    Ahead,
}

impl Phase {
    /// Returns the phase of `dir`, where `next` is the generation after the newest one that has a
    /// manifest.
    pub fn of(dir: GenerationDir, next: u64) -> Phase {
        match dir {
            GenerationDir::Write(n) if n < next => Phase::Retired,
            GenerationDir::Write(n) if n <= next.saturating_add(1) => Phase::Filling,
            GenerationDir::Read(n) if n < next => Phase::Promoted,
            GenerationDir::Read(n) if n == next => Phase::Promoting,
            GenerationDir::Write(_) | GenerationDir::Read(_) => Phase::Ahead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generation 5 is the next one.
    #[test]
    fn phase_depends_on_the_next_generation() {
        let phases = |dir: fn(u64) -> GenerationDir| [4, 5, 6, 7, u64::MAX].map(|n| Phase::of(dir(n), 5));
        let ahead = Phase::Ahead;
        assert_eq!(phases(GenerationDir::Write), [Phase::Retired, Phase::Filling, Phase::Filling, ahead, ahead]);
        assert_eq!(phases(GenerationDir::Read), [Phase::Promoted, Phase::Promoting, ahead, ahead, ahead]);
        assert_eq!(Phase::of(GenerationDir::Write(u64::MAX), u64::MAX), Phase::Filling);
    }
}
