//! A golden segment with every single bit flipped, and truncated at every byte: all damage is detected, and salvage
//! loses only what the damage touched.

use super::common::{MAX_PART, check, info, noise};
use bytes::Bytes;
use ringreel_format::recordio::{RecordReader, ResyncItem, ResyncReader};
use ringreel_format::segment::head::PartPlace;
use ringreel_format::segment::salvage::{Salvage, SalvageItem};
use ringreel_format::segment::walk::SegmentWalk;
use ringreel_format::{
    DType, Meta, PartRef, ReadOptions, SampleRef, Schema, SegmentSlice, SegmentWriter, WriteOptions,
};
use std::ops::Range;

/// A written sample, and where its bytes are.
struct Model {
    /// The frames of its head.
    head: Range<u64>,
    /// For each part its bytes and where they are. Inline parts are in the head.
    parts: Vec<(Vec<u8>, Range<u64>)>,
    end: u64,
}

/// Six samples, 5 KiB or more in total: inline, large, compressed, split and empty parts, and meta.
fn golden() -> (Vec<u8>, Vec<Model>) {
    let schema = Schema::new([
        ("data", DType::U8, vec![300]),
        ("packed", DType::U8, vec![400]),
        ("label", DType::Bytes, vec![0]),
    ]);
    let options = WriteOptions { compress: vec![None, Some(3), None], inline_max: 64 };
    let mut file = Vec::new();
    let mut writer = SegmentWriter::begin(&mut file, info(schema.unwrap()), options).unwrap();
    let mut contents = Vec::new();
    for n in 0..6u32 {
        let parts = [
            noise(300 + 77 * n as usize, n + 1),
            (0..400).map(|i| (i / 7 * n) as u8).collect(),
            noise(n as usize * 20, n + 50),
        ];
        let mut meta = Meta::new();
        meta.set("seed", u64::from(n));
        let shapes = parts.each_ref().map(|part| [part.len() as u64]);
        let refs = [0, 1, 2].map(|k| {
            let dtype = if k == 2 { DType::Bytes } else { DType::U8 };
            PartRef::new(dtype, &shapes[k], &parts[k])
        });
        writer.sample(&mut file, &SampleRef { parts: &refs, meta: &meta, unix_ms: 1_000 + u64::from(n) }).unwrap();
        contents.push(parts);
    }
    writer.finish(&mut file).unwrap();
    assert!(file.len() >= 5 << 10, "{}", file.len());
    let mut walk = SegmentWalk::new(&file[..], MAX_PART).unwrap();
    let mut models = Vec::new();
    while let Some(sample) = walk.next().unwrap() {
        let head = sample.head;
        let first = head.parts.iter().find_map(|part| match &part.place {
            PartPlace::Large { records, .. } => Some(records.frames().start),
            PartPlace::Inline(_) => None,
        });
        // The pad between the head and the first large part belongs to neither.
        let head_end = first.map_or(head.end, |_| head.at + head_len(&file, head.at));
        let place = |place: &PartPlace| match place {
            PartPlace::Inline(_) => head.at..head_end,
            PartPlace::Large { records, .. } => records.frames(),
        };
        let parts = contents[models.len()].iter().cloned().zip(head.parts.iter().map(|part| place(&part.place)));
        models.push(Model { head: head.at..head_end, parts: parts.collect(), end: head.end });
    }
    (file, models)
}

fn head_len(file: &[u8], at: u64) -> u64 {
    ringreel_format::frame::read_record(file, at as usize, 0).unwrap().next as u64 - at
}

/// Checks the result of salvage if only the bytes in `damage` differ from the original.
fn salvage_loses_only_what_was_touched(file: Vec<u8>, models: &[Model], damage: Range<u64>) -> (usize, usize) {
    let touched = |place: &Range<u64>| place.start < damage.end && damage.start < place.end;
    let len = file.len() as u64;
    let (mut samples, mut covered, mut last) = (vec![None; models.len()], false, 0);
    let (mut given, mut skipped) = (0, 0);
    for found in Salvage::new(file.into(), ReadOptions::default()) {
        match found {
            SalvageItem::Skipped(region) => {
                assert!(
                    last <= region.begin && region.begin <= region.end && region.end <= len,
                    "{damage:?}: {region:?}"
                );
                last = region.end;
                covered |= region.begin <= damage.start && damage.start < region.end || damage.start == len;
                skipped += 1;
            }
            SalvageItem::Sample(sample) => {
                let model = &models[sample.ordinal as usize];
                assert_eq!(model.head.start, sample.at);
                for (part, (bytes, place)) in sample.parts.iter().zip(&model.parts) {
                    match part {
                        Ok(part) => assert_eq!(part.data().unwrap(), bytes, "{damage:?}: other bytes"),
                        Err(error) => assert!(touched(place), "{damage:?}: lost a part at {place:?}: {error}"),
                    }
                }
                samples[sample.ordinal as usize] = Some(());
                given += 1;
            }
        }
    }
    assert!(covered, "{damage:?} is in no reported region");
    for (ordinal, model) in models.iter().enumerate() {
        assert!(samples[ordinal].is_some() || touched(&model.head), "{damage:?}: lost sample {ordinal}");
    }
    (given, skipped)
}

#[test]
fn flipped_bits_are_detected_and_lose_only_what_they_touch() {
    let (file, models) = golden();
    check(&file).unwrap();
    let (mut flips, mut lost, mut whole) = (0, 0, 0);
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&damaged).is_err(), "bit {bit}");
        assert!(SegmentWalk::new(&damaged[..], MAX_PART).and_then(walk_all).is_err(), "bit {bit}, as a stream");
        let at = (bit / 8) as u64;
        let (given, _) = salvage_loses_only_what_was_touched(damaged, &models, at..at + 1);
        flips += 1;
        lost += usize::from(given < models.len());
        whole += usize::from(given == models.len());
    }
    println!(
        "golden segment of {} bytes, {} samples: {flips} bits flipped, {flips} detected; {lost} lose one sample, {whole} lose none",
        file.len(),
        models.len()
    );
}

#[test]
fn truncations_are_detected_and_lose_only_what_they_touch() {
    let (file, models) = golden();
    let mut cuts = 0;
    for len in 0..file.len() {
        let cut = &file[..len];
        assert!(check(cut).is_err(), "cut at {len}");
        assert!(SegmentSlice::open(Bytes::copy_from_slice(cut)).is_err(), "cut at {len}");
        if len as u64 >= models[0].head.start {
            salvage_loses_only_what_was_touched(cut.to_vec(), &models, len as u64..file.len() as u64);
        } else {
            // The header is damaged and the footer is missing: salvage reports that it cannot interpret the bytes.
            let found = Salvage::new(Bytes::copy_from_slice(cut), ReadOptions::default()).collect::<Vec<_>>();
            assert!(matches!(&found[..], [SalvageItem::Skipped(region)] if region.end == len as u64), "{found:?}");
        }
        cuts += 1;
    }
    println!("golden segment of {} bytes: {cuts} truncations, {cuts} detected; no whole sample lost", file.len());
    assert!(models.windows(2).all(|pair| pair[0].end == pair[1].head.start));
}

#[test]
fn intact_segments_are_salvaged_completely() {
    let (file, models) = golden();
    let found = Salvage::new(file.clone().into(), ReadOptions::default()).collect::<Vec<_>>();
    assert_eq!(found.len(), models.len());
    assert!(found.iter().all(|found| matches!(found, SalvageItem::Sample(_))));
    let footer = models.last().unwrap().end as usize;
    let found = Salvage::new(file[..footer].to_vec().into(), ReadOptions::default()).collect::<Vec<_>>();
    assert_eq!(found.len(), models.len() + 1);
    assert!(matches!(found.last(), Some(SalvageItem::Skipped(region)) if region.begin == footer as u64));
}

#[test]
fn head_moved_from_another_place_or_segment_is_refused() {
    let (file, models) = golden();
    let head = |n: usize| models[n].head.start as usize..models[n].head.end as usize;
    // Sample 1's head over the beginning of sample 3 has a wrong offset, so only sample 3 is damaged.
    let (from, to) = (head(1), head(3).start);
    let mut moved = file.clone();
    moved.copy_within(from.clone(), to);
    salvage_loses_only_what_was_touched(moved, &models, to as u64..(to + from.len()) as u64);
    // The same offset in a segment with another id.
    let mut other = file.clone();
    let id = file.windows(16).position(|bytes| bytes == b"0123456789abcdef").unwrap();
    other[id] ^= 1;
    let strange = Salvage::new(other.into(), ReadOptions::default()).next();
    assert!(matches!(strange, Some(SalvageItem::Skipped(_))), "{strange:?}");
}

#[test]
fn resynchronising_readers_lose_no_untouched_record() {
    let (file, _) = golden();
    let mut records = Vec::new();
    let mut reader = RecordReader::over(&file);
    while let Some(record) = reader.next().unwrap() {
        records.push((record.at..record.end, record.payload.to_vec()));
    }
    let survivors = |damaged: &[u8], damage: Range<u64>| {
        let (mut reader, mut pos) = (ResyncReader::over(damaged), 0);
        let (mut found, mut skipped) = (Vec::new(), 0);
        while let Some(next) = reader.next().unwrap() {
            let (begin, end) = match next {
                ResyncItem::Record(record) => {
                    found.push((record.at..record.end, record.payload.to_vec()));
                    (record.at, record.end)
                }
                ResyncItem::Skipped(region) => {
                    skipped += 1;
                    (region.begin, region.end)
                }
            };
            assert!(begin == pos && begin < end, "{damage:?}: not in order at {pos}");
            pos = end;
        }
        assert_eq!(pos, damaged.len() as u64);
        for record in &records {
            let touched = record.0.start < damage.end && damage.start < record.0.end;
            assert!(touched || found.contains(record), "{damage:?}: lost the record at {:?}", record.0);
        }
        skipped
    };
    let mut skipped = 0;
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        skipped += survivors(&damaged, (bit / 8) as u64..(bit / 8) as u64 + 1);
    }
    for len in 0..file.len() {
        skipped += survivors(&file[..len], len as u64..file.len() as u64);
    }
    println!(
        "{} records: {} bits flipped and {} cuts; no untouched record lost, {skipped} regions reported",
        records.len(),
        file.len() * 8,
        file.len()
    );
}

fn walk_all<I: ringreel_format::input::Input>(mut walk: SegmentWalk<I>) -> ringreel_format::Result<()> {
    while let Some(sample) = walk.next()? {
        sample.sample()?;
    }
    Ok(())
}
