//! A configuration, as TOML and as JSON: no panic, every mistake has its place, what loads is written out the same.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzz::config(bytes));
