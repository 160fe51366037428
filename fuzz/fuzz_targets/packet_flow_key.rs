//! The flow key of any bytes: no panic, and the light key agrees with the full one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use packet::{FlowKey, PortId};

fuzz_target!(|frame: &[u8]| {
    let (mut key, mut light) = (FlowKey::from_words([u64::MAX; 8]), FlowKey::ZERO);
    let full = FlowKey::extract(frame, frame.len(), PortId(7), &mut key);
    let l2 = FlowKey::extract_l2(frame, PortId(7), &mut light);
    assert_eq!(full.map(|layers| layers.l2_len()), l2.map(|layers| layers.l2_len()));
    if let Ok(layers) = full {
        assert_eq!(
            (key.eth_dst(), key.eth_src(), key.eth_type()),
            (light.eth_dst(), light.eth_src(), light.eth_type())
        );
        assert_eq!((key.outer_tci(), key.inner_tci()), (light.outer_tci(), light.inner_tci()));
        assert!(layers.l2_len() <= frame.len());
        assert!(layers.l3().is_none_or(|offset| offset < frame.len()));
        assert!(layers.l4().is_none_or(|offset| offset <= frame.len()));
        let _ = (key.hash_symmetric(), layers.malformed(), key.to_string());
        // A head of a longer frame must not be read past its end either.
        let _ = FlowKey::extract(frame, frame.len() + 9000, PortId(7), &mut key);
    }
});
