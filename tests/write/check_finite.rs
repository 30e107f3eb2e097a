//! `CHECK_FINITE`: what a generator does with NaN and infinite elements.

use ringreel::{Error, Generator, NamedPart, Reader};
use ringreel_format::{DType, Meta};
use testkit::cli::Place;

const YAML: &str = "SWAP_CAP: 3\nSAMPLE: [image, label]\n";

/// Writes a sample of two floats and a label.
fn put(generator: &mut Generator, values: [f32; 2]) -> ringreel::Result<()> {
    let image = values.map(f32::to_le_bytes).concat();
    let parts = [NamedPart::new("image", DType::F32, &[2], &image), NamedPart::new("label", DType::U8, &[1], &[255])];
    generator.write(&parts, &Meta::new(), &|| false).map(drop)
}

#[test]
fn refused_samples_leave_the_ring_unchanged() {
    let place = Place::new(&format!("{YAML}CHECK_FINITE: refuse\n"));
    let mut generator = Generator::open(&place.config()).unwrap();
    put(&mut generator, [1.0, 2.0]).unwrap();
    let error = put(&mut generator, [f32::NAN, f32::NEG_INFINITY]).unwrap_err();
    assert!(matches!(error, Error::Sample(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("part \"image\" holds 1 NaN and 1 infinite of 2 elements"), "{text}");
    let rows = [3.0, 4.0, 5.0, f32::NAN].map(f32::to_le_bytes).concat();
    let batch = [NamedPart::new("image", DType::F32, &[2], &rows), NamedPart::new("label", DType::U8, &[1], &[1, 2])];
    let error = generator.write_batch(&batch, 2, &|| false).unwrap_err().to_string();
    assert!(error.contains("1 NaN and 0 infinite of 4 elements"), "{error}");
    assert_eq!(generator.written(), 1, "no sample of the batch is written");
    put(&mut generator, [6.0, 7.0]).unwrap();
    generator.finish(true, &|| false).unwrap();
    assert_eq!(Reader::open(&place.config()).unwrap().newest().unwrap().summary.samples, 2);
}

#[test]
fn warn_mode_and_the_default_write_the_sample() {
    for key in ["", "CHECK_FINITE: warn\n", "CHECK_FINITE: off\n"] {
        let place = Place::new(&format!("{YAML}{key}"));
        let mut generator = Generator::open(&place.config()).unwrap();
        put(&mut generator, [f32::NAN, 1.0]).unwrap();
        assert_eq!(generator.finish(true, &|| false).unwrap().finished, 1, "{key}");
    }
}
