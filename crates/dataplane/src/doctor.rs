//! Diagnostics of performance and correctness on this machine (`trivium doctor`). Each finding names the affected
//! object, the problem, and a command that fixes it. The diagnostics change nothing. This file examines the machine,
//! the memory and the bridges. `doctor/device.rs` examines the ports' devices.

mod chart;
mod device;
mod machine;
mod router;
mod services;

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use ::openflow::Address;
use engine::inspect::FrameCensus;
use model::{BridgeName, DoctorFinding, Finding, PortName};

use chart::{Chart, sysctl, there};

use super::device::Device;
use super::locked;
use super::moves::Moving;
use super::running_state::RunningState;
use super::watch::Load;

pub use machine::preflight;

/// Number of consecutive seconds of full load after which `doctor` reports a worker.
const FULL_SECS: u32 = 3;

/// Returns the findings about services and routers for the reply to a configuration change. Findings about routers are
/// also logged.
pub fn services(running_state: &RunningState) -> Vec<DoctorFinding> {
    let mut findings = services::examine(running_state);
    findings.retain(|finding| finding.severity == Finding::Warning);
    for finding in router::examine(running_state) {
        tracing::warn!(object = %finding.object, fix = %finding.fix, "{}", finding.finding);
        findings.push(finding);
    }
    findings
}

/// Pause between the examinations of two ports. In the pause, other threads can lock the running state.
const PAUSE: Duration = Duration::from_micros(100);

/// Returns all findings about the machine, the memory and the ports. The running state is locked separately
/// for each port, because the examination of a device takes about a millisecond.
pub fn examine(
    running_state: &Mutex<RunningState>,
    memory: &port::FrameMemory,
    census: Option<FrameCensus>,
    (workers, loads): (usize, &[Load]),
) -> Vec<DoctorFinding> {
    let mut chart = Chart { findings: Vec::new() };
    kernel(&mut chart);
    frames(&mut chart, memory);
    if let Some(census) = census {
        let FrameCensus { total, free, queued, quarantined, overdue } = census;
        let others = census.others();
        let text = format!(
            "{total} frames: {free} free, {queued} in queues, {quarantined} in quarantine, {others} in packets"
        );
        chart.note("memory.frames", Finding::Ok, text, "");
        if overdue > 0 {
            let text = format!(
                "{overdue} frames of closed zero-copy sockets are held back, because the kernel still has their queue in use: \
                 the driver may write to them"
            );
            let fix = "see in the kernel's log why the driver does not end its use, or end the other process that has bound the queue";
            chart.note("memory.quarantine", Finding::Warning, text, fix);
        }
    }
    full_workers(&mut chart, loads);
    let names: Vec<PortName> = locked(running_state).ports.keys().cloned().collect();
    let mut places = device::Places::default();
    for name in names {
        port(&mut chart, &mut places, &locked(running_state), &name, memory);
        std::thread::sleep(PAUSE);
    }
    let running_state = &*locked(running_state);
    cores(&mut chart, running_state, workers);
    loops(&mut chart, running_state);
    chart.findings.extend(services::examine(running_state));
    chart.findings.extend(router::waiting(running_state));
    chart.findings.extend(router::examine(running_state));
    chart.findings.extend(router::excess_rules(running_state));
    chart.findings.extend(router::unlimited(running_state));
    chart.findings.extend_from_slice(running_state.flows.damaged());
    open_filters(&mut chart, running_state);
    open_listeners(&mut chart, running_state);
    for (bridge, config) in &running_state.config.bridges {
        let members = config
            .ports
            .keys()
            .filter_map(|name| Some((name, running_state.ports.get(name)?.device.as_ref()?)));
        sizes(&mut chart, bridge, &members.collect::<Vec<_>>());
    }
    chart.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    chart.findings
}

/// Adds the findings of the diagnostics about one port to `chart`.
fn port(
    chart: &mut Chart,
    places: &mut device::Places,
    running_state: &RunningState,
    name: &PortName,
    memory: &port::FrameMemory,
) {
    let Some(running) = running_state.ports.get(name) else { return };
    device::port(chart, places, name, running, memory, running_state.filters.answers(running));
    if let Some(lacks) = running_state.steering.lacks(running) {
        let fix = "use a device whose driver runs XDP, or `table` and flows with \"kernel\" and the kernel's own RPS";
        chart.note(&super::device::object(name), Finding::Warning, lacks, fix);
    }
}

/// Reports each worker that has been fully loaded for at least `FULL_SECS` seconds.
fn full_workers(chart: &mut Chart, loads: &[Load]) {
    for (number, load) in loads.iter().enumerate().filter(|(_, load)| load.full_secs >= FULL_SECS) {
        let what = format!(
            "it has been busy without a rest for {} s: packets are lost where rings overflow",
            load.full_secs
        );
        let fix = "see by `trivium top` and `trivium show stages` what it does; a loop or a flood may be the cause, else spread its ports \
                   over more workers (`engine.workers`)";
        chart.note(&format!("worker.{number}"), Finding::Warning, what, fix);
    }
}

/// Reports bridges on which many MAC addresses move between ports, which indicates a loop.
fn loops(chart: &mut Chart, running_state: &RunningState) {
    for (bridge, Moving { one, other, rate, .. }) in running_state.moves.moving() {
        let what = format!(
            "stations move between the ports {one} and {other} {rate} times a second: these ports are probably joined behind the bridge (a loop)"
        );
        let fix = format!("unplug {one} or {other}; `storm` at the ports limits what a loop can do");
        chart.note(&format!("bridge.{bridge}"), Finding::Warning, what, fix);
    }
}

/// Reports filters that pass packets with unparsable headers, and block lists that are too long for their table.
fn open_filters(chart: &mut Chart, running_state: &RunningState) {
    for (filter, what) in running_state.filters.unlisted() {
        let fix = "take other prefixes out of the list or replace several by one that covers them, then `trivium xdp filter reload`";
        chart.note(&format!("filter.{filter}"), Finding::Error, what, fix);
    }
    for (filter, ports) in running_state.filters.open(&running_state.ports) {
        let at = if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") };
        let what = format!(
            "it lets pass packets that it cannot read to the end (unreadable = \"pass\", on {at}): a sender can evade its rules for \
             protocols, ports and flags by such packets"
        );
        let fix = "remove `unreadable`, or drop them by a rule with fragment = \"unreadable\"";
        chart.note(&format!("filter.{filter}"), Finding::Warning, what, fix);
    }
}

/// Reports OpenFlow listeners that other machines or all local users can reach without authentication. Also
/// reports listeners that were not opened because they would be reachable in this way.
fn open_listeners(chart: &mut Chart, running_state: &RunningState) {
    for (bridge, config) in &running_state.config.bridges {
        let controllers = config.settings.openflow.iter().flat_map(|openflow| &openflow.controllers);
        for controller in controllers {
            let Ok(address) = Address::parse(&controller.target, controller.allow_remote) else { continue };
            let object = format!("bridge.{bridge}");
            if !address.is_open() {
                let all = controller.passive_users.iter().any(|user| user == model::Controller::ALL_USERS);
                if all && matches!(address, Address::ListenTcp(_)) {
                    let what = format!("{address}: every user of this machine may change the rules there");
                    let fix = "name the users of the controllers in `passive_users` (OVSDB: other_config:passive-users) in the place of `*`";
                    chart.note(&object, Finding::Warning, what, fix);
                }
                continue;
            }
            if controller.allow_remote {
                let what = format!(
                    "{address}: whoever can reach this address may change the rules, without authentication"
                );
                chart.note(&object, Finding::Warning, what, "listen at 127.0.0.1, or use pssl:");
            } else {
                let what = format!(
                    "{address} is not listened at: whoever can reach this address could change the rules"
                );
                let fix = "listen at 127.0.0.1, use pssl:, or set `allow_remote = true` (OVSDB: other_config:allow-remote=true)";
                chart.note(&object, Finding::Error, what, fix);
            }
        }
    }
}

fn kernel(chart: &mut Chart) {
    match sysctl("net/core/bpf_jit_enable").as_deref() {
        Some("0") => chart.note(
            "kernel",
            Finding::Warning,
            "the BPF compiler is off: the hook runs interpreted, several times slower",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Some(_) => chart.note("kernel", Finding::Ok, "the BPF compiler is on", ""),
        // The setting is visible only in the initial network namespace.
        None => {}
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let locked = limits.lines().find(|line| line.starts_with("Max locked memory"));
    if let Some(limit) =
        locked.and_then(|line| line.split_whitespace().nth(3)).filter(|limit| *limit != "unlimited")
    {
        chart.note(
            "kernel",
            Finding::Advice,
            format!(
                "this process may lock {limit} bytes; CAP_IPC_LOCK lets it exceed that, nothing else does"
            ),
            "LimitMEMLOCK=infinity in the unit, or `ulimit -l unlimited`",
        );
    }
    for family in ["iptables", "ip6tables", "arptables"] {
        if sysctl(&format!("net/bridge/bridge-nf-call-{family}")).as_deref() == Some("1") {
            chart.note(
                "kernel",
                Finding::Advice,
                format!("bridge-nf-call-{family} is on: the kernel's own bridges run at half speed (ours do not care)"),
                format!("sysctl -w net.bridge.bridge-nf-call-{family}=0"),
            );
        }
    }
}

fn frames(chart: &mut Chart, memory: &port::FrameMemory) {
    let megabytes = memory.bytes() >> 20;
    let kind = match memory.backing() {
        port::Backing::Reserved => Some("reserved"),
        port::Backing::Transparent => Some("transparent"),
        port::Backing::Normal => None,
    };
    if let Some(kind) = kind {
        chart.note("memory", Finding::Ok, format!("{megabytes} MiB of frames in {kind} huge pages"), "");
        return;
    }
    let pages = port::pages_to_reserve(memory.bytes());
    chart.note(
        "memory",
        Finding::Advice,
        format!("{megabytes} MiB of frames in normal pages: more TLB misses per packet"),
        format!("sysctl -w vm.nr_hugepages={pages}, then restart the daemon"),
    );
}

fn cores(chart: &mut Chart, running_state: &RunningState, workers: usize) {
    let allowed = sync::cpu::allowed_cores().unwrap_or_default();
    for core in &running_state.config.engine.workers {
        if !allowed.contains(&usize::from(*core)) {
            chart.note(
                "engine",
                Finding::Warning,
                format!("core {core} is not among those that this process may use; its worker runs anywhere"),
                "correct engine.workers, or CPUAffinity= in the unit",
            );
        }
    }
    if running_state.config.engine.mode == model::EngineMode::Busy && workers >= allowed.len().max(1) {
        chart.note(
            "engine",
            Finding::Warning,
            "busy workers take every core: nothing is left for the kernel's share of the work",
            "engine.mode = \"adaptive\", or fewer workers",
        );
    }
}

/// Reports bridges whose member ports differ in MTU. A member with a lower MTU drops frames that exceed it.
fn sizes(chart: &mut Chart, bridge: &BridgeName, members: &[(&PortName, &Device)]) {
    let Some(most) = members.iter().map(|(_, device)| device.mtu).max() else { return };
    let smaller: Vec<_> = members.iter().filter(|(_, device)| device.mtu < most).collect();
    let Some((_, first)) = smaller.first() else { return };
    let names = |list: &[&(&PortName, &Device)]| {
        list.iter().map(|(name, device)| format!("{name} {}", device.mtu)).collect::<Vec<_>>().join(", ")
    };
    let largest: Vec<_> = members.iter().filter(|(_, device)| device.mtu == most).collect();
    chart.note(
        &format!("bridge.{bridge}"),
        Finding::Warning,
        format!(
            "its members differ in MTU ({}; {}): longer frames to the smaller ones are dropped as mtu-exceeded",
            names(&largest),
            names(&smaller)
        ),
        there(first.namespace.as_ref(), &format!("ip link set dev {} mtu {most}", first.name)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, namespace: Option<&str>, mtu: u32) -> Device {
        Device {
            name: name.to_owned(),
            namespace: namespace.map(|name| name.parse().unwrap()),
            namespace_file: None,
            ifindex: 1,
            mac: None,
            mtu,
            running: true,
            driver: None,
            speed: None,
        }
    }

    #[test]
    fn commands_go_to_the_namespace_of_the_device() {
        let at = |namespace: &str| there(Some(&namespace.parse().unwrap()), "ip link");
        assert_eq!(there(None, "ip link"), "ip link");
        assert_eq!(at("red"), "ip netns exec red ip link");
        assert_eq!(at("/proc/7/ns/net"), "nsenter --net=/proc/7/ns/net ip link");
    }

    #[test]
    fn members_of_different_size_are_named() {
        let (bridge, names): (BridgeName, [PortName; 3]) =
            ("br0".parse().unwrap(), ["a", "b", "c"].map(|name| name.parse().unwrap()));
        let mut devices =
            [device("eth1", None, 9000), device("eth2", Some("red"), 1500), device("eth3", None, 9000)];
        let find = |devices: &[Device]| {
            let mut chart = Chart { findings: Vec::new() };
            sizes(&mut chart, &bridge, &names.iter().zip(devices).collect::<Vec<_>>());
            chart.findings.pop()
        };
        let found = find(&devices).unwrap();
        assert!(found.finding.contains("a 9000, c 9000; b 1500"), "{}", found.finding);
        assert_eq!(found.fix, "ip netns exec red ip link set dev eth2 mtu 9000");
        devices[1].mtu = 9000;
        assert_eq!((find(&devices), find(&[])), (None, None));
    }
}
