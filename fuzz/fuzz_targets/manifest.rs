//! libFuzzer's entry to [`ringreel_fuzz::manifest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::manifest(data));
