//! Thread of a follower that reads notifications from the kernel.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use port::netlink::Netlink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::item::Item;
use super::shared::{PATIENCE, Shared};
use crate::rtnetlink::group;

/// Netlink multicast groups of the notifications: links, neighbours, addresses, routes, rules and settings of
/// both families, and next-hop objects.
pub(super) const GROUPS: [u32; 11] = [
    group::RTNLGRP_LINK,
    group::RTNLGRP_NEIGH,
    group::RTNLGRP_IPV4_IFADDR,
    group::RTNLGRP_IPV4_ROUTE,
    group::RTNLGRP_IPV4_RULE,
    group::RTNLGRP_IPV6_IFADDR,
    group::RTNLGRP_IPV6_ROUTE,
    group::RTNLGRP_IPV6_RULE,
    group::RTNLGRP_IPV4_NETCONF,
    group::RTNLGRP_IPV6_NETCONF,
    group::RTNLGRP_NEXTHOP,
];

/// Thread that reads the kernel's notifications from the socket and passes them to the applier thread.
pub(super) struct Reader {
    pub(super) listening: Netlink,
    pub(super) to: SyncSender<Item>,
    pub(super) shared: Arc<Shared>,
}

impl Reader {
    pub(super) fn run(mut self) {
        let mut fenced = 0;
        while !self.shared.end.load(Ordering::Acquire) {
            // The fence is read before the socket, because later notifications may follow this fence.
            let fence = self.shared.fence.load(Ordering::Acquire);
            match self.listening.try_receive() {
                Ok(Some(datagram)) => {
                    let datagram = Item::Datagram(datagram.to_vec());
                    self.shared.counts.read.fetch_add(1, Ordering::Relaxed);
                    if self.to.send(datagram).is_err() {
                        return;
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) if error.errno() != rustix::io::Errno::NOBUFS.raw_os_error() => {
                    let _ = self.to.send(Item::Failed(error.to_string()));
                    return;
                }
                Err(_) => {
                    self.shared.counts.overruns.fetch_add(1, Ordering::Relaxed);
                    // Buffered notifications are older than the lost ones. Notifications after the buffer is
                    // empty are newer.
                    while !matches!(self.listening.try_receive(), Ok(None)) {
                        if self.shared.end.load(Ordering::Acquire) {
                            return;
                        }
                    }
                    if self.to.send(Item::Overrun).is_err() {
                        return;
                    }
                }
            }
            if fence != fenced {
                fenced = fence;
                if self.to.send(Item::Fence(fence)).is_err() {
                    return;
                }
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let socket = self.listening.fd();
        let mut fds = [
            PollFd::new(&socket, PollFlags::IN | PollFlags::ERR),
            PollFd::new(&self.shared.wake, PollFlags::IN),
        ];
        let patience = Timespec::try_from(PATIENCE).unwrap_or_default();
        let _ = poll(&mut fds, Some(&patience));
        let mut count = [0; 8];
        let _ = rustix::io::read(self.shared.wake.as_fd(), &mut count);
    }
}
