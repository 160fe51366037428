//! A DHCP relay's messages: relayed as they are but for hops and `giaddr`, or refused.

#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use packet::MacAddr;
use router::dhcp::{self, Direction};

fuzz_target!(|bytes: &[u8]| {
    let own = Ipv4Addr::new(192, 0, 2, 1);
    let mut message = bytes.to_vec();
    let direction = dhcp::direction(bytes);
    if dhcp::forward(&mut message, own).is_ok() {
        assert!(matches!(direction, Ok(Direction::Up(_))));
        assert_eq!(message.len(), bytes.len());
        let changed = message.iter().zip(bytes).filter(|(after, before)| after != before).count();
        assert!((1..=5).contains(&changed));
    } else {
        assert_eq!(message, bytes);
    }
    let frame = dhcp::reply_frame(bytes, MacAddr([2, 0, 0, 0, 0, 1]));
    assert_eq!(frame.is_ok(), matches!(direction, Ok(Direction::Down(_))));
    if let Ok(frame) = frame {
        assert!(frame.ends_with(bytes) && frame.len() == bytes.len() + 42);
    }
});
