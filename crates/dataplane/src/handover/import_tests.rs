//! Tests of frames that the kernel holds during a hand-over. Such a frame must not become free if the
//! successor cannot decode part of the hand-over state.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use model::Config;
use port::{Depot, FrameMemory, HugePages, MemoryConfig, Place};

use super::HandoverError;
use super::bundle::HandoverBundle;
use super::export::export_quarantine;
use super::import::Parts;
use super::state::{HandoverState, PortRecord};
use crate::engine_config;
use crate::filters::Filters;
use crate::routers::Routers;

fn memory() -> Arc<FrameMemory> {
    let config = MemoryConfig { frames: 1024, frame_size: 2048, huge_pages: HugePages::Off };
    Arc::new(FrameMemory::new(config).unwrap())
}

#[test]
fn a_port_that_cannot_be_named_refuses_the_hand_over() {
    let port = r#"{"id": 1, "ifindex": null, "hook": null, "queues": [], "complete_checksums": false, "mtu": 1500, "spread": null}"#;
    let port: PortRecord = serde_json::from_str(port).unwrap();
    let parts = |name: &str| {
        let ports = [(name.to_owned(), port.clone())].into();
        let held = HandoverBundle {
            state: HandoverState { ports, ..HandoverState::default() },
            ..HandoverBundle::default()
        };
        Parts::new(held, &Config::default(), &memory())
    };
    assert!(parts("web1").is_ok());
    assert!(matches!(parts("no name of a port"), Err(HandoverError::Strange(_))));
}

#[test]
fn a_successor_tries_the_queues_of_frames_in_quarantine() {
    let depot = Depot::with_free(memory(), 10..1024);
    let namespace = || File::open("/proc/thread-self/ns/net").unwrap().into();
    let hold = Duration::from_secs(60);
    depot.quarantine(vec![1, 2], None, hold);
    depot.quarantine(vec![3], Place::within(namespace(), 7, 2), hold);
    let mut held = HandoverBundle::default();
    export_quarantine(&mut held, &depot.pool());
    let text = serde_json::to_string(&held.state).unwrap();
    let state: HandoverState = serde_json::from_str(&text).unwrap();
    assert_eq!(state.quarantine.iter().map(|own| own.frames.len()).collect::<Vec<_>>(), [2, 1]);
    let descriptors =
        held.descriptors.in_order().iter().map(|own| own.try_clone_to_owned().unwrap()).collect();
    let parts =
        Parts::new(HandoverBundle::received(state, descriptors).unwrap(), &Config::default(), &memory())
            .unwrap();
    assert!(parts.places[0].is_none());
    let (_, inode, ifindex, queue) = parts.places[1].as_ref().unwrap().parts();
    let own = Place::within(namespace(), 1, 0).unwrap();
    assert_eq!((inode, ifindex, queue), (own.parts().1, 7, 2));
    // A predecessor of an earlier release does not send the field `places`.
    let old: HandoverState = serde_json::from_str(&text.replace("\"places\"", "\"else\"")).unwrap();
    let parts = Parts::new(HandoverBundle::received(old, Vec::new()).unwrap(), &Config::default(), &memory())
        .unwrap();
    assert!(parts.places.is_empty());
}

/// A predecessor must know each queue that a successor opens before its workers run. The predecessor has no queue of a
/// port that waits for its device.
#[test]
fn a_port_that_waits_is_not_opened_before_the_workers_run() {
    let text = "[port.w]\nkind = \"af_xdp\"\ndevice = \"missing\"\n[port.n]\nkind = \"null\"\n";
    let config = model::load(text, "test.toml").unwrap();
    let record = |id: u16, queues: &str| {
        let port = format!(
            r#"{{"id": {id}, "ifindex": null, "hook": null, "queues": [{queues}], "complete_checksums": false, "mtu": 1500, "spread": null}}"#
        );
        serde_json::from_str::<PortRecord>(&port).unwrap()
    };
    let null = r#"{"id": 0, "worker": 0, "kind": "Anew"}"#;
    let ports = [("w".to_owned(), record(1, "")), ("n".to_owned(), record(2, null))].into();
    let state = HandoverState { ports, ..HandoverState::default() };
    let held = HandoverBundle { state, ..HandoverBundle::default() };
    let memory = memory();
    let parts = Parts::new(held, &config, &memory).unwrap();
    let workers = engine_config(&config, &engine::engine::domain());
    let routers = Routers::new(&workers.domain, workers.cores.len());
    let rebuilt = parts.rebuild(&config, &workers, &memory, routers, Filters::default(), true).unwrap();
    let ports = &rebuilt.running_state.ports;
    assert_eq!(ports["w"].trouble.as_deref(), Some("it waits for its device since before the hand-over"));
    assert_eq!((ports["n"].trouble.as_deref(), ports["n"].queues.len()), (None, 1));
}
