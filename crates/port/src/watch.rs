//! Watches the network devices of one namespace for changes, for example of names, states and MTUs. The
//! daemon polls the file descriptor of the watch and reads events from it.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

use crate::link::{self, LinkError, LinkInfo};
use crate::netlink::{self, Netlink};

const RTMGRP_LINK: u32 = 1;

/// A change of one network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The device was created or moved into this namespace.
    Added(LinkInfo),
    /// The device was deleted or moved out of this namespace.
    Deleted {
        /// Interface index of the device.
        ifindex: u32,
        /// Last name of the device.
        name: String,
    },
    /// The name of the device has changed.
    Renamed {
        /// Interface index of the device.
        ifindex: u32,
        /// Previous name of the device.
        from: String,
        /// New name of the device.
        to: String,
    },
    /// The administrative state or the carrier of the device has changed.
    State {
        /// Interface index of the device.
        ifindex: u32,
        /// Whether the device is administratively up.
        up: bool,
        /// Whether the device has a carrier.
        running: bool,
    },
    /// The MTU of the device has changed.
    Mtu {
        /// Interface index of the device.
        ifindex: u32,
        /// New MTU of the device in bytes.
        mtu: u32,
    },
    /// The attached XDP program or its mode has changed. The kernel reports a change of a program that was attached
    /// through netlink. The kernel does not report a change of a program that was attached through a link (`bpf_link`).
    /// Such a change is noticed when another change of the device is reported, or at a [`LinkWatch::resync`].
    Xdp {
        /// Interface index of the device.
        ifindex: u32,
        /// Mode of the program that is now attached, or `None` if no program is attached.
        attached: Option<link::XdpAttached>,
    },
}

/// A watch for the devices of the namespace in which it was opened.
pub struct LinkWatch {
    netlink: Netlink,
    known: HashMap<u32, LinkInfo>,
    overrun: bool,
}

impl LinkWatch {
    /// Opens a watch for the calling thread's namespace. The watch reads the existing devices first, and then
    /// reports changes.
    ///
    /// # Errors
    /// [`LinkError`] if the kernel refuses the subscription to changes or the listing of the devices.
    pub fn open() -> Result<Self, LinkError> {
        let netlink = Netlink::listen(RTMGRP_LINK).map_err(|e| LinkError::new("watch", "subscribing", e))?;
        // The devices are listed after the subscription, so that a change in between is seen twice and not
        // missed.
        let known = link::list()?.into_iter().map(|info| (info.ifindex, info)).collect();
        Ok(Self { netlink, known, overrun: false })
    }

    /// Returns the file descriptor of the watch, which is readable when events are pending.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.netlink.fd()
    }

    /// Returns the last known state of the device with interface index `ifindex`, or `None` if there is no
    /// such device.
    #[must_use]
    pub fn device(&self, ifindex: u32) -> Option<&LinkInfo> {
        self.known.get(&ifindex)
    }

    /// Iterates over the last known states of all devices.
    pub fn known(&self) -> impl Iterator<Item = &LinkInfo> {
        self.known.values()
    }

    /// Returns the events that have occurred since the last call. The function never blocks. If the kernel
    /// has lost notifications, events are missing. See [`Self::needs_resync`].
    ///
    /// # Errors
    /// [`LinkError`] if the netlink socket fails.
    pub fn poll(&mut self) -> Result<Vec<LinkEvent>, LinkError> {
        let mut events = Vec::new();
        loop {
            let told: Vec<_> = match self.netlink.try_receive() {
                Ok(None) => return Ok(events),
                Ok(Some(datagram)) => netlink::messages(datagram)
                    .filter_map(|message| Some((message.kind, link::parse(message.kind, message.payload)?)))
                    .collect(),
                Err(error) if error.errno() == libc::ENOBUFS => {
                    self.overrun = true;
                    continue;
                }
                Err(error) => return Err(LinkError::new("watch", "reading", error)),
            };
            for (kind, info) in told {
                if kind == libc::RTM_DELLINK {
                    self.forget(info.ifindex, &mut events);
                } else {
                    self.learn(info, &mut events);
                }
            }
        }
    }

    /// Returns whether the kernel has lost notifications. If so, the caller must call [`Self::resync`] on a
    /// thread in the watched namespace.
    #[must_use]
    pub fn needs_resync(&self) -> bool {
        self.overrun
    }

    /// Lists the devices, compares them with the last known states, and returns the differences as events.
    /// The calling thread must be in the watched namespace.
    ///
    /// # Errors
    /// [`LinkError`] if the kernel refuses the listing.
    pub fn resync(&mut self) -> Result<Vec<LinkEvent>, LinkError> {
        let mut events = Vec::new();
        let there = link::list()?;
        let present: HashSet<u32> = there.iter().map(|info| info.ifindex).collect();
        let gone: Vec<u32> =
            self.known.keys().copied().filter(|ifindex| !present.contains(ifindex)).collect();
        for ifindex in gone {
            self.forget(ifindex, &mut events);
        }
        for info in there {
            self.learn(info, &mut events);
        }
        self.overrun = false;
        Ok(events)
    }

    fn forget(&mut self, ifindex: u32, events: &mut Vec<LinkEvent>) {
        if let Some(info) = self.known.remove(&ifindex) {
            events.push(LinkEvent::Deleted { ifindex, name: info.name });
        }
    }

    fn learn(&mut self, info: LinkInfo, events: &mut Vec<LinkEvent>) {
        let ifindex = info.ifindex;
        let Some(before) = self.known.insert(ifindex, info.clone()) else {
            events.push(LinkEvent::Added(info));
            return;
        };
        if before.name != info.name {
            events.push(LinkEvent::Renamed { ifindex, from: before.name, to: info.name });
        }
        if (before.up, before.running) != (info.up, info.running) {
            events.push(LinkEvent::State { ifindex, up: info.up, running: info.running });
        }
        if before.mtu != info.mtu {
            events.push(LinkEvent::Mtu { ifindex, mtu: info.mtu });
        }
        if before.xdp != info.xdp {
            events.push(LinkEvent::Xdp { ifindex, attached: info.xdp });
        }
    }
}
