//! A DHCPv6 relay's messages: whole in an envelope for servers, a part of the envelope for clients, or refused.

#![no_main]

use std::net::Ipv6Addr;

use libfuzzer_sys::fuzz_target;
use router::dhcp6::{self, Direction};

fuzz_target!(|bytes: &[u8]| {
    let own = Ipv6Addr::new(0xfd00, 8, 1, 0, 0, 0, 0, 1);
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
    let direction = dhcp6::direction(bytes);
    match dhcp6::forward(bytes, from, own, "eth1.100") {
        Ok(envelope) => {
            assert!(matches!(direction, Ok(Direction::Up { .. })));
            assert!(envelope.ends_with(bytes) && envelope.len() == bytes.len() + 50);
        }
        Err(_) => assert!(direction != Ok(Direction::Up { relayed: false })),
    }
    if let Ok(reply) = dhcp6::reply(bytes) {
        assert_eq!(direction, Ok(Direction::Down));
        assert_eq!(reply.to_relay, reply.message.first() == Some(&13));
        // Requests of a relay's never go to clients.
        assert!(dhcp6::direction(reply.message) != Ok(Direction::Up { relayed: true }));
        assert!(reply.message.len() + 38 <= bytes.len());
    }
});
