//! What a controller may send: no panic, and what is read is read again from what is written.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Written forms are a little longer; the length field has 16 bits.
    if bytes.len() <= 8192 {
        openflow::fuzz::message(bytes);
    }
});
