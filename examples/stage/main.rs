//! A stage of one's own in the worker: refuses telnet, and marks IPv4 packets to SIP's port as expedited (RFC 3246).
//! `cargo run -p engine --example stage -- in.pcap out.pcap` sends a capture through it.

use std::sync::Arc;

use engine::{Arrivals, Engine, EngineConfig, Function, IngressStage, PortView, Verdicts};
use packet::{DropReason, FlowKey, PortId, QueueId, WorkerId, checksum};
use port::pcap::{PcapConfig, PcapQueue};
use port::{Depot, FrameMemory, MemoryConfig};

struct Guard;
impl IngressStage for Guard {
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts) {
        let Arrivals { port, packets, keys, memory, .. } = arrivals;
        for ((packet, key), verdict) in packets.iter_mut().zip(keys.iter_mut()).zip(verdicts) {
            let (len, head) = (packet.len(), packet.head_mut(memory));
            match (key.proto(), key.dst_port()) {
                (6, 23) => *verdict = Some(DropReason::IngressStage),
                (17, 5060) if head[12..15] == [0x08, 0x00, 0x45] => {
                    head[15] = 46 << 2;
                    head[24..26].fill(0);
                    let sum = checksum::ipv4_header(&head[14..34]);
                    head[24..26].copy_from_slice(&sum.to_be_bytes());
                    let _ = FlowKey::extract(head, len, *port, key);
                }
                _ => {}
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<_> = std::env::args_os().skip(1).map(|file| Some(file.into())).collect();
    let [read, write] = files.try_into().map_err(|_| "name two captures: one to read, one to write")?;
    let memory = Arc::new(FrameMemory::new(MemoryConfig::default())?);
    let engine = Engine::start(&EngineConfig::default(), Depot::new(memory))?;
    for (port, read, write) in [(0, None, write), (1, read, None)] {
        let mut view = PortView::new(Function::CrossConnect(PortId(1 - port)), WorkerId(0));
        view.own = Some(Arc::new(Guard));
        engine.update(|all| all.set_port(PortId(port), Some(view)));
        let config = PcapConfig { read, write, rounds: Some(1), ..PcapConfig::default() };
        let queue = Box::new(PcapQueue::open(&config, Box::new(|| 0))?);
        engine.add_queue(WorkerId(0), PortId(port), QueueId(0), queue)?;
    }
    std::thread::sleep(std::time::Duration::from_secs(1));
    let [sent, refused] = [engine.port_totals(PortId(0)).tx_packets, engine.port_totals(PortId(1)).dropped()];
    println!("{sent} sent, {refused} refused");
    Ok(())
}
