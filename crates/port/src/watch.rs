//! What happens to devices while the program runs: deleted, renamed, up and down, another MTU. The daemon polls the
//! descriptor and reads events; one watch serves one network namespace.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

use crate::link::{self, LinkError, LinkInfo};
use crate::netlink::{self, Netlink};

const RTMGRP_LINK: u32 = 1;

/// One change of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// It appeared (or moved into this namespace).
    Added(LinkInfo),
    /// It was deleted (or moved out of this namespace).
    Deleted {
        /// Its index.
        ifindex: u32,
        /// Its last name.
        name: String,
    },
    /// It has another name.
    Renamed {
        /// Its index.
        ifindex: u32,
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
    /// The administrator set it up or down, or its carrier came or went.
    State {
        /// Its index.
        ifindex: u32,
        /// Set up.
        up: bool,
        /// Operational.
        running: bool,
    },
    /// It has another MTU.
    Mtu {
        /// Its index.
        ifindex: u32,
        /// Now.
        mtu: u32,
    },
    /// An XDP program came or went, or it was attached in another mode. The kernel tells this of programs that were attached
    /// through netlink; of links (`bpf_link`) only the next other change or a [`LinkWatch::resync`] tells.
    Xdp {
        /// Its index.
        ifindex: u32,
        /// Now.
        attached: Option<link::XdpAttached>,
    },
}

/// A subscription to the devices of the namespace in which it was opened.
pub struct LinkWatch {
    netlink: Netlink,
    known: HashMap<u32, LinkInfo>,
    overrun: bool,
}

impl LinkWatch {
    /// Subscribes in the calling thread's namespace. Changes from now on are reported; what is there now is known.
    ///
    /// # Errors
    /// [`LinkError`] when the kernel refuses.
    pub fn open() -> Result<Self, LinkError> {
        let netlink = Netlink::listen(RTMGRP_LINK).map_err(|e| LinkError::new("watch", "subscribing", e))?;
        // Listed after the subscription: what happens in between is seen twice rather than never.
        let known = link::list()?.into_iter().map(|info| (info.ifindex, info)).collect();
        Ok(Self { netlink, known, overrun: false })
    }

    /// Readable when events wait.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.netlink.fd()
    }

    /// Returns the device of this number as last heard of.
    #[must_use]
    pub fn device(&self, ifindex: u32) -> Option<&LinkInfo> {
        self.known.get(&ifindex)
    }

    /// The devices as last heard of.
    pub fn known(&self) -> impl Iterator<Item = &LinkInfo> {
        self.known.values()
    }

    /// The events since the last call; never blocks. After an overrun of the socket events are missing: see
    /// [`Self::needs_resync`].
    ///
    /// # Errors
    /// [`LinkError`] when the socket fails.
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

    /// Whether events were lost: call [`Self::resync`] in the watched namespace.
    #[must_use]
    pub fn needs_resync(&self) -> bool {
        self.overrun
    }

    /// Compares what is known with what is there, and reports the difference. In the watched namespace only.
    ///
    /// # Errors
    /// [`LinkError`] when the kernel refuses.
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
