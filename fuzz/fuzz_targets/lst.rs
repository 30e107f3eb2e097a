//! libFuzzer's entry to [`ringreel_fuzz::lst`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::lst(data));
