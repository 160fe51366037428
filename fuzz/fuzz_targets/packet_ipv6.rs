//! IPv6 with extension headers: bounded walk, and what is read can be written and reads the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::ipv6::{Ipv6, Ipv6Repr};
use packet::ipv6_ext::{FragmentRepr, MAX_EXTENSIONS};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ip) = Ipv6::parse(bytes) {
        let repr = Ipv6Repr::parse(&ip);
        let mut again = [0; 40];
        repr.emit(&mut again).expect("room");
        assert_eq!(again[..], bytes[..40]);
        let walked: Vec<_> = ip.extensions().collect();
        assert!(walked.iter().flatten().count() <= MAX_EXTENSIONS);
        for extension in walked.iter().flatten() {
            let _ = extension.fragment().map(FragmentRepr::parse);
        }
        if let Ok(upper) = ip.upper() {
            assert!(walked.iter().all(Result::is_ok));
            let headers: usize = walked.iter().flatten().map(|extension| extension.bytes.len()).sum();
            assert_eq!(headers + upper.payload.len(), ip.payload().len());
            let _ = ip.pseudo_sum(upper.proto, upper.payload.len());
        }
    }
});
