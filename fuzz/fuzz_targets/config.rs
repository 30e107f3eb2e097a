//! libFuzzer's entry to [`ringreel_fuzz::config`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::config(data));
