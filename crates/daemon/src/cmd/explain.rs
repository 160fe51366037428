//! `trivium explain`: what would happen to a packet. The packet comes in words (`eth_src=...,ip_dst=...,udp`), in
//! hexadecimal digits (`hex:0200...`), or as the first packet of a capture file (`@FILE`).

use std::path::Path;

use control::ExplainRequest;
use hyper::Method;
use model::Explanation;
use packet::spec;

use crate::cli::Explain;
use crate::client::Client;
use crate::failure::Failure;
use crate::pcap;

/// Asks, and prints the story.
///
/// # Errors
/// If the packet is not understood or the port does not exist.
pub async fn explain(client: &Client, args: &Explain) -> Result<(), Failure> {
    let frame = frame(&args.packet.join(","))?;
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

fn frame(text: &str) -> Result<Vec<u8>, Failure> {
    if let Some(file) = text.strip_prefix('@') {
        return pcap::first_packet(Path::new(file));
    }
    let fix = "for example: eth_src=02:00:00:00:00:01,ip_dst=10.0.0.2,udp,dst_port=53, or hex:0200..., or @FILE.pcap";
    spec::parse(text).map_err(|error| Failure::new("packet", error, fix))
}
