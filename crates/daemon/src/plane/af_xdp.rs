//! Opening a kernel device over AF_XDP: the hook first, then one socket per queue, then the sockets into the hook. What a
//! killed predecessor left pinned is adopted.

use control::PlaneError;
use model::{Checksums, Finding, HookPolicy, PortName, Queues, WhenDown, XdpMode, XdpOptions};
use packet::QueueId;
use port::af_xdp::{AfXdpConfig, AfXdpQueue, BusyPoll, ZeroCopy};
use port::link::{self, LinkChange, LinkInfo};
use port::{FramePool, Queue};
use xdp::{AttachMode, Attached, LocalAddresses, Owner, PinPath, PortProgram, ProgramConfig};

use super::device::{self, Device, failed, object};
use super::open::{Notes, Opened};

/// Packets that one busy poll takes at most.
const BUSY_POLL_BUDGET: u32 = 64;

/// What is to be opened.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The port's name.
    pub name: &'a PortName,
    /// How AF_XDP is used.
    pub options: &'a XdpOptions,
    /// What becomes of the hook without us.
    pub policy: HookPolicy,
    /// Whether a bridge has the port: then the kernel gets nothing of it.
    pub bridged: bool,
    /// Whether the device is of our making: its far end leaves no checksum open.
    pub own: bool,
    /// The MTU that it is to have.
    pub mtu: Option<u32>,
}

/// Opens the device of this name in the calling thread's namespace.
///
/// # Errors
/// With nothing left behind.
pub fn open(request: &Request<'_>, ifname: &str, pool: &mut FramePool) -> Result<Opened, PlaneError> {
    let name = request.name;
    let info = prepare_device(request, ifname)?;
    let queues = queues(request, &info)?;
    let mut notes = Notes::default();
    let mut hook = hook(request, &info, &mut notes)?;
    match sockets(request, &info.name, &queues, &mut hook, pool) {
        Ok(opened) => {
            notes.fallbacks(name, &hook);
            let statuses: Vec<_> = opened.iter().map(|(_, queue)| queue.status()).collect();
            let sockets =
                opened.iter().filter_map(|(_, queue)| queue.fd().try_clone_to_owned().ok()).collect();
            let queues =
                opened.into_iter().map(|(id, queue)| (id, Box::new(queue) as Box<dyn Queue>)).collect();
            Ok(Opened {
                device: Some(Device::new(&info, None)),
                hook: Some(hook),
                queues,
                statuses,
                sockets,
                complete_checksums: completes(request),
                max_mtu: info.mtu,
                notes: notes.0,
            })
        }
        Err(error) => {
            // The error that brought us here says more than one of the clean-up would.
            let _ = hook.detach();
            Err(error)
        }
    }
}

/// The device up and, on a bridged port, without ARP and IPv6 of the kernel's, whose frames would leave by it.
fn prepare_device(request: &Request<'_>, ifname: &str) -> Result<LinkInfo, PlaneError> {
    let name = request.name;
    let info = link::find(ifname).map_err(|error| failed(name, &error))?;
    let change = LinkChange {
        up: Some(true),
        arp: request.bridged.then_some(false),
        // A device of hardware filters what is not for its own address; a bridge wants everything.
        promiscuous: (request.bridged && !request.own).then_some(true),
        mtu: request.mtu.filter(|mtu| *mtu != info.mtu),
        ..LinkChange::default()
    };
    if request.bridged {
        link::disable_ipv6(ifname).map_err(|error| failed(name, &error))?;
    }
    link::set(info.ifindex, &change).map_err(|error| failed(name, &error))?;
    link::by_index(info.ifindex).map_err(|error| failed(name, &error))
}

/// Gives a device that is no port any more back to the kernel: ARP is on, frames for others are filtered. IPv6 stays off;
/// the administrator switches it on where it is wanted (`sysctl net.ipv6.conf.DEVICE.disable_ipv6=0`).
///
/// # Errors
/// If it is gone, which is none of our business.
pub fn release_device(ifname: &str) -> Result<(), link::LinkError> {
    let info = link::find(ifname)?;
    let change = LinkChange { arp: Some(true), promiscuous: Some(false), ..LinkChange::default() };
    link::set(info.ifindex, &change)
}

/// The queues to serve, in order.
fn queues(request: &Request<'_>, info: &LinkInfo) -> Result<Vec<u16>, PlaneError> {
    let there = device_queues(info);
    let wanted: Vec<u16> = match &request.options.queues {
        Queues::All => (0..there).collect(),
        Queues::First(count) => (0..*count).collect(),
        Queues::List(list) => list.iter().map(|queue| queue.0).collect(),
    };
    match wanted.iter().find(|queue| **queue >= there) {
        None => Ok(wanted),
        Some(queue) => Err(PlaneError {
            kind: control::FailureKind::Invalid,
            object: object(request.name),
            cause: format!("device {} has {there} receive queues, and queue {queue} is asked for", info.name),
            fix: format!("ask for fewer, or give it more with `ethtool -L {} combined N`", info.name),
        }),
    }
}

/// Receive queues in use; what the device was made with where its driver does not tell.
fn device_queues(info: &LinkInfo) -> u16 {
    let queues = link::channels(&info.name).map(|channels| channels.rx()).ok().filter(|queues| *queues > 0);
    u16::try_from(queues.unwrap_or(info.rx_queues).max(1)).unwrap_or(u16::MAX)
}

/// The hook's program on the device: what was left pinned if it fits, else anew.
fn hook(request: &Request<'_>, info: &LinkInfo, notes: &mut Notes) -> Result<Attached, PlaneError> {
    let name = request.name;
    let config = program(request, u32::from(device_queues(info)));
    let pin = PinPath::new(&device::pin_name(name, info.ifindex)).map_err(|error| failed(name, &error))?;
    if let Some(adopted) = adopt(&pin, info, &config, notes, name) {
        return match request.policy.persist {
            true => Ok(adopted),
            false => {
                adopted.detach().map_err(|error| failed(name, &error))?;
                attach(request, info, &config, None)
            }
        };
    }
    attach(request, info, &config, request.policy.persist.then_some(pin))
}

fn attach(
    request: &Request<'_>,
    info: &LinkInfo,
    config: &ProgramConfig,
    pin: Option<PinPath>,
) -> Result<Attached, PlaneError> {
    let mode = match request.options.mode {
        XdpMode::Auto => AttachMode::Auto,
        XdpMode::Native => AttachMode::Native,
        XdpMode::Generic => AttachMode::Generic,
    };
    PortProgram::load(config)
        .and_then(|loaded| loaded.attach(info.ifindex, mode, pin))
        .map_err(|error| failed(request.name, &error))
}

/// What a predecessor left on the device, made to fit. What cannot be adopted goes.
fn adopt(
    pin: &PinPath,
    info: &LinkInfo,
    config: &ProgramConfig,
    notes: &mut Notes,
    name: &PortName,
) -> Option<Attached> {
    let mut attached = match xdp::adopt(pin) {
        Ok(attached) => attached?,
        Err(error) => {
            notes.say(name, Finding::Advice, format!("what a predecessor left is not adopted: {error}"), "");
            return None;
        }
    };
    let fits = attached.ifindex() == info.ifindex;
    let swapped = fits && attached.prepare(config).and_then(|loaded| attached.swap(loaded)).is_ok();
    if swapped {
        notes.say(name, Finding::Ok, "the hook that a predecessor left was adopted".to_owned(), "");
        return Some(attached);
    }
    let _ = attached.detach();
    None
}

/// What the hook's program is specialised by.
pub fn program(request: &Request<'_>, queues: u32) -> ProgramConfig {
    ProgramConfig {
        owner: if request.bridged { Owner::Bridged } else { Owner::Routed },
        when_down: match request.policy.when_down {
            WhenDown::Drop => xdp::WhenDown::Drop,
            WhenDown::Pass => xdp::WhenDown::Pass,
        },
        queues,
        locals: LocalAddresses::default(),
    }
}

fn completes(request: &Request<'_>) -> bool {
    match request.options.complete_checksums {
        Checksums::Auto => !request.own,
        Checksums::On => true,
        Checksums::Off => false,
    }
}

/// One socket per queue, each in its slot of the hook's map.
fn sockets(
    request: &Request<'_>,
    ifname: &str,
    queues: &[u16],
    hook: &mut Attached,
    pool: &mut FramePool,
) -> Result<Vec<(QueueId, AfXdpQueue)>, PlaneError> {
    let options = request.options;
    let mut opened = Vec::with_capacity(queues.len());
    for &id in queues {
        let config = AfXdpConfig {
            ring_size: options.ring_size,
            fill_level: options.ring_size,
            zero_copy: match options.zero_copy {
                model::ZeroCopy::Auto => ZeroCopy::Auto,
                model::ZeroCopy::Require => ZeroCopy::Require,
                model::ZeroCopy::Off => ZeroCopy::Off,
            },
            busy_poll: (options.busy_poll > 0)
                .then_some(BusyPoll { microseconds: options.busy_poll, budget: BUSY_POLL_BUDGET }),
            multi_buffer: hook.multi_buffer(),
            complete_checksums: completes(request),
            ..AfXdpConfig::new(ifname, u32::from(id))
        };
        let step =
            AfXdpQueue::open(config, pool).map_err(|error| failed(request.name, &error)).and_then(|queue| {
                opened.push((QueueId(id), queue));
                let socket = opened.last().map(|(_, queue)| queue.fd());
                let set = socket.map_or(Ok(()), |socket| hook.set_socket(u32::from(id), socket));
                set.map_err(|error| failed(request.name, &error))
            });
        if let Err(error) = step {
            for (_, queue) in opened {
                Box::new(queue).close(pool);
            }
            return Err(error);
        }
    }
    Ok(opened)
}
