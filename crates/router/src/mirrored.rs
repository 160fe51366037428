//! Interfaces for which no device of the kernel's stands on the wire: VLANs of a port, and ports that the kernel knows nothing of. Each has a
//! TAP of its own as its mirror in the kernel, by which the kernel gets what is its own and sends.

use packet::VlanTags;

use crate::room::Kernel;

/// See the module documentation. Interfaces are known by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Mirrored {
    /// By the interface of the port and the VLAN, in order.
    vlans: Vec<((u16, u16), u16)>,
    /// The same of those with two tags.
    pairs: Vec<((u16, VlanTags), u16)>,
    /// The tags of an interface.
    tags: Vec<Option<VlanTags>>,
    kernels: Vec<Option<Kernel>>,
}

impl Mirrored {
    /// Makes an interface that of the frames with these tags on the port whose own interface is `base`.
    pub fn add_vlan(&mut self, interface: u16, base: u16, tags: VlanTags) {
        let new = match tags.inner {
            None => insert(&mut self.vlans, (base, tags.outer.get()), interface),
            Some(_) => insert(&mut self.pairs, (base, tags), interface),
        };
        if new {
            put(&mut self.tags, interface, tags);
        }
    }

    /// Gives an interface a way into the kernel of its own.
    pub fn add_kernel(&mut self, interface: u16, kernel: Kernel) {
        put(&mut self.kernels, interface, kernel);
    }

    /// Whether there are VLANs at all.
    #[inline]
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        !self.vlans.is_empty() || !self.pairs.is_empty()
    }

    /// Whether there are some with two tags.
    #[inline]
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// The interface of two tags on a port.
    #[inline]
    #[must_use]
    pub fn of_pair(&self, base: u16, tags: VlanTags) -> Option<u16> {
        let at = self.pairs.binary_search_by_key(&(base, tags), |(key, _)| *key).ok()?;
        Some(self.pairs[at].1)
    }

    /// The interface of a VLAN of a port.
    #[inline]
    #[must_use]
    pub fn of_vlan(&self, base: u16, vlan: u16) -> Option<u16> {
        let at = self.vlans.binary_search_by_key(&(base, vlan), |(key, _)| *key).ok()?;
        Some(self.vlans[at].1)
    }

    /// The tags that packets bear which leave by an interface.
    #[inline]
    #[must_use]
    pub fn tags(&self, interface: u16) -> Option<VlanTags> {
        *self.tags.get(usize::from(interface))?
    }

    /// The way into the kernel that is an interface's own.
    #[inline]
    #[must_use]
    pub fn kernel(&self, interface: u16) -> Option<&Kernel> {
        self.kernels.get(usize::from(interface))?.as_ref()
    }
}

/// False if there is one already.
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
