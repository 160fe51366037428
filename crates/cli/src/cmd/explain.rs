//! `trivium explain`: reports what the data plane would do with a packet.
//!
//! The packet is given as fields (`eth_src=...,ip_dst=...,udp`), as hexadecimal digits (`hex:0200...`), or as
//! the first packet of a capture file (`@FILE`).

use std::path::Path;

use control::ExplainRequest;
use hyper::Method;
use model::{Explanation, RouterState};
use packet::{MacAddr, spec};

use crate::args::Explain;
use crate::client::Client;
use crate::failure::Failure;
use crate::pcap;

/// Sends the packet to the daemon for explanation and prints the report.
///
/// # Errors
/// Returns an error if the packet is invalid, or the port does not exist.
pub async fn explain(client: &Client, args: &Explain) -> Result<(), Failure> {
    let text = args.packet.join(",");
    let mut frame = frame(&text)?;
    if let (true, Some(to)) = (names_no_station(&text), frame.first_chunk::<6>())
        && to[0] & 1 == 0
    {
        let routers: Vec<RouterState> = client.get("/v1/routers").await?;
        if let Some(mac) = station(&routers, &args.port, &frame) {
            frame[..6].copy_from_slice(&mac.0);
        }
    }
    let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let request = ExplainRequest { in_port: args.port.clone(), frame: digits };
    let told: Explanation = client.send(Method::POST, "/v1/explain", &request).await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&told).unwrap_or_default());
        return Ok(());
    }
    println!("{} on {}", told.packet, told.in_port);
    for step in &told.steps {
        println!("  {:<9} {}", step.stage, step.what);
    }
    for output in &told.outputs {
        println!("  out of {}: {}", output.port, output.summary);
    }
    println!("{}", told.verdict);
    Ok(())
}

/// Returns whether the text describes a packet by its fields, without a destination MAC address.
fn names_no_station(text: &str) -> bool {
    let given = text.starts_with('@') || text.trim_start().starts_with("hex:");
    !given && !["eth_dst", "dl_dst"].iter().any(|field| text.contains(field))
}

/// Returns the MAC address of the router interface with this port and the VLAN tags of the frame,
/// or `None` if there is no such interface. A packet without a destination MAC address in its
/// description is sent to this address.
fn station(routers: &[RouterState], port: &str, frame: &[u8]) -> Option<MacAddr> {
    let tag = |at: usize| match frame.get(at..at + 4)? {
        [0x81, 0x00, high, low] | [0x88, 0xa8, high, low] => Some(u16::from_be_bytes([high & 0xf, *low])),
        _ => None,
    };
    let (outer, inner) = (tag(12), tag(12).and_then(|_| tag(16)));
    let mut interfaces = routers.iter().flat_map(|router| &router.interfaces);
    interfaces.find(|own| own.port == port && own.vlan == outer && own.inner_vlan == inner)?.mac
}

fn frame(text: &str) -> Result<Vec<u8>, Failure> {
    if let Some(file) = text.strip_prefix('@') {
        return pcap::first_packet(Path::new(file));
    }
    let fix = "for example: eth_src=02:00:00:00:00:01,ip_dst=10.0.0.2,udp,dst_port=53, or hex:0200..., or @FILE.pcap";
    spec::parse(text).map_err(|error| Failure::new("packet", error, fix))
}
