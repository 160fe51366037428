//! Messages of a controller are parsed without a panic. A message equals the message that is read from its encoded
//! form.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Written forms are a little longer; the length field has 16 bits.
    if bytes.len() <= 8192 {
        openflow::fuzz::message(bytes);
    }
});
