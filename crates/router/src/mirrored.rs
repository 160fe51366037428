//! Interfaces without a kernel device on the wire: VLANs of a port, and ports that the kernel does not know.
//! Each has a punt TAP of its own in the kernel, by which the kernel receives the interface's packets and
//! sends.

use packet::VlanTags;

use crate::room::Kernel;

/// VLAN tags and punt TAPs of the interfaces, by interface number. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Mirrored {
    /// Interface of each VLAN, by the port's interface and the VLAN, sorted.
    vlans: Vec<((u16, u16), u16)>,
    /// Interface of each pair of tags, by the port's interface and the tags, sorted.
    pairs: Vec<((u16, VlanTags), u16)>,
    /// Tags of each interface, by number.
    tags: Vec<Option<VlanTags>>,
    kernels: Vec<Option<Kernel>>,
}

impl Mirrored {
    /// Assigns frames with these tags, on the port with interface `base`, to an interface.
    pub fn add_vlan(&mut self, interface: u16, base: u16, tags: VlanTags) {
        let new = match tags.inner {
            None => insert(&mut self.vlans, (base, tags.outer.get()), interface),
            Some(_) => insert(&mut self.pairs, (base, tags), interface),
        };
        if new {
            put(&mut self.tags, interface, tags);
        }
    }

    /// Sets the punt TAP of an interface.
    pub fn add_kernel(&mut self, interface: u16, kernel: Kernel) {
        put(&mut self.kernels, interface, kernel);
    }

    /// Returns whether there are VLAN interfaces.
    #[inline]
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        !self.vlans.is_empty() || !self.pairs.is_empty()
    }

    /// Returns whether there are interfaces with two tags.
    #[inline]
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Returns the interface of a pair of tags on a port.
    #[inline]
    #[must_use]
    pub fn of_pair(&self, base: u16, tags: VlanTags) -> Option<u16> {
        let at = self.pairs.binary_search_by_key(&(base, tags), |(key, _)| *key).ok()?;
        Some(self.pairs[at].1)
    }

    /// Returns the interface of a VLAN on a port.
    #[inline]
    #[must_use]
    pub fn of_vlan(&self, base: u16, vlan: u16) -> Option<u16> {
        let at = self.vlans.binary_search_by_key(&(base, vlan), |(key, _)| *key).ok()?;
        Some(self.vlans[at].1)
    }

    /// Returns the tags of packets that leave by an interface. `None` for an untagged interface.
    #[inline]
    #[must_use]
    pub fn tags(&self, interface: u16) -> Option<VlanTags> {
        *self.tags.get(usize::from(interface))?
    }

    /// Returns the punt TAP of an interface. `None` if the interface has none of its own.
    #[inline]
    #[must_use]
    pub fn kernel(&self, interface: u16) -> Option<&Kernel> {
        self.kernels.get(usize::from(interface))?.as_ref()
    }
}

/// Inserts an entry in order. Returns false if the key exists already.
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
