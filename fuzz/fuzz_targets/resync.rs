//! libFuzzer's entry to [`ringreel_fuzz::resync`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::resync(data));
