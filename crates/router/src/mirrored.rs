//! Interfaces for which the kernel has no device that receives the interface's packets: VLANs of a port, and ports
//! without a kernel device. Each of these interfaces has a separate punt TAP. The kernel receives packets of the
//! interface from the TAP, and sends packets of the interface to the TAP.

use packet::{MacAddr, PortId, VlanTags};

/// A punt TAP: a TAP device through which the kernel receives punted packets.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Port of the punt TAP in the data plane.
    pub port: PortId,
    /// MAC address of the TAP device in the kernel.
    pub mac: MacAddr,
}

/// VLAN tags and punt TAPs of the interfaces of a router. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Mirrored {
    /// Interface of each VLAN. The key is the number of the port's interface and the VLAN identifier. The list is
    /// sorted by key.
    vlans: Vec<((u16, u16), u16)>,
    /// Interface of each pair of an outer and an inner VLAN tag. The key is the number of the port's interface and the
    /// two tags. The list is sorted by key.
    pairs: Vec<((u16, VlanTags), u16)>,
    /// VLAN tags of each interface, by interface number. The value is `None` for an untagged interface.
    tags: Vec<Option<VlanTags>>,
    kernels: Vec<Option<Kernel>>,
}

impl Mirrored {
    /// Sets the interface of the frames that arrive on a port with the VLAN tags `tags`. `base` is the port's
    /// interface, to which untagged frames belong.
    pub fn add_vlan(&mut self, interface: u16, base: u16, tags: VlanTags) {
        let new = match tags.inner {
            None => insert(&mut self.vlans, (base, tags.outer.get()), interface),
            Some(_) => insert(&mut self.pairs, (base, tags), interface),
        };
        if new {
            put(&mut self.tags, interface, tags);
        }
    }

    /// Sets the separate punt TAP of an interface.
    pub fn add_kernel(&mut self, interface: u16, kernel: Kernel) {
        put(&mut self.kernels, interface, kernel);
    }

    /// Returns whether there are VLAN interfaces.
    #[inline]
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        !self.vlans.is_empty() || !self.pairs.is_empty()
    }

    /// Returns whether there are interfaces with two VLAN tags.
    #[inline]
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Returns the interface for frames with a pair of VLAN tags on a port. `base` is the port's interface.
    /// Returns `None` if there is no such interface.
    #[inline]
    #[must_use]
    pub fn of_pair(&self, base: u16, tags: VlanTags) -> Option<u16> {
        let at = self.pairs.binary_search_by_key(&(base, tags), |(key, _)| *key).ok()?;
        Some(self.pairs[at].1)
    }

    /// Returns the interface for frames of a VLAN on a port. `base` is the port's interface. Returns `None`
    /// if there is no such interface.
    #[inline]
    #[must_use]
    pub fn of_vlan(&self, base: u16, vlan: u16) -> Option<u16> {
        let at = self.vlans.binary_search_by_key(&(base, vlan), |(key, _)| *key).ok()?;
        Some(self.vlans[at].1)
    }

    /// Returns the VLAN tags of packets that are sent on an interface. Returns `None` for an untagged
    /// interface.
    #[inline]
    #[must_use]
    pub fn tags(&self, interface: u16) -> Option<VlanTags> {
        *self.tags.get(usize::from(interface))?
    }

    /// Returns the separate punt TAP of an interface. Returns `None` if the interface has none.
    #[inline]
    #[must_use]
    pub fn kernel(&self, interface: u16) -> Option<&Kernel> {
        self.kernels.get(usize::from(interface))?.as_ref()
    }
}

/// Inserts an entry into a sorted list. Returns false if the list already has an entry with this key.
fn insert<K: Ord + Copy>(list: &mut Vec<(K, u16)>, key: K, interface: u16) -> bool {
    let found = list.binary_search_by_key(&key, |(key, _)| *key);
    found.map_err(|at| list.insert(at, (key, interface))).is_err()
}

fn put<T>(list: &mut Vec<Option<T>>, at: u16, value: T) {
    let at = usize::from(at);
    if list.len() <= at {
        list.resize_with(at + 1, || None);
    }
    list[at] = Some(value);
}
