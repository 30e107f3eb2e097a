//! libFuzzer's entry to [`ringreel_fuzz::image`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::image(data));
