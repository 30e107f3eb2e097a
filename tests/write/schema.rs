//! Generators that disagree on a part's dtype or shape: the later one is warned or refused, and the error of a reader
//! that stacks their samples names samples and owners.

use ringreel::format::{DType, Meta};
use ringreel::{Config, Error, Generator, NamedPart, Reader, SampleId};
use testkit::log::warnings;
use testkit::ring::{config, never, scratch};

/// Writes one sample of zeros.
fn put(generator: &mut Generator, dtype: DType, shape: &[u64]) -> ringreel::Result<Vec<SampleId>> {
    let data = vec![0; dtype.byte_len(shape).unwrap() as usize];
    generator.write(&[NamedPart::new("data", dtype, shape, &data)], &Meta::new(), &never)
}

/// A ring of one generation of two samples: f32 of shape [3].
fn ring(more: &str) -> (tempfile::TempDir, Config, String) {
    let dir = scratch();
    let config = config(dir.path(), 2, more);
    let mut generator = Generator::open(&config).unwrap();
    (0..2).for_each(|_| drop(put(&mut generator, DType::F32, &[3]).unwrap()));
    let owner = generator.ring().me.clone();
    generator.finish(true, &never).unwrap();
    (dir, config, owner)
}

#[test]
fn generator_with_another_schema_is_warned_once() {
    for (dtype, shape) in [(DType::F64, &[3][..]), (DType::F32, &[4]), (DType::F32, &[3, 1])] {
        let (_dir, config, owner) = ring("");
        let mut generator = Generator::open(&config).unwrap();
        let ((), said) = warnings(|| (0..2).for_each(|_| drop(put(&mut generator, dtype.clone(), shape).unwrap())));
        let words = [
            format!("part \"data\" of this generator's first sample is {dtype} of shape {shape:?}"),
            "it is f32 of shape [3]".to_owned(),
            format!("written by {owner}"),
        ];
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn generator_with_the_same_schema_is_not_warned() {
    let (_dir, config, _) = ring("");
    let mut generator = Generator::open(&config).unwrap();
    let ((), said) = warnings(|| (0..2).for_each(|_| drop(put(&mut generator, DType::F32, &[3]).unwrap())));
    assert_eq!(said, "");
}

#[test]
fn byte_strings_of_any_length_have_one_schema() {
    let dir = scratch();
    let config = config(dir.path(), 2, "STRICT_SCHEMA: true");
    for len in [1, 2, 3] {
        put(&mut Generator::open(&config).unwrap(), DType::Bytes, &[len]).unwrap();
    }
}

#[test]
fn strict_schema_refuses_another_dtype_or_shape() {
    let (_dir, config, owner) = ring("STRICT_SCHEMA: true");
    let mut generator = Generator::open(&config).unwrap();
    for (dtype, shape) in [(DType::F64, &[3][..]), (DType::F32, &[4]), (DType::F32, &[3, 1])] {
        let error = put(&mut generator, dtype, shape).unwrap_err();
        assert!(
            matches!(&error, Error::Sample(why) if why.contains("STRICT_SCHEMA") && why.contains(&owner)),
            "{error}"
        );
    }
    assert_eq!(put(&mut generator, DType::F32, &[3]).unwrap().len(), 1, "a matching sample is accepted");
}

/// No generation is readable yet, so the schema is that of the generation that fills.
#[test]
fn strict_schema_holds_in_a_ring_that_fills() {
    let dir = scratch();
    let config = config(dir.path(), 9, "STRICT_SCHEMA: true");
    put(&mut Generator::open(&config).unwrap(), DType::F32, &[3]).unwrap();
    let error = put(&mut Generator::open(&config).unwrap(), DType::F64, &[3]).unwrap_err();
    assert!(error.to_string().contains("generation 1"), "{error}");
}

#[test]
fn stack_error_names_both_samples_and_owners() {
    let dir = scratch();
    let config = config(dir.path(), 2, "");
    let mut generators = [0, 1].map(|_| Generator::open(&config).unwrap());
    let first = put(&mut generators[0], DType::F32, &[3]).unwrap()[0];
    let second = put(&mut generators[1], DType::F64, &[4]).unwrap()[0];
    let owners = generators.each_ref().map(|generator| generator.ring().me.clone());
    for generator in generators {
        generator.finish(true, &never).unwrap();
    }
    let reader = Reader::open(&config).unwrap();
    let newest = reader.newest().unwrap();
    let error = reader.batch(&newest, 0..2).unwrap_err().to_string();
    for (dtype, shape, id, owner) in [("f32", "[3]", first, &owners[0]), ("f64", "[4]", second, &owners[1])] {
        let sample = format!("{dtype} of shape {shape} in sample {id} (");
        assert!(error.contains(&sample) && error.contains(&format!("written by {owner})")), "{error}");
    }
}
