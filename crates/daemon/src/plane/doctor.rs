//! What stands in the way of speed and correctness on this machine: each finding names the object, what it means, and the
//! command that mends it. Nothing is changed here.

use std::fs;

use model::{DoctorFinding, Finding, PortKind, PortName};
use port::link::{self, Feature, LinkInfo};

use super::device::{inside, object};
use super::ports::Running;
use super::site::Site;

/// Collects findings about one object.
struct Chart {
    findings: Vec<DoctorFinding>,
}

impl Chart {
    fn note(&mut self, object: &str, severity: Finding, finding: impl Into<String>, fix: impl Into<String>) {
        let (finding, fix) = (finding.into(), fix.into());
        self.findings.push(DoctorFinding { object: object.to_owned(), severity, finding, fix });
    }
}

/// Everything that is found about the machine, the memory and every port.
pub fn examine(site: &Site, memory: &port::FrameMemory, workers: usize) -> Vec<DoctorFinding> {
    let mut chart = Chart { findings: Vec::new() };
    kernel(&mut chart);
    frames(&mut chart, memory);
    cores(&mut chart, site, workers);
    for (name, running) in &site.ports {
        port(&mut chart, name, running, memory);
    }
    chart.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    chart.findings
}

fn sysctl(path: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{path}")).ok().map(|text| text.trim().to_owned())
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
        // Only the first network namespace shows it.
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
    if memory.is_huge() {
        chart.note("memory", Finding::Ok, format!("{megabytes} MiB of frames in huge pages"), "");
        return;
    }
    let pages = memory.bytes().div_ceil(2 << 20);
    chart.note(
        "memory",
        Finding::Advice,
        format!("{megabytes} MiB of frames in normal pages: more TLB misses per packet"),
        format!("sysctl -w vm.nr_hugepages={pages}, then restart the daemon"),
    );
}

fn cores(chart: &mut Chart, site: &Site, workers: usize) {
    let allowed = sync::cpu::allowed_cores().unwrap_or_default();
    for core in &site.config.engine.workers {
        if !allowed.contains(&usize::from(*core)) {
            chart.note(
                "engine",
                Finding::Warning,
                format!("core {core} is not among those that this process may use; its worker runs anywhere"),
                "correct engine.workers, or CPUAffinity= in the unit",
            );
        }
    }
    if site.config.engine.mode == model::EngineMode::Busy && workers >= allowed.len().max(1) {
        chart.note(
            "engine",
            Finding::Warning,
            "busy workers take every core: nothing is left for the kernel's share of the work",
            "engine.mode = \"adaptive\", or fewer workers",
        );
    }
}

fn port(chart: &mut Chart, name: &PortName, running: &Running, memory: &port::FrameMemory) {
    let object = object(name);
    if let Some(trouble) = &running.trouble {
        chart.note(&object, Finding::Error, trouble.clone(), "make the device again, or remove the port");
        return;
    }
    let Some(device) = &running.device else { return };
    hook(chart, &object, running);
    let (ifname, namespace) = (device.name.clone(), device.namespace.clone());
    let looked = inside(&object, namespace.as_ref(), || {
        let failed = |error: link::LinkError| control::PlaneError::failed(&object, &error, "");
        let info = link::find(&ifname).map_err(failed)?;
        let features = link::features(&ifname).unwrap_or_default();
        Ok((info, features, addresses(&ifname)))
    });
    match looked {
        Ok((info, features, addresses)) => {
            link_state(chart, &object, running, &info, memory);
            offloads(chart, &object, running, &info, &features);
            leaks(chart, &object, running, &info, &addresses);
        }
        Err(error) => chart.note(&object, Finding::Error, error.cause, error.fix),
    }
}

fn hook(chart: &mut Chart, object: &str, running: &Running) {
    let Some(hook) = &running.hook else { return };
    let zero_copy = running.statuses.iter().all(|status| status.zero_copy);
    match hook.mode() {
        xdp::Mode::Generic => chart.note(
            object,
            Finding::Warning,
            "generic XDP: the kernel makes an skb of each packet before the hook sees it",
            "use a driver with native XDP; see the reasons in `trivium show ports --json`",
        ),
        mode => {
            let copies = if zero_copy { "zero copy" } else { "the driver copies (no zero copy)" };
            chart.note(object, Finding::Ok, format!("{mode} XDP, {copies}"), "");
        }
    }
    if !hook.multi_buffer() {
        chart.note(
            object,
            Finding::Advice,
            "the driver takes no multi-buffer program: frames larger than a page are refused",
            "keep the MTU below 3500, or use another driver",
        );
    }
}

fn link_state(
    chart: &mut Chart,
    object: &str,
    running: &Running,
    info: &LinkInfo,
    memory: &port::FrameMemory,
) {
    let ifname = &info.name;
    if !info.up {
        chart.note(
            object,
            Finding::Error,
            format!("{ifname} is down"),
            format!("ip link set dev {ifname} up"),
        );
    } else if !running.device.as_ref().is_some_and(|device| device.running) {
        chart.note(
            object,
            Finding::Warning,
            format!("{ifname} has no carrier"),
            "set the other end up, or check the cable",
        );
    }
    let served = u32::try_from(running.queues.len()).unwrap_or(u32::MAX);
    let there = link::channels(ifname).map(|channels| channels.rx()).unwrap_or(info.rx_queues);
    if running.hook.is_some() && served < there {
        chart.note(
            object,
            Finding::Warning,
            format!(
                "{served} of {there} receive queues are served: what the device puts into the others is lost"
            ),
            format!("queues = \"all\", or `ethtool -L {ifname} combined {served}`"),
        );
    }
    if info.mtu + 18 > memory.data_room() && !running.hook.as_ref().is_none_or(xdp::Attached::multi_buffer) {
        chart.note(
            object,
            Finding::Error,
            format!("an MTU of {} does not fit into a frame of {} bytes", info.mtu, memory.frame_size()),
            "memory.frame_size = 4096, or a smaller MTU",
        );
    }
}

fn offloads(chart: &mut Chart, object: &str, running: &Running, info: &LinkInfo, features: &[Feature]) {
    let ifname = &info.name;
    let on = |name: &str| features.iter().any(|feature| feature.name == name && feature.active);
    if running.hook.is_some() && on("rx-vlan-hw-parse") {
        chart.note(
            object,
            Finding::Warning,
            format!("{ifname} takes VLAN tags out of received frames: tagged traffic looks untagged here"),
            format!("ethtool -K {ifname} rxvlan off"),
        );
    }
    if running.hook.is_some() && on("rx-lro") {
        chart.note(
            object,
            Finding::Warning,
            format!("{ifname} joins packets (LRO): frames arrive larger than the MTU"),
            format!("ethtool -K {ifname} lro off"),
        );
    }
    let foreign_veth =
        info.kind.as_deref() == Some("veth") && matches!(running.wanted.port.kind, PortKind::AfXdp(_));
    if foreign_veth {
        let completes =
            if running.complete_checksums { "they are completed here, at a cost" } else { "they break" };
        chart.note(
            object,
            Finding::Advice,
            format!("{ifname} is one end of a veth pair: its peer may leave checksums open; {completes}"),
            "at the peer: `ethtool -K PEER tx off tso off`, or let the port be of kind veth",
        );
    }
}

/// Addresses of the kernel's on a device, as `ip` would list them.
fn addresses(ifname: &str) -> Vec<String> {
    let v6 = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut found: Vec<String> = v6
        .lines()
        .filter(|line| line.split_whitespace().last() == Some(ifname))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    let routes = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    if routes.lines().skip(1).any(|line| line.split_whitespace().next() == Some(ifname)) {
        found.push("an IPv4 route".to_owned());
    }
    found
}

/// A bridged device must not speak for the kernel: one frame cannot be both the bridge's and the host's.
fn leaks(chart: &mut Chart, object: &str, running: &Running, info: &LinkInfo, addresses: &[String]) {
    if !running.wanted.bridged || running.hook.is_none() {
        return;
    }
    let ifname = &info.name;
    if !addresses.is_empty() {
        chart.note(
            object,
            Finding::Warning,
            format!("the kernel has {} on {ifname}, whose traffic never reaches it", addresses.join(", ")),
            format!("ip address flush dev {ifname}; the host joins a bridge by a port of kind internal"),
        );
    }
    if info.arp {
        chart.note(
            object,
            Finding::Warning,
            format!("the kernel's ARP is on at {ifname}: its frames leave beside the bridge"),
            format!("ip link set dev {ifname} arp off"),
        );
    }
}
