//! The bundles of an OpenFlow session: their changes, their memory and their time limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use switch::flow::{Mod, Origin};
use tokio::time::Instant;

use crate::datapath::{Datapath, Reservation};
use crate::wire::change::get_mod;
use crate::wire::error::Error;
use crate::wire::ofp::msg;
use crate::wire::{HEADER, Reader, Version, packet};

/// Maximum memory in octets of the bundles of all sessions in the process. The bundles of a bridge cannot grow if they
/// would use more memory than remains free under this limit. One bridge can therefore use at most half of the memory,
/// and the bundles of other bridges can still grow.
const PROCESS_OCTETS: usize = 256 << 20;
/// Maximum number of octets that are kept of the message that opened a bundle. The error message
/// about the bundle's timeout contains these octets.
const OPENED_OCTETS: usize = 64;

/// Memory in octets that the bundles of all sessions in the process currently use.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// An open or closed bundle of a session. The changes are stored as encoded messages, which use a
/// tenth of the memory of decoded changes.
pub(super) struct Bundle {
    pub flags: u16,
    pub closed: bool,
    /// Encoded messages of the bundle's changes, each with a flag. The flag is true if the session had enabled table
    /// numbers in the command field of flow-mods (NXT_FLOW_MOD_TABLE_ID).
    pub changes: Vec<(bool, Box<[u8]>)>,
    /// Number of packet-outs among the changes of the bundle. A packet-out is processed by the flow tables that
    /// result from the changes before it in the bundle.
    pub packets: usize,
    /// Whether a message of the bundle was refused. The bundle then cannot be committed.
    pub broken: bool,
    /// Transaction ID and first octets of the message that opened the bundle.
    pub opened: (u32, Box<[u8]>),
    /// Time when the last message about the bundle was received.
    pub used: Instant,
    /// Memory in octets that the bundle uses, as counted in [`HELD`] and in `of_bridge`.
    pub octets: usize,
    /// Memory in octets that the bundles of all sessions of the bridge currently use.
    of_bridge: Arc<AtomicUsize>,
}

impl Bundle {
    pub fn new(flags: u16, xid: u32, opened: &[u8], of_bridge: &Arc<AtomicUsize>) -> Bundle {
        let opened = (xid, opened[..opened.len().min(OPENED_OCTETS)].into());
        let (changes, used) = (Vec::new(), Instant::now());
        let (closed, packets, broken, octets) = (false, 0, false, 0);
        let of_bridge = Arc::clone(of_bridge);
        Bundle { flags, closed, changes, packets, broken, opened, used, octets, of_bridge }
    }

    /// Counts `octets` as additional memory of the bundle. Returns false if the limit of the bridge or of the
    /// process would be exceeded.
    pub fn grow(&mut self, octets: usize) -> bool {
        let own = self.of_bridge.load(Ordering::Relaxed).saturating_add(octets);
        let fits = |held: usize| {
            let left = PROCESS_OCTETS.checked_sub(held)?;
            (own <= left && octets <= left).then_some(held + octets)
        };
        let grown = HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.of_bridge.fetch_add(octets, Ordering::Relaxed);
            self.octets += octets;
        }
        grown
    }

    /// Subtracts the memory of the bundle from the memory that is counted for the bridge and for the process.
    fn release(&mut self) {
        let octets = std::mem::take(&mut self.octets);
        HELD.fetch_sub(octets, Ordering::Relaxed);
        self.of_bridge.fetch_sub(octets, Ordering::Relaxed);
    }

    /// Marks the bundle as failed and discards its changes. A failed bundle cannot be committed.
    pub fn breaks(&mut self) {
        self.broken = true;
        self.changes = Vec::new();
        self.release();
    }

    /// Decodes the changes of the bundle. The error contains the index of the first invalid change.
    pub fn mods(&self, version: Version) -> Result<Vec<Mod>, (usize, Error)> {
        let read = |(place, (table_ids, message)): (usize, &(bool, Box<[u8]>))| {
            let body = Reader::new(message.get(HEADER..).unwrap_or_default(), Error::BadLength);
            let kind = message.get(1).copied().unwrap_or_default();
            let change = get_change(kind, body, version, *table_ids).map_err(|error| (place, error))?;
            change.ok_or((place, Error::BundleMessage))
        };
        self.changes.iter().enumerate().map(read).collect()
    }

    /// Applies all changes of the bundle, or none of them. The error contains the index of the
    /// first refused change, and the reason for the refusal.
    pub fn commit(
        &self,
        datapath: &dyn Datapath,
        version: Version,
        origin: Origin,
        reservation: Option<Reservation>,
    ) -> Result<(), (usize, Error)> {
        let mods = self.mods(version)?;
        let done = match reservation {
            Some(reservation) => datapath.modify_and_send(mods, origin, reservation),
            None => datapath.modify_for(mods, origin),
        };
        done.map_err(|(place, why)| (place, why.into()))
    }
}

/// Decodes a message of a kind that a bundle may contain: a change or a packet-out. Returns `None` for other
/// kinds.
pub(super) fn get_change(
    kind: u8,
    body: Reader<'_>,
    version: Version,
    table_ids: bool,
) -> Result<Option<Mod>, Error> {
    if kind != msg::OFPT_PACKET_OUT {
        return get_mod(kind, body, version, table_ids);
    }
    let (packet, buffer) = packet::get_out(body, version)?;
    if buffer.is_some() {
        return Err(Error::UnknownBuffer);
    }
    Ok(Some(Mod::PacketOut(Box::new(packet))))
}

impl Drop for Bundle {
    fn drop(&mut self) {
        self.release();
    }
}

/// Bundles of an OpenFlow session, by bundle ID.
#[derive(Default)]
pub(crate) struct Bundles(pub(super) HashMap<u32, Bundle>);

impl Bundles {
    /// Returns the time at which the first bundle times out. A bundle times out when `patience` has
    /// passed since its last message. Returns `None` if there is no bundle.
    pub fn first_timeout(&self, patience: Duration) -> Option<Instant> {
        self.0.values().map(|bundle| bundle.used + patience).min()
    }

    /// Removes the bundles for which no message was received during `patience`. For each removed
    /// bundle, returns the transaction ID and the first octets of the message that opened the
    /// bundle.
    pub fn expire(&mut self, patience: Duration) -> Vec<(u32, Box<[u8]>)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let over = self.0.extract_if(|_, bundle| bundle.used + patience <= now);
        over.map(|(_, mut bundle)| std::mem::take(&mut bundle.opened)).collect()
    }
}
