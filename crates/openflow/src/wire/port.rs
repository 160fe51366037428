//! Encoding and decoding of ports and queues.

use switch::flow::{PortDesc, PortStats, port};

use super::error::Error;
use super::ofp::msg::OFPT_PORT_STATUS;
use super::ofp::port::*;
use super::{Put, Reader, TooLong, Version, begin, finish, get_port, port_to_16, properties, seconds};
use crate::datapath::{PortMod, QueueConfig, QueueStats};

/// Returns the configuration bits of ports (OFPPC_*) that are valid in an OpenFlow version. Only
/// OpenFlow 1.0 has a bit that disables flooding.
fn config_bits(version: Version) -> u32 {
    let all = OFPPC_PORT_DOWN | OFPPC_NO_RECV | OFPPC_NO_FWD | OFPPC_NO_PACKET_IN;
    match version {
        Version::V10 => all | ofp10::OFPPC_NO_STP | ofp10::OFPPC_NO_RECV_STP | ofp10::OFPPC_NO_FLOOD,
        _ => all,
    }
}

/// Returns the port feature bit (OFPPF_*) for a link speed in kilobits per second. Returns 0 if
/// OpenFlow 1.0 has no bit for the speed.
fn speed_bit(speed: u32) -> u32 {
    match speed {
        10_000 => OFPPF_10MB_FD,
        100_000 => OFPPF_100MB_FD,
        1_000_000 => OFPPF_1GB_FD,
        10_000_000 => OFPPF_10GB_FD,
        _ => 0,
    }
}

/// Returns the port feature bit (OFPPF_*) for a link speed in kilobits per second, including the
/// bits that OpenFlow 1.1 added.
fn speed_bit_11(speed: u32) -> u32 {
    match speed {
        0 => 0,
        40_000_000 => OFPPF_40GB_FD,
        100_000_000 => OFPPF_100GB_FD,
        1_000_000_000 => OFPPF_1TB_FD,
        speed if speed_bit(speed) != 0 => speed_bit(speed),
        _ => OFPPF_OTHER,
    }
}

/// Encodes the description of a port.
pub fn put_desc(out: &mut Vec<u8>, version: Version, port: &PortDesc) {
    let start = out.len();
    let config = port.config & config_bits(version);
    match version {
        Version::V10 => {
            out.u16(port_to_16(port.number));
            out.extend_from_slice(&port.mac.0);
            out.text(&port.name, 16);
            out.u32(config);
            // Other bits are for the spanning tree protocol.
            out.u32(port.state & OFPPS_LINK_DOWN);
            out.u32(speed_bit(port.speed));
            out.zeros(12);
        }
        _ => {
            out.u32(port.number);
            out.zeros(4);
            out.extend_from_slice(&port.mac.0);
            out.zeros(2);
            out.text(&port.name, 16);
            out.u32(config);
            out.u32(port.state & (OFPPS_LINK_DOWN | OFPPS_BLOCKED | OFPPS_LIVE));
            let ethernet = version >= Version::V14;
            if ethernet {
                out.u16(OFPPDPT_ETHERNET);
                out.u16(32);
                out.zeros(4);
            }
            out.u32(speed_bit_11(port.speed));
            out.zeros(12);
            out.u32(port.speed);
            out.u32(port.speed);
            if ethernet {
                out.set_length(start, 4);
            }
        }
    }
}

/// Encodes a port status message. `reason` is one of OFPPR_*.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the message would be too long.
pub fn put_status(out: &mut Vec<u8>, version: Version, reason: u8, port: &PortDesc) -> Result<(), TooLong> {
    let start = begin(out, version, OFPT_PORT_STATUS, 0);
    out.u8(reason);
    out.zeros(7);
    put_desc(out, version, port);
    finish(out, start)
}

/// Encodes the counters of a port. A counter that is not supported has the value with all bits set.
pub fn put_stats(out: &mut Vec<u8>, version: Version, port: &PortStats) {
    let start = out.len();
    let (sec, nsec) = seconds(port.age_ns);
    match version {
        Version::V10 => {
            out.u16(port_to_16(port.number));
            out.zeros(6);
        }
        Version::V11 | Version::V12 | Version::V13 => {
            out.u32(port.number);
            out.zeros(4);
        }
        Version::V14 | Version::V15 => {
            out.zeros(4);
            out.u32(port.number);
            out.u32(sec);
            out.u32(nsec);
        }
    }
    let counters = [
        port.rx_packets,
        port.tx_packets,
        port.rx_bytes,
        port.tx_bytes,
        port.rx_dropped,
        port.tx_dropped,
        port.rx_errors,
        port.tx_errors,
    ];
    counters.into_iter().for_each(|counter| out.u64(counter));
    if version >= Version::V14 {
        out.u16(OFPPSPT_ETHERNET);
        out.u16(40);
        out.zeros(4);
    }
    // Frame errors, overruns, CRC errors and collisions.
    (0..4).for_each(|_| out.u64(u64::MAX));
    match version {
        Version::V10 | Version::V11 | Version::V12 => {}
        Version::V13 => {
            out.u32(sec);
            out.u32(nsec);
        }
        Version::V14 | Version::V15 => out.set_length(start, 0),
    }
}

/// Encodes the counters of a queue.
pub fn put_queue_stats(out: &mut Vec<u8>, version: Version, queue: &QueueStats) {
    let start = out.len();
    if version >= Version::V14 {
        out.zeros(8);
    }
    if version == Version::V10 {
        out.u16(port_to_16(queue.port));
        out.zeros(2);
    } else {
        out.u32(queue.port);
    }
    out.u32(queue.queue);
    out.u64(queue.tx_bytes);
    out.u64(queue.tx_packets);
    out.u64(queue.tx_errors);
    if version >= Version::V13 {
        let (sec, nsec) = seconds(queue.age_ns);
        out.u32(sec);
        out.u32(nsec);
    }
    if version >= Version::V14 {
        out.set_length(start, 0);
    }
}

/// Encodes the rates of a queue, in the format of the queue-get-config reply (OpenFlow 1.0 to 1.3)
/// or of OFPMP_QUEUE_DESC (later versions).
pub fn put_queue(out: &mut Vec<u8>, version: Version, queue: &QueueConfig) {
    let start = out.len();
    let length_at = match version {
        Version::V10 | Version::V11 => {
            out.u32(queue.queue);
            out.zeros(4);
            4
        }
        Version::V12 | Version::V13 => {
            out.u32(queue.queue);
            out.u32(queue.port);
            out.zeros(8);
            8
        }
        _ => {
            out.u32(queue.port);
            out.u32(queue.queue);
            out.zeros(8);
            8
        }
    };
    for (kind, rate) in [(OFPQDPT_MIN_RATE, queue.min_rate), (OFPQDPT_MAX_RATE, queue.max_rate)] {
        // Like in Open vSwitch, the maximum rate is included before OpenFlow 1.2 as well.
        let Some(rate) = rate else { continue };
        out.u16(kind);
        if version >= Version::V14 {
            out.u16(8);
            out.u16(rate);
            out.zeros(2);
        } else {
            out.u16(16);
            out.zeros(4);
            out.u16(rate);
            out.zeros(6);
        }
    }
    out.set_length(start, length_at);
}

/// Decodes the body of OFPT_PORT_MOD.
///
/// # Errors
/// Returns the errors of the reader, and OFPPMFC_BAD_CONFIG.
pub fn get_mod(mut from: Reader<'_>, version: Version) -> Result<PortMod, Error> {
    let number = get_port(&mut from, version)?;
    if version != Version::V10 {
        from.skip(4)?;
    }
    let mac = from.mac()?;
    if version != Version::V10 {
        from.skip(2)?;
    }
    let (config, mask) = (from.u32()?, from.u32()?);
    if version >= Version::V14 {
        properties(Reader::new(from.data, Error::PropertyLength), |kind, _| match kind {
            OFPPMPT_ETHERNET => Ok(()),
            OFPPMPT_EXPERIMENTER => Err(Error::PropertyExperimenter),
            _ => Err(Error::PropertyType),
        })?;
    } else {
        from.skip(8)?;
    }
    let bits = config_bits(version);
    Ok(PortMod { number, mac, config: config & bits, mask: mask & bits })
}

/// Returns the port number in a request, or `None` if the number represents all ports.
#[must_use]
pub fn wanted(number: u32) -> Option<u32> {
    (number != port::ANY && number != port::ALL).then_some(number)
}
