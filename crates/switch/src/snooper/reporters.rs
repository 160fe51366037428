//! The IP sources of recent reports, by VLAN and port. A host does not answer queries from its own address, so a port
//! with a host that has the address of a querier does not hear this querier.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use packet::PortId;

/// Maximum number of addresses of one port in one VLAN. Further addresses are not recorded.
const MAX_ADDRESSES: u32 = 512;

/// The IP sources of recent reports. An address can be known on several ports, because its reports may be forged.
#[derive(Debug, Default)]
pub(super) struct Reporters {
    /// For each VLAN and address, the ports and the time in nanoseconds until which the address is known on the port.
    ports: BTreeMap<(u16, IpAddr), BTreeMap<PortId, u64>>,
    /// Number of addresses of each port and VLAN.
    counts: HashMap<(PortId, u16), u32>,
}

impl Reporters {
    /// Records a report with the source `source` on a port until the time `until_ns`.
    pub(super) fn note(&mut self, port: PortId, vid: u16, source: IpAddr, until_ns: u64) {
        let known = self.ports.get_mut(&(vid, source)).and_then(|ports| ports.get_mut(&port));
        if let Some(known) = known {
            *known = until_ns;
            return;
        }
        let count = self.counts.entry((port, vid)).or_default();
        if *count < MAX_ADDRESSES {
            *count += 1;
            self.ports.entry((vid, source)).or_default().insert(port, until_ns);
        }
    }

    /// Returns whether reports with the source `source` have arrived on the port.
    pub(super) fn has(&self, port: PortId, vid: u16, source: IpAddr) -> bool {
        self.ports.get(&(vid, source)).is_some_and(|ports| ports.contains_key(&port))
    }

    /// Removes addresses without recent reports.
    pub(super) fn expire(&mut self, now_ns: u64) {
        let counts = &mut self.counts;
        self.ports.retain(|&(vid, _), ports| {
            ports.retain(|&port, until_ns| {
                let lives = *until_ns > now_ns;
                if let Some(count) = counts.get_mut(&(port, vid)).filter(|_| !lives) {
                    *count -= 1;
                }
                lives
            });
            !ports.is_empty()
        });
        self.counts.retain(|_, count| *count > 0);
    }
}
