//! libFuzzer's entry to [`ringreel_fuzz::segment`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::segment(data));
