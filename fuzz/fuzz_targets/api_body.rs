//! The body of a request to the API: no panic, and what is accepted is stored and read back the same.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| control::fuzz::api_body(bytes));
