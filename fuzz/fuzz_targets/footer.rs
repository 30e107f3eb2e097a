//! libFuzzer's entry to [`ringreel_fuzz::footer`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringreel_fuzz::footer(data));
