//! Opens a kernel device over AF_XDP. The steps are: attach the hook (the port's XDP program), open one AF_XDP socket
//! per queue, and enter the sockets into the hook's XSKMAP (map of AF_XDP sockets). A hook that an earlier daemon
//! process left pinned in the BPF file system is taken over (adopted).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control::PlaneError;
use model::{Checksums, Finding, HookPolicy, PortName, Queues, WhenDown, XdpMode, XdpOptions};
use packet::QueueId;
use port::af_xdp::{AfXdpCause, AfXdpConfig, AfXdpError, AfXdpQueue, BusyPoll, ZeroCopy};
use port::link::{self, LinkChange, LinkInfo};
use port::veth::EndAddresses;
use port::{FramePool, Queue, netdev};
use xdp::{
    AttachMode, Attached, Constants, Loaded, LocalAddresses, Owner, PinPath, Placeholders, PortProgram,
    ProgramConfig,
};

use super::custom_program;
use super::device::{self, Device, failed, object, unready};
use super::foreign::{self, Former};
use super::guards::guard_device;
use super::opened::{Diagnostics, Footprint, Opened};
use super::parallel;
use super::pins::{self, Claim, Reserved};
use super::port_spec::PortSpec;

// The limit that the crate `model` checks must equal the limit of the rings.
const _: () = assert!(model::LEAST_FILL == port::LEAST_FILL);

/// Maximum number of packets that one busy poll of an AF_XDP socket processes.
const BUSY_POLL_BUDGET: u32 = 64;

/// Smallest value that [`most_queues`] returns. Machines with fewer than eight CPUs get this value.
const LEAST_MOST_QUEUES: u16 = 16;

/// Parameters for opening a device as a port.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Name of the port.
    pub name: &'a PortName,
    /// AF_XDP options of the port's configuration.
    pub options: &'a XdpOptions,
    /// Policy of the hook for received packets while the daemon does not run.
    pub policy: HookPolicy,
    /// Whether the port belongs to a bridge. The hook of a bridged port passes no packets to the kernel.
    pub bridged: bool,
    /// Whether the port belongs to a bridge or router, so that workers process its packets.
    pub has_function: bool,
    /// Whether the port has a filter.
    pub is_filtered: bool,
    /// Whether the kernel also transmits packets on the device, as it does on a router interface.
    pub speaks: bool,
    /// Whether the daemon created the device, as one end of a veth pair. The other end of such a
    /// pair sends only packets with complete checksums.
    pub own: bool,
    /// MTU in bytes to set on the device. `None` leaves the MTU as it is.
    pub mtu: Option<u32>,
    /// Settings that the device had before this process changed them. `None` if they are not known.
    pub former: Option<Former>,
    /// Ethernet addresses of the two ends of a veth pair that the daemon created. If the pair must be created again,
    /// its ends get these addresses.
    pub ends: EndAddresses,
    /// Time limit for waiting until the kernel releases the previous AF_XDP socket of a queue.
    pub busy_wait: Duration,
    /// State that is shared by all ports opened while the daemon starts. `None` if the start is complete.
    pub start: Option<&'a Start>,
}

/// State that ports share while the daemon starts. The hooks of new ports first run a placeholder program. The kernel
/// therefore verifies only one program of each port: the program with all its stages, which is loaded later. At the end
/// of the start, [`complete`] replaces the remaining placeholders.
#[derive(Debug, Default)]
pub struct Start {
    placeholders: Placeholders,
    /// Whether a port has already been opened. The first port gets its own program immediately, without a placeholder.
    /// If the kernel refuses that program, the daemon stops before it changes other ports.
    is_tried: AtomicBool,
}

impl Start {
    /// Loads the first XDP program for a port's hook. The first port gets its own program. All other ports get a
    /// placeholder, or their own program if no placeholder can be loaded.
    fn load(&self, config: &ProgramConfig) -> Result<Loaded, xdp::Error> {
        if !self.is_tried.swap(true, Ordering::Relaxed) {
            return PortProgram::load(config);
        }
        // Without a placeholder, the port gets its own program, or the error of that program.
        PortProgram::load_placeholder(config, &self.placeholders).or_else(|_| PortProgram::load(config))
    }
}

/// Replaces the placeholder programs of ports' hooks with the ports' own programs, in parallel.
///
/// # Errors
/// Returns the error of the first port whose program the kernel refuses.
pub fn complete<'p>(hooks: impl Iterator<Item = (&'p PortName, &'p mut Attached)>) -> Result<(), PlaneError> {
    let left = hooks.filter(|(_, hook)| hook.is_placeholder()).collect();
    let completed = parallel::each(true, left, |(name, hook): (&PortName, &mut Attached)| {
        let completed = hook.complete().map_err(|error| failed(name, &error));
        unless_detached(name, hook, completed)
    });
    completed.into_iter().collect()
}

/// Opens the device `found` as an AF_XDP port. The device must be in the calling thread's network namespace. `reserved`
/// is the lock on the device, if the caller has locked it already.
///
/// # Errors
/// Returns an error if the kernel or the device refuses a step. Completed steps are undone.
pub fn open(
    request: &Request<'_>,
    found: &LinkInfo,
    reserved: Option<Reserved>,
    pool: &mut FramePool,
) -> Result<Opened, PlaneError> {
    let name = request.name;
    let reserved = reserved.map_or_else(|| pins::reserve(name, &found.name, found.ifindex), Ok)?;
    // Another process may have changed the device in the meantime, and may have restored its settings.
    let found = &link::by_index(found.ifindex).map_err(|error| failed(name, &error))?;
    probe(request, found)?;
    let known = request.former.filter(|former| former.ifindex == found.ifindex);
    let before = known.unwrap_or_else(|| Former::of(found));
    if let Some(former) = known.filter(|_| !request.bridged && !request.own) {
        // The device belonged to a bridge until now.
        former.listen_again().map_err(|error| failed(name, &error))?;
    }
    let mut opened =
        prepare_device(request, found).and_then(|info| open_prepared(request, &info, reserved, pool));
    match &mut opened {
        // An adopted device whose former settings are not known was changed by a predecessor. The kernel's default
        // settings are taken as its former settings.
        Ok(opened) if opened.adopted && known.is_none() => {
            opened.footprint.former = Some(Former::usual(found));
        }
        Ok(opened) => opened.footprint.former = Some(before),
        // The original error is more useful than an error of the clean-up.
        Err(_) if !request.own => drop(before.restore(request.bridged, request.mtu.is_some())),
        Err(_) => {}
    }
    opened
}

/// Checks that the port's queues exist. If `request` does not wait for busy queues, also checks
/// that no AF_XDP socket is bound to the queues. The daemon tries several times a second to open a
/// port with a busy queue. Without this check, each try would change the device's settings and
/// attach a program.
fn probe(request: &Request<'_>, found: &LinkInfo) -> Result<(), PlaneError> {
    for queue in queues(request, found, device_queues(found))? {
        let queue = u32::from(queue);
        // If the kernel does not report whether the queue is busy, the later attempt to bind a socket detects it.
        if request.busy_wait.is_zero() && netdev::has_xsk(found.ifindex, queue).unwrap_or(false) {
            let busy = AfXdpError { device: found.name.clone(), queue, cause: AfXdpCause::QueueBusy };
            return Err(unready(request.name, &busy));
        }
    }
    Ok(())
}

fn open_prepared(
    request: &Request<'_>,
    info: &LinkInfo,
    reserved: Reserved,
    pool: &mut FramePool,
) -> Result<Opened, PlaneError> {
    let name = request.name;
    let there = device_queues(info);
    let queues = queues(request, info, there)?;
    let mut notes = Diagnostics::default();
    let (hook, adopted, former_constants) = hook(request, info, there, &mut notes)?;
    let claim = Claim::after(reserved, &hook);
    match sockets(request, &info.name, &queues, &hook, pool) {
        Ok(opened) => {
            notes.fallbacks(name, &hook);
            let statuses: Vec<_> = opened.iter().map(|(_, queue)| queue.status()).collect();
            let duplicate =
                |(id, queue): &(QueueId, AfXdpQueue)| Some((*id, queue.fd().try_clone_to_owned().ok()?));
            let sockets = opened.iter().filter_map(duplicate).collect();
            let queues =
                opened.into_iter().map(|(id, queue)| (id, Box::new(queue) as Box<dyn Queue>)).collect();
            Ok(Opened {
                device: Some(Device::new(info, None)),
                hook: Some(hook),
                queues,
                statuses,
                sockets,
                complete_checksums: completes(request.options, request.own),
                own: None,
                max_mtu: info.mtu,
                footprint: Footprint::default(),
                adopted,
                former_constants,
                claim,
                notes: notes.0,
            })
        }
        // A persistent hook of a predecessor stays attached and continues without sockets.
        Err(error) if adopted && request.policy.persist => Err(error),
        Err(error) => {
            // The original error is more useful than an error of the clean-up.
            let _ = hook.detach();
            Err(error)
        }
    }
}

/// Sets the device administratively up and sets its MTU. On the device of a bridged port, also disables the
/// kernel's ARP and IPv6.
fn prepare_device(request: &Request<'_>, found: &LinkInfo) -> Result<LinkInfo, PlaneError> {
    let name = request.name;
    if request.bridged && !request.own {
        foreign::silence(found).map_err(|error| failed(name, &error))?;
    }
    let mtu = request.mtu.filter(|mtu| *mtu != found.mtu);
    // A veth pair that the daemon has just created or adopted is up already.
    if request.own && found.up && mtu.is_none() {
        return Ok(found.clone());
    }
    let change = LinkChange { up: Some(true), mtu, ..LinkChange::default() };
    link::set(found.ifindex, &change).map_err(|error| failed(name, &error))?;
    link::by_index(found.ifindex).map_err(|error| failed(name, &error))
}

/// Returns the indices of the device queues to serve, in ascending order. `there` is the number of queues of the
/// device.
fn queues(request: &Request<'_>, info: &LinkInfo, there: u16) -> Result<Vec<u16>, PlaneError> {
    if matches!(request.options.queues, Queues::All) && there > most_queues() {
        return Err(PlaneError {
            kind: control::FailureKind::Invalid,
            object: object(request.name),
            cause: format!(
                "device {} has {there} receive queues, and `queues = \"all\"` serves at most {} on this machine: each queue takes frames \
                 from the other ports",
                info.name,
                most_queues()
            ),
            fix: format!(
                "set `queues = {there}`, or give it fewer with `ethtool -L {} combined N`",
                info.name
            ),
        });
    }
    let wanted = queue_indices(&request.options.queues, there);
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

/// Returns the indices of the queues that the configuration names. `there` is the number of queues of the device.
pub fn queue_indices(queues: &Queues, there: u16) -> Vec<u16> {
    match queues {
        Queues::All => (0..there).collect(),
        Queues::First(count) => (0..*count).collect(),
        Queues::List(list) => list.iter().map(|queue| queue.0).collect(),
    }
}

/// Returns the maximum number of queues that `queues = "all"` serves: two for each CPU, and at
/// least [`LEAST_MOST_QUEUES`]. The maximum matters for virtual devices, which can have up to 4096
/// queues. Drivers of network cards create one queue for each CPU.
fn most_queues() -> u16 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u16::try_from(2 * cpus).unwrap_or(u16::MAX).max(LEAST_MOST_QUEUES)
}

/// Returns the number of receive queues that a device uses. If the driver does not report it, returns the number with
/// which the device was created.
pub fn device_queues(info: &LinkInfo) -> u16 {
    let queues = link::channels(&info.name).map(|channels| channels.rx()).ok().filter(|queues| *queues > 0);
    u16::try_from(queues.unwrap_or(info.rx_queues).max(1)).unwrap_or(u16::MAX)
}

/// Attaches a hook to the device, or takes over a suitable pinned hook that an earlier daemon process left there. The
/// returned flag is true if a hook was taken over. If this hook stays attached, its former constants are returned, too.
/// `queues` is the number of queues of the device.
///
/// A former hook that cannot be taken over is detached only after the program of its successor is loaded. If the port
/// has a filter, a guard program drops the frames that the device passes to the kernel until the next hook is attached.
/// The program of the next hook drops all frames until the filter is installed.
fn hook(
    request: &Request<'_>,
    info: &LinkInfo,
    queues: u16,
    notes: &mut Diagnostics,
) -> Result<(Attached, bool, Option<Constants>), PlaneError> {
    let name = request.name;
    let config = program(request.policy, request.bridged, u32::from(queues));
    let pin = PinPath::new(&device::pin_name(name, info.ifindex)).map_err(|error| failed(name, &error))?;
    let (former, was_there) = match adopt(&pin, request, info, &config, notes) {
        Some((adopted, Some(former))) if request.policy.persist => return Ok((adopted, true, Some(former))),
        Some((former, constants)) => (Some(former), constants.is_some()),
        None => (None, false),
    };
    let first = if request.is_filtered { locked(&config) } else { config };
    // No placeholder is used if there is a custom program, because a custom program continues with the port's own
    // program.
    let start = request.start.filter(|_| former.as_ref().is_none_or(|former| former.user().is_none()));
    let loaded = start.map_or_else(|| PortProgram::load(&first), |start| start.load(&first));
    // If the kernel refuses the program, the former hook stays attached.
    let loaded = loaded.map_err(|error| failed(name, &error))?;
    let _guard =
        former.as_ref().filter(|_| request.is_filtered).and_then(|_| guard_device(name, info.ifindex));
    let (user, detached) = former.map_or((None, Ok(())), Attached::detach_from_user);
    detached.map_err(|error| failed(name, &error))?;
    let pin = request.policy.persist.then_some(pin);
    let mut attached = attach(request, info, loaded, pin)?;
    if let Some(user) = user {
        notes.0.push(custom_program::give(name, Some(&mut attached), user));
    }
    Ok((attached, was_there, None))
}

fn attach(
    request: &Request<'_>,
    info: &LinkInfo,
    loaded: Loaded,
    pin: Option<PinPath>,
) -> Result<Attached, PlaneError> {
    let mode = match request.options.mode {
        XdpMode::Auto => AttachMode::Auto,
        XdpMode::Native => AttachMode::Native,
        XdpMode::Generic => AttachMode::Generic,
    };
    loaded.attach(info.ifindex, mode, pin).map_err(|error| failed(request.name, &error))
}

/// Returns the pinned hook that an earlier daemon process left on the device. If the hook suits the port, its program
/// has been replaced, and the constants of the former program are returned. Returns `None` if there is no such hook.
///
/// If the filter of the former program belongs to another function of the port, or if the hook lacks the filter, the
/// new program drops all frames until the filter is installed.
fn adopt(
    pin: &PinPath,
    request: &Request<'_>,
    info: &LinkInfo,
    config: &ProgramConfig,
    notes: &mut Diagnostics,
) -> Option<(Attached, Option<Constants>)> {
    let name = request.name;
    let mut attached = match xdp::adopt(pin) {
        Ok(attached) => attached?,
        Err(error) => {
            notes.say(name, Finding::Advice, format!("what a predecessor left is not adopted: {error}"), "");
            return None;
        }
    };
    let fits = attached.ifindex() == info.ifindex;
    let former = attached.constants();
    let first = match must_close(request.is_filtered, has_filter(&attached), former, config) {
        true => &locked(config),
        false => config,
    };
    let swapped = fits && attached.prepare(first).and_then(|loaded| attached.swap(loaded)).is_ok();
    if swapped {
        let user = attached.user().map(|user| format!(", with the user's program {} in front", user.name()));
        let adopted = format!("the hook that a predecessor left was adopted{}", user.unwrap_or_default());
        notes.say(name, Finding::Ok, adopted, "");
    }
    Some((attached, swapped.then_some(former)))
}

/// Returns whether an adopted hook must drop all frames until the port's filter is installed or removed. This is the
/// case if the hook lacks the filter, or if the filter of the hook belongs to another function of the port.
/// `is_filtered` means that the port has a filter, `has_filter` means that the adopted hook has a filter, and `former`
/// contains the constants of the adopted hook.
fn must_close(is_filtered: bool, has_filter: bool, former: Constants, config: &ProgramConfig) -> bool {
    let is_other_function = (former.owner, former.when_down) != (config.owner, config.when_down);
    let (lacks_filter, is_about_filter) = (is_filtered && !has_filter, is_filtered || has_filter);
    lacks_filter || is_other_function && is_about_filter
}

/// Returns the configuration of a hook's program. The program of a port without a function passes all packets to the
/// kernel.
pub fn program(policy: HookPolicy, bridged: bool, queues: u32) -> ProgramConfig {
    ProgramConfig {
        owner: if bridged { Owner::Bridged } else { Owner::Routed },
        when_down: match policy.when_down {
            WhenDown::Drop if bridged => xdp::WhenDown::Drop,
            WhenDown::Drop | WhenDown::Pass => xdp::WhenDown::Pass,
        },
        queues,
        locals: LocalAddresses::default(),
    }
}

/// Returns a copy of `config` for a program that drops every frame.
fn locked(config: &ProgramConfig) -> ProgramConfig {
    ProgramConfig { owner: Owner::Closed, when_down: xdp::WhenDown::Drop, ..config.clone() }
}

/// Returns whether a hook drops all frames. It passes frames again when the filter of its port is in place and, in a
/// change, the workers have the new configuration.
pub fn is_locked(hook: &Attached) -> bool {
    hook.constants().owner == Owner::Closed
}

fn has_filter(hook: &Attached) -> bool {
    hook.filter_id().is_ok_and(|filter| filter.is_some())
}

/// Installs the port's own program in a hook. If workers process the port's packets, the function also enters the
/// port's AF_XDP sockets into the hook's XSKMAP. Otherwise it removes the sockets from the map. If the hook drops all
/// frames, its filter must be installed before.
///
/// # Errors
/// Returns an error if the kernel refuses the program or an entry of the XSKMAP. A hook that drops all frames then
/// continues to do so.
pub fn unlock(
    name: &PortName,
    wanted: &PortSpec,
    hook: &mut Attached,
    sockets: &[(QueueId, OwnedFd)],
) -> Result<(), PlaneError> {
    let config = program(wanted.policy, wanted.bridged, hook.constants().queues);
    let changed = if is_locked(hook) {
        // The program is the last step, so that an error leaves the hook closed.
        steer(hook, sockets, wanted.has_function()).and_then(|()| swap(hook, &config))
    } else {
        swap(hook, &config).and_then(|()| steer(hook, sockets, wanted.has_function()))
    };
    changed.map_err(|error| failed(name, &error))
}

/// Checks that the kernel accepts the program that [`unlock`] installs in a hook. The hook is not changed.
///
/// # Errors
/// Returns an error if the kernel refuses the program.
pub fn check_unlock(name: &PortName, wanted: &PortSpec, hook: &Attached) -> Result<(), PlaneError> {
    let config = program(wanted.policy, wanted.bridged, hook.constants().queues);
    hook.prepare(&config).map(drop).map_err(|error| failed(name, &error))
}

/// Leaves an adopted hook attached to its device for the next start of the daemon. `former` contains the constants that
/// the hook had before its adoption ([`Opened::former_constants`]). If they are given, the hook gets them again, and
/// forwards as before the start that failed. Otherwise, the hook forwards as the configuration states. A hook that
/// lacks the filter of the configuration continues to drop all frames.
pub fn leave(name: &PortName, wanted: &PortSpec, hook: Option<Attached>, former: Option<Constants>) {
    let Some(mut hook) = hook else { return };
    let left = match former {
        Some(former) if former == hook.constants() => Ok(()),
        Some(Constants { owner, when_down, queues }) => {
            let config = ProgramConfig { owner, when_down, queues, locals: LocalAddresses::default() };
            swap(&mut hook, &config).map_err(|error| failed(name, &error))
        }
        None if is_locked(&hook) && wanted.filter().is_some() == has_filter(&hook) => {
            unlock(name, wanted, &mut hook, &[])
        }
        None => Ok(()),
    };
    let drops_all = is_locked(&hook) && former.is_none_or(|former| former.owner != Owner::Closed);
    if let Err(error) = left {
        tracing::warn!(port = %name, %error, "its hook could not be left as it was before the start that failed");
    }
    if drops_all {
        tracing::warn!(port = %name, "its hook drops all frames until the next start");
    }
}

/// Installs a program in a hook that drops every frame. [`unlock`] ends that.
///
/// # Errors
/// Returns an error if the kernel refuses the program.
pub fn lock(name: &PortName, wanted: &PortSpec, hook: &mut Attached) -> Result<(), PlaneError> {
    let config = locked(&program(wanted.policy, wanted.bridged, hook.constants().queues));
    swap(hook, &config).map_err(|error| failed(name, &error))
}

/// Replaces the program of a hook.
fn swap(hook: &mut Attached, config: &ProgramConfig) -> Result<(), xdp::Error> {
    let loaded = hook.prepare(config)?;
    hook.swap(loaded)
}

/// Enters a running port's AF_XDP sockets into its hook's XSKMAP, so that workers receive the port's packets. If the
/// port has no function, removes the sockets from the map.
///
/// # Errors
/// Returns an error if an entry of the XSKMAP cannot be written.
pub fn steer(hook: &Attached, sockets: &[(QueueId, OwnedFd)], has_function: bool) -> Result<(), xdp::Error> {
    for (id, socket) in sockets {
        let queue = u32::from(id.0);
        if has_function {
            hook.set_socket(queue, socket.as_fd())?;
        } else {
            hook.clear_socket(queue)?;
        }
    }
    Ok(())
}

/// Returns the result `changed` of a change of a port's hook. An error is replaced by success if the hook is detached,
/// because its device was deleted or another program has detached the hook. The next poll of the devices then opens the
/// port again with all stages of its hook. Such a port therefore does not make a change of several ports fail.
///
/// # Errors
/// Returns the error in `changed` if the hook is attached.
pub fn unless_detached(
    name: &PortName,
    hook: &Attached,
    changed: Result<(), PlaneError>,
) -> Result<(), PlaneError> {
    let Err(error) = changed else { return Ok(()) };
    if hook.is_alive().unwrap_or(true) {
        return Err(error);
    }
    tracing::warn!(port = %name, %error, "its hook is detached, and is changed when the port is opened again");
    Ok(())
}

/// Returns whether the port completes the transport checksums that senders left to offloading. `own` means that the
/// daemon created the device.
pub fn completes(options: &XdpOptions, own: bool) -> bool {
    match options.complete_checksums {
        Checksums::Auto => !own,
        Checksums::On => true,
        Checksums::Off => false,
    }
}

/// Opens one AF_XDP socket per queue. If workers process the port's packets, each socket is also entered into the
/// hook's XSKMAP.
fn sockets(
    request: &Request<'_>,
    ifname: &str,
    queues: &[u16],
    hook: &Attached,
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
            complete_checksums: completes(options, request.own),
            busy_wait: request.busy_wait,
            ..AfXdpConfig::new(ifname, u32::from(id))
        };
        let refused = |error: AfXdpError| match error.cause {
            AfXdpCause::QueueBusy => unready(request.name, &error),
            _ => failed(request.name, &error),
        };
        let step = AfXdpQueue::open(config, pool).map_err(refused).and_then(|queue| {
            opened.push((QueueId(id), queue));
            let socket = opened.last().filter(|_| request.has_function).map(|(_, queue)| queue.fd());
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

#[cfg(test)]
mod tests {
    use xdp::WhenDown;

    use super::*;

    #[test]
    fn an_adopted_hook_with_the_filter_of_another_function_is_closed() {
        let config = |owner, when_down| ProgramConfig {
            owner,
            when_down,
            queues: 1,
            locals: LocalAddresses::default(),
        };
        let (bridged, routed) =
            (config(Owner::Bridged, WhenDown::Drop), config(Owner::Routed, WhenDown::Pass));
        let passing = config(Owner::Bridged, WhenDown::Pass);
        let closed = |is_filtered, has_filter, former: &ProgramConfig, config: &ProgramConfig| {
            must_close(is_filtered, has_filter, Constants::from(former), config)
        };
        // The hook lacks the filter.
        assert!(closed(true, false, &bridged, &bridged));
        // The hook has a filter for another function.
        assert!(closed(true, true, &bridged, &routed) && closed(true, true, &bridged, &passing));
        assert!(closed(false, true, &bridged, &routed));
        // Without a filter before and after, no frame is dropped. A filter that changes later is exchanged in one step.
        assert!(!closed(false, false, &bridged, &routed));
        assert!(!closed(true, true, &bridged, &bridged) && !closed(false, true, &routed, &routed));
    }
}
