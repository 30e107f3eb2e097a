//! The segment to which a generator appends: how it is written, and when it is complete.

use super::adaptive_compression::AdaptiveCompression;
use super::grouping::Grouping;
use super::schema;
use crate::config::{Compress, Config};
use crate::coordination::PartCompression;
use crate::error::{Error, Result};
use crate::random::random_bytes;
use crate::ring::Ring;
use crate::segment::writer::{StagingOptions, StagingWriter};
use crate::unix_ms;
use ringreel_format::{Meta, PartRef, SampleRef, Schema, SegmentId, SegmentInfo, Value, WriteOptions};
use std::sync::Arc;

/// The open segment, if any, and the rules for the next ones.
pub(crate) struct OpenSegment {
    pub writer: Option<StagingWriter>,
    options: StagingOptions,
    compression: AdaptiveCompression,
    pub grouping: Grouping,
    strict_schema: bool,
    /// Samples written, without those that were discarded.
    pub written: u64,
    /// Samples that were discarded with a segment that could not be completed.
    pub discarded: u64,
}

impl OpenSegment {
    pub fn new(ring: &Ring, config: &Config) -> OpenSegment {
        let wanted = config.compression_of(&ring.descriptor.sample);
        let compress = wanted.iter().map(|wanted| wanted.level()).collect();
        let compression = AdaptiveCompression::new(&ring.descriptor.sample, |n| wanted[n] == Compress::Auto);
        let write = WriteOptions { compress, ..WriteOptions::default() };
        let options = StagingOptions {
            write,
            buffer: config.write_buffer,
            sync: ring.syncs_files(),
            sync_dir: ring.syncs_dirs(),
            settled: Arc::default(),
            dir_syncs: ring.dir_syncs(),
            memory: Arc::default(),
        };
        OpenSegment {
            writer: None,
            options,
            compression,
            grouping: Grouping::new(config, ring.descriptor.swap_cap),
            strict_schema: config.strict_schema,
            written: 0,
            discarded: 0,
        }
    }

    /// Returns whether it has a sample and takes another one.
    pub fn grows(&self) -> bool {
        let grows = |it: &StagingWriter| it.samples() > 0 && !it.is_closed() && !self.grouping.is_complete;
        self.writer.as_ref().is_some_and(grows)
    }

    /// Returns whether a segment is open that must be sealed before the next sample. A segment that could not get its
    /// name, or could not be closed, takes no more samples.
    pub fn takes_no_more(&self) -> bool {
        self.writer.as_ref().is_some_and(|it| it.is_closed() || self.grouping.is_complete)
    }

    /// Returns whether a segment is open that has all its samples.
    pub fn is_complete(&self) -> bool {
        self.writer.is_some() && self.grouping.is_complete
    }

    /// Decides how these parts, and those of later samples, are stored. Returns the decision for each part if one has
    /// changed.
    pub fn choose_compression(&mut self, parts: &[PartRef<'_>]) -> Option<Vec<PartCompression>> {
        if !self.compression.look(parts, &mut self.options.write.compress) {
            return None;
        }
        if let Some(writer) = &mut self.writer {
            writer.compress(&self.options.write.compress);
        }
        Some(self.compression.stored())
    }

    /// Appends a sample. Begins a segment if none is open.
    ///
    /// # Errors
    /// A sample that does not match the schema; filesystem errors. If the contents of the file are unknown after an
    /// error, the segment is discarded.
    pub fn append_sample(&mut self, ring: &Ring, sample: &SampleRef<'_>) -> Result<()> {
        if self.writer.is_none() {
            self.writer = Some(self.begin(ring, sample)?);
        }
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        if let Err(error) = writer.sample(sample) {
            if writer.must_discard() {
                let (gone, lost) = self.throw_away();
                tracing::error!(%error, samples = lost, "discarded a segment; its samples do not count as finished");
                let _ = gone.map(|writer| writer.discard()); // at worst it is litter: it has no sealed name yet
            }
            return Err(error);
        }
        self.written += 1;
        let (samples, bytes) = (writer.samples(), writer.bytes());
        let share = if self.grouping.is_auto { ring.share_of_room() } else { u64::MAX };
        self.grouping.appended(samples, bytes, share, sample.unix_ms);
        Ok(())
    }

    fn begin(&self, ring: &Ring, sample: &SampleRef<'_>) -> Result<StagingWriter> {
        let names = ring.descriptor.sample.iter().map(String::as_str);
        let parts = names.zip(sample.parts).map(|(name, part)| (name, part.dtype.clone(), part.shape.to_vec()));
        let schema = Schema::new(parts).map_err(|error| Error::Sample(error.to_string()))?;
        let mut provenance = Meta::new();
        provenance.set("generator", ring.me.as_str());
        provenance.set("host", rustix::system::uname().nodename().to_string_lossy().as_ref());
        provenance.set("pid", Value::Int(i128::from(std::process::id())));
        let id = SegmentId(random_bytes());
        let born = ring.manifests.newest()? + 1;
        if self.written == 0 && self.grouping.is_auto {
            ring.look_for_room()?;
        }
        if self.written == 0 {
            schema::compare(ring, &schema, born - 1, self.strict_schema)?;
        }
        let info = SegmentInfo { id, born, created_unix_ms: unix_ms(), first_number: self.written, schema, provenance };
        StagingWriter::begin(ring.fs.clone(), &ring.layout, &ring.me, info, &self.options)
    }

    /// Notes that the open segment was sealed.
    pub fn note_sealed(&mut self) {
        self.writer = None;
        self.grouping.reset();
    }

    /// Discards the open segment and counts its samples, which were never finished. Returns both.
    pub fn throw_away(&mut self) -> (Option<StagingWriter>, u64) {
        let gone = self.writer.take();
        let lost = gone.as_ref().map_or(0, StagingWriter::samples);
        self.written -= lost;
        self.discarded += lost;
        self.grouping.reset();
        (gone, lost)
    }
}
