//! Opens ports: creates the queues of a port as its configuration states. There is one function for each kind of port.

use std::path::Path;
use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::{PcapTiming, PortKind, PortName};
use packet::{MacAddr, QueueId};
use port::link;
use port::netns::Netns;
use port::null::NullQueue;
use port::pcap::{PcapConfig, PcapError, PcapQueue, Timing};
use port::tap::{Tap, TapConfig};
use port::veth::{self, EndAddresses, VethConfig, VethError};
use port::{FramePool, Queue};
use xdp::Attached;

use super::af_xdp::{self, Request, Start};
use super::device::{Device, failed, inside, object, unready};
use super::devices::identity;
use super::fault;
use super::pins;
use crate::file;

pub use super::opened::{Footprint, Opened};
pub use super::port_spec::{ETHERNET_MTU, PortSpec};

/// Maximum size in bytes of a pcap file that is replayed.
const REPLAY_LIMIT: u64 = 2 << 30;

impl Opened {
    /// Makes the port's hook (XDP program) pass frames to the workers or the kernel. The port's filter must be
    /// installed in the hook.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the hook's program. The hook then continues to drop all frames.
    pub fn unlock(&mut self, name: &PortName, wanted: &PortSpec) -> Result<(), PlaneError> {
        match self.hook.as_mut().filter(|hook| af_xdp::is_locked(hook)) {
            Some(hook) => af_xdp::unlock(name, wanted, hook, &self.sockets),
            None => Ok(()),
        }
    }
}

/// Opens a port. `known` contains the settings that the device had before it became a port and, if the daemon created
/// the device, its Ethernet addresses. `busy_wait` is the maximum time to wait until the kernel releases the previous
/// AF_XDP socket of a queue. `start` is the state that the ports of a starting daemon share.
///
/// # Errors
/// Returns an error with the port, the cause and the next step. Completed steps are undone. The error is
/// [`FailureKind::Unready`] if a later attempt may succeed.
pub fn open(
    name: &PortName,
    wanted: &PortSpec,
    known: &Footprint,
    busy_wait: Duration,
    start: Option<&Start>,
    pool: &mut FramePool,
) -> Result<Opened, PlaneError> {
    let Footprint { former, ends, .. } = *known;
    let mtu = wanted.mtu();
    let (policy, bridged) = (wanted.policy, wanted.bridged);
    let (has_function, speaks) = (wanted.has_function(), wanted.speaks());
    let is_filtered = wanted.filter().is_some();
    let request = |options, own| Request {
        name,
        options,
        policy,
        bridged,
        has_function,
        is_filtered,
        speaks,
        own,
        mtu,
        former,
        ends,
        busy_wait,
        start,
    };
    let mut opened = match &wanted.port.kind {
        PortKind::AfXdp(port) => {
            let request = request(&port.xdp, false);
            inside(&object(name), port.namespace.as_ref(), || {
                let found = link::find(port.device.as_str()).map_err(|error| failed(name, &error))?;
                af_xdp::open(&request, &found, None, pool)
            })?
        }
        PortKind::Veth(port) => {
            let request = request(&port.xdp, true);
            inside(&object(name), port.namespace.as_ref(), || veth(&request, port, pool))?
        }
        PortKind::Tap(port) => tap(name, port, "tap", mtu, ends.near)?,
        PortKind::Internal(port) => tap(name, port, "internal", mtu, ends.near)?,
        PortKind::Pcap(port) => pcap(name, port)?,
        PortKind::Patch(_) => in_memory(Box::new(NullQueue::of_kind("patch"))),
        PortKind::Ring(_) => return Err(no_far_end(name)),
        PortKind::Null => in_memory(fault::queue().unwrap_or_else(|| Box::new(NullQueue::default()))),
    };
    if let (Some(device), Some((_, namespace))) = (&mut opened.device, wanted.port.kind.device()) {
        device.namespace = namespace.cloned();
    }
    if opened.device.is_none() {
        opened.max_mtu = mtu.unwrap_or(opened.max_mtu);
    }
    Ok(opened)
}

/// Returns the error for a port of kind `ring`. The daemon cannot open such a port: the peer of a ring port is a
/// program that embeds the engine as a library, and the daemon is not such a program.
fn no_far_end(name: &PortName) -> PlaneError {
    PlaneError {
        kind: FailureKind::Invalid,
        object: object(name),
        cause: "the other end of a ring belongs to a program that embeds the engine, and this daemon is none"
            .to_owned(),
        fix: "use kind = \"null\" to swallow packets, or \"pcap\" to keep them".to_owned(),
    }
}

/// Returns the reason why a port of this kind cannot be opened yet, if its device or a namespace is missing. Returns
/// `None` if nothing is missing.
pub fn absent(kind: &PortKind) -> Option<String> {
    let (device, namespace) = kind.device()?;
    let peer = kind.far_device().and_then(|(_, namespace)| namespace);
    let missing = [namespace, peer].into_iter().flatten().find(|namespace| !namespace.path().exists());
    if let Some(namespace) = missing {
        return Some(format!("there is no network namespace {namespace}"));
    }
    let PortKind::AfXdp(_) = kind else { return None };
    let found = inside(device.as_str(), namespace, || Ok(link::find(device.as_str())));
    found.ok()?.err().filter(link::LinkError::is_missing).map(|_| format!("there is no device {device}"))
}

/// Returns the settings for a port's veth pair. `speaks` means that the kernel also transmits packets on the near end
/// (the end of the pair that the daemon uses as the port).
pub fn pair(port: &model::Veth, mtu: Option<u32>, speaks: bool) -> VethConfig {
    VethConfig {
        netns: port.peer.namespace.as_ref().map(|namespace| Netns::Path(namespace.path())),
        addresses: port.peer.address.clone(),
        mtu: mtu.unwrap_or(ETHERNET_MTU),
        far_mtu: port.peer.mtu.map(|mtu| u32::from(mtu.get())),
        mac: port.peer.mac,
        speaks,
        queues: u32::try_from(port.xdp.queues.count().unwrap_or(1)).unwrap_or(1),
        ..VethConfig::new(port.device.as_str(), port.peer.name.as_str())
    }
}

/// Opens a veth pair as a port. The near end (the end of the pair that the daemon uses as the port) is opened over
/// AF_XDP. An existing pair is used.
fn veth(request: &Request<'_>, port: &model::Veth, pool: &mut FramePool) -> Result<Opened, PlaneError> {
    let wanted = VethConfig { first: request.ends, ..pair(port, request.mtu, request.speaks) };
    // A pair that another process serves is not changed.
    let reserved = match link::find(port.device.as_str()) {
        Ok(found) => Some((found.ifindex, pins::reserve(request.name, port.device.as_str(), found.ifindex)?)),
        Err(_) => None,
    };
    let made = veth::ensure(&wanted).map_err(|error| match &error {
        VethError::Foreign { .. } => failed(request.name, &error),
        VethError::Link { source, .. } if source.is_forbidden() => failed(request.name, &error),
        // The owner of the far end's namespace may have renamed the far end, taken its name, or disabled
        // IPv6.
        _ => unready(request.name, &error),
    })?;
    // A veth pair that was created again has another interface index, so its device is not reserved yet.
    let reserved =
        reserved.filter(|(ifindex, _)| *ifindex == made.near.ifindex).map(|(_, reserved)| reserved);
    let mut opened = af_xdp::open(request, &made.near, reserved, pool);
    match &mut opened {
        Ok(opened) => {
            let ends = EndAddresses { near: made.near.mac, far: made.far.mac };
            opened.footprint = Footprint { made: !made.adopted, former: None, ends };
        }
        // The original error is more useful than an error of the clean-up.
        Err(_) if !made.adopted => drop(veth::remove(port.device.as_str())),
        Err(_) => {}
    }
    opened
}

/// Opens a TAP device. The kernel removes the device when its last queue is closed. `first` is the Ethernet address
/// that the TAP had when the port was last open.
fn tap(
    name: &PortName,
    port: &model::Tap,
    kind: &'static str,
    mtu: Option<u32>,
    first: Option<MacAddr>,
) -> Result<Opened, PlaneError> {
    let wanted = TapConfig {
        kind,
        netns: port.namespace.as_ref().map(|namespace| Netns::Path(namespace.path())),
        queues: u32::from(port.queues),
        addresses: port.address.clone(),
        mtu: mtu.unwrap_or(ETHERNET_MTU),
        mac: port.mac.or(first),
        ..TapConfig::new(port.device.as_str())
    };
    let namespace_file = port.namespace.as_ref().and_then(|namespace| identity(namespace).ok());
    let made = Tap::create(&wanted).map_err(|error| failed(name, &error))?;
    let device = Device {
        driver: Some("tun".to_owned()),
        namespace_file,
        ..Device::new(&made.link, port.namespace.as_ref())
    };
    let queues: Vec<(QueueId, Box<dyn Queue>)> = (0..)
        .map(QueueId)
        .zip(made.queues)
        .map(|(id, queue)| (id, Box::new(queue) as Box<dyn Queue>))
        .collect();
    Ok(Opened {
        own: None,
        max_mtu: made.link.mtu,
        device: Some(device),
        hook: None,
        statuses: queues.iter().map(|(_, queue)| queue.status()).collect(),
        sockets: Vec::new(),
        queues,
        complete_checksums: false,
        footprint: Footprint {
            ends: EndAddresses { near: made.link.mac, far: None },
            ..Footprint::default()
        },
        adopted: false,
        former_constants: None,
        claim: None,
        notes: Vec::new(),
    })
}

fn pcap(name: &PortName, port: &model::Pcap) -> Result<Opened, PlaneError> {
    let wanted = PcapConfig {
        name: name.as_str().to_owned(),
        read: port.read.clone(),
        write: port.write.clone(),
        timing: match port.timing {
            PcapTiming::File => Timing::Original,
            PcapTiming::FlatOut => Timing::FlatOut,
        },
        rounds: (!port.repeat).then_some(1),
    };
    let opened = |path: &Path, file: std::io::Result<std::fs::File>| {
        let file = file.map_err(|source| PcapError::Open { path: path.to_owned(), source });
        file.map_err(|error| failed(name, &error))
    };
    let read =
        port.read.as_deref().map(|path| opened(path, file::read_from(path, REPLAY_LIMIT))).transpose()?;
    let write = port.write.as_deref().map(|path| opened(path, file::write_to(path))).transpose()?;
    let queue = PcapQueue::over(&wanted, read, write, Box::new(wall_clock));
    let queue = queue.map_err(|error| failed(name, &error))?;
    Ok(in_memory(Box::new(queue)))
}

/// Returns the current time in nanoseconds since 1970.
fn wall_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Closes a port that was opened and cannot be used because a later step failed. Undoes the changes that
/// opening the port made on the machine.
pub fn abandon(name: &PortName, wanted: &PortSpec, opened: Opened, pool: &mut FramePool) {
    drop(opened.sockets);
    for (_, queue) in opened.queues {
        queue.close(pool);
    }
    if let Some(Err(error)) = opened.hook.map(Attached::detach) {
        tracing::warn!(port = %name, %error, "a hook could not be taken off");
    }
    unmake(name, wanted, &opened.footprint);
}

/// Removes the device that the daemon created for a port, or restores the saved settings of a device that the
/// daemon did not create.
pub fn unmake(name: &PortName, wanted: &PortSpec, footprint: &Footprint) {
    let Some((device, namespace)) = wanted.port.kind.device() else { return };
    let undone = inside(&object(name), namespace, || match (&wanted.port.kind, footprint.former) {
        (PortKind::Veth(_), _) if footprint.made => {
            veth::remove(device.as_str()).map_err(|error| failed(name, &error))
        }
        (PortKind::AfXdp(_), Some(former)) => {
            let restored = former.restore(wanted.bridged, wanted.port.mtu.is_some());
            restored.map_err(|error| failed(name, &error))
        }
        _ => Ok(()),
    });
    if let Err(error) = undone {
        tracing::warn!(%error, "the device was not made what it was");
    }
}

fn in_memory(queue: Box<dyn Queue>) -> Opened {
    Opened {
        device: None,
        hook: None,
        statuses: vec![queue.status()],
        sockets: Vec::new(),
        own: None,
        max_mtu: queue.capabilities().max_frame.saturating_sub(14).min(9000),
        queues: vec![(QueueId(0), queue)],
        complete_checksums: false,
        footprint: Footprint::default(),
        adopted: false,
        former_constants: None,
        claim: None,
        notes: Vec::new(),
    }
}
