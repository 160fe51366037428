//! Tests of custom ingress stages: the example program as users run it, and how the engine applies a stage's verdicts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Rig;
use engine::{Arrivals, EngineConfig, Function, IngressStage, Verdicts};
use packet::record::Step;
use packet::{DropReason, PortId, WorkerId, spec};
use port::pcap::{Reader, Writer};

/// Returns the path of the example's binary, which is in the build directory of this test.
fn example() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("examples/stage");
    assert!(path.exists(), "{}: build it first: cargo build -p engine --example stage", path.display());
    path
}

#[test]
fn the_example_refuses_and_marks() {
    let directory = std::env::temp_dir().join(format!("trivium-ingress-stage-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (input, output) = (directory.join("in.pcap"), directory.join("out.pcap"));
    let mut writer = Writer::classic(File::create(&input).unwrap()).unwrap();
    let interface = writer.interface("in").unwrap();
    for text in [
        "ip_dst=10.0.0.2,tcp,dst_port=23",
        "ip_dst=10.0.0.2,udp,dst_port=5060",
        "ip_dst=10.0.0.2,tcp,dst_port=80",
        "ip_src=2001:db8::1,ip_dst=2001:db8::2,tcp,dst_port=23",
    ] {
        let frame = spec::parse(text).unwrap();
        let len = u32::try_from(frame.len()).unwrap();
        writer.packet(interface, 0, len, [frame.as_slice()], None).unwrap();
    }
    drop(writer);
    let ran = Command::new(example()).arg(&input).arg(&output).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said, "2 sent, 2 refused\n");
    let mut reader = Reader::new(File::open(&output).unwrap()).unwrap();
    let marked = reader.next_record().unwrap().unwrap().data;
    assert_eq!(marked[15], 46 << 2);
    assert_eq!(packet::checksum::ipv4_header(&marked[14..34]), 0, "the checksum holds");
    let plain = reader.next_record().unwrap().unwrap().data;
    assert_eq!(plain[15], 0);
    assert!(reader.next_record().unwrap().is_none());
    std::fs::remove_dir_all(&directory).unwrap();
    let lines = include_str!("../../../examples/stage/main.rs").lines().count();
    assert!(lines < 50, "it is to stay a page: {lines} lines");
}

/// An ingress stage that drops every second packet. The stage also counts all packets, but not those of a dry run.
struct Half(AtomicUsize);

impl IngressStage for Half {
    fn run(&self, arrivals: &mut Arrivals<'_>, verdicts: &mut Verdicts) {
        assert!(arrivals.now_ns > 0 && arrivals.worker == WorkerId(0));
        if !arrivals.dry_run {
            self.0.fetch_add(arrivals.packets.len(), Ordering::Relaxed);
        }
        for verdict in verdicts[..arrivals.packets.len()].iter_mut().step_by(2) {
            *verdict = Some(DropReason::IngressStage);
        }
    }
}

#[test]
fn what_a_stage_refuses_is_counted_and_explained() {
    let ports = [PortId(0), PortId(1)];
    let mut rig =
        Rig::with(&EngineConfig::default(), &ports, |port| Function::CrossConnect(PortId(1 - port.0)));
    let stage = Arc::new(Half(AtomicUsize::new(0)));
    let own: Arc<dyn IngressStage> = stage.clone();
    rig.publish(|f| {
        let mut view = f.port(PortId(0)).unwrap().clone();
        view.own = Some(own);
        f.set_port(PortId(0), Some(view));
    });
    let frames: Vec<Vec<u8>> = (0..7)
        .map(|nth| spec::parse(&format!("ip_dst=10.0.0.2,udp,src_port={}", 1000 + nth)).unwrap())
        .collect();
    frames.iter().for_each(|frame| rig.send(0, frame));
    rig.round();
    let sent: Vec<Vec<u8>> = rig.outputs().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(sent, [&frames[1], &frames[3], &frames[5]].map(Clone::clone), "the others, in order");
    assert_eq!(rig.dropped()[DropReason::IngressStage.index()], 4);
    assert_eq!(stage.0.load(Ordering::Relaxed), 7);
    // The other port has no ingress stage.
    rig.send(1, &frames[0]);
    rig.round();
    assert_eq!(rig.outputs().len(), 1);
    rig.assert_accounted();
    let explained = rig.worker.while_offline(|| rig.engine.explain(PortId(0), &frames[0]));
    assert!(explained.steps.contains(&Step::Dropped(DropReason::IngressStage)), "{:?}", explained.steps);
    assert!(explained.outputs.is_empty());
    assert_eq!(stage.0.load(Ordering::Relaxed), 7, "whoever asks leaves no mark");
}
