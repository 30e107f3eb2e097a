//! libFuzzer's entry to [`ringreel_fuzz::record_damage`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::record_damage(data));
