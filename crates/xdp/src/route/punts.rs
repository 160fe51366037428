//! Rate limits of the control packets that the XDP programs of a virtual router's ports pass to the kernel (punts).
//! Packets are classified by protocol. Each class has a rate. Each interface and each source has a share of this rate.
//! Workers limit their own punts to the kernel according to the same rules (`router::PuntPolicer`).
//!
//! All ports of a router share the limits. `bpf/include/stage_punt.h` applies them.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec, Mapped};

/// Number of classes of control packets with separate rate limits (`PUNT_CLASSES`).
pub const PUNT_CLASSES: usize = 22;
/// Maximum number of known peers of the host's routing protocols: `PUNT_PEERS`.
pub const PUNT_PEERS: usize = 8192;

const STATE: &str = "punt_state";
const PEERS: &str = "punt_peers";
const COUNTS: &str = "punt_counts";
const FRAMES: &str = "punt_frames";

/// Number of 64-bit words of `struct punt_rate` (the rate limit of one class).
const RATE_WORDS: usize = 3;
/// Number of secret values for hash functions in `struct punt_state`. They follow the rates.
const SECRETS: usize = 4;
/// Number of 64-bit words at the beginning of `struct punt_state` that programs do not change: the rates and the secret
/// values for hash functions.
const CONSTANTS: usize = RATE_WORDS * PUNT_CLASSES + SECRETS;
/// Number of per-interface shares in each class (`PUNT_SHARES`). A class has as many per-source shares. An interface or
/// a source is assigned to a share by a hash.
const SHARES: usize = 256;
/// Number of 64-bit words of `struct punt_state` (rates, token buckets and shares of a router).
pub(crate) const STATE_WORDS: usize = CONSTANTS + PUNT_CLASSES + 2 * PUNT_CLASSES * SHARES;
/// Size of `struct punt_peer` (a known peer of a routing protocol) in bytes.
pub(crate) const PEER_SIZE: usize = 40;
/// Size of `struct punt_frame` (working memory for one frame) in bytes. The next constant is the size of `struct
/// punt_count` (the counts of a class) in bytes.
pub(crate) const PUNT_FRAME_SIZE: u32 = 184;
pub(crate) const PUNT_COUNT_SIZE: u32 = 16;
/// `PUNT_IPV6`: flag in the field `kind` of `struct punt_peer` that marks an IPv6 peer.
const IPV6: u16 = 0x100;
const NS_PER_S: u64 = 1_000_000_000;
/// Map value of each known peer. Programs only look up whether a peer is in the map, and do not read the value.
const THERE: [u8; 4] = 1_u32.to_ne_bytes();

/// A known peer of the host's routing daemons. Control packets from known peers have rate limits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PuntPeer {
    /// A TCP session, such as a BGP session: local address and port, then address and port of the peer.
    Session(SocketAddr, SocketAddr),
    /// A gateway or BGP peer on the link of a router interface: interface number and address of the neighbour.
    Neighbour(u16, IpAddr),
    /// A BGP peer that may be several hops away, from which multihop BFD packets are expected, or a DHCP server of a
    /// relay.
    Far(IpAddr),
}

impl PuntPeer {
    /// Encodes the peer as `struct punt_peer`, the key of the map of known peers.
    fn bytes(self) -> [u8; PEER_SIZE] {
        let (kind, interface, here, far) = match self {
            PuntPeer::Session(here, far) => (0, 0, Some(here), far),
            PuntPeer::Neighbour(interface, far) => (1, interface, None, SocketAddr::new(far, 0)),
            PuntPeer::Far(far) => (2, 0, None, SocketAddr::new(far, 0)),
        };
        let family = if far.is_ipv6() { IPV6 } else { 0 };
        let port = |address: Option<SocketAddr>| address.map_or(0, |address| address.port()).to_be_bytes();
        let mut bytes = [0; PEER_SIZE];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + field.len()) {
                place.copy_from_slice(field);
            }
            at += field.len();
        };
        put(&(kind | family).to_ne_bytes());
        put(&interface.to_ne_bytes());
        put(&port(here));
        put(&port(Some(far)));
        put(&address_field(here.map(|here| here.ip())));
        put(&address_field(Some(far.ip())));
        bytes
    }
}

/// Encodes an IP address as a field of `struct punt_peer`. An IPv4 address takes the first four bytes.
fn address_field(address: Option<IpAddr>) -> [u8; 16] {
    match address {
        None => [0; 16],
        Some(IpAddr::V6(v6)) => v6.octets(),
        Some(IpAddr::V4(v4)) => {
            let [a, b, c, d] = v4.octets();
            let mut field = [0; 16];
            [field[0], field[1], field[2], field[3]] = [a, b, c, d];
            field
        }
    }
}

/// Rate limit of one class of control packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PuntRate {
    /// Rate of control packets per second. With 0, no packet of the class passes.
    pub packets: u32,
    /// Number of control packets that may pass in one burst after an idle period (burst size of the token bucket).
    pub burst: u32,
    /// Number of packets of the burst that are reserved for interfaces and sources that have not used up their shares.
    pub reserve: u32,
}

impl PuntRate {
    /// Encodes the rate limit as `struct punt_rate`.
    fn words(self) -> [u64; RATE_WORDS] {
        let Some(interval) = NS_PER_S.checked_div(self.packets.into()) else { return [0; RATE_WORDS] };
        let ahead = |packets: u32| u64::from(packets).saturating_sub(1) * interval;
        [interval.max(1), ahead(self.burst), ahead(self.burst.saturating_sub(self.reserve))]
    }
}

/// Rate limits of the control traffic that the XDP programs of one router's ports pass to the kernel.
///
/// This value must be the only writer of the known peers.
#[derive(Debug)]
pub struct PuntLimits {
    maps: Arc<PuntMaps>,
    state: Mapped,
    peers: BTreeSet<PuntPeer>,
}

/// Kernel maps of a router's rate limits of control traffic.
#[derive(Debug)]
pub(crate) struct PuntMaps([OwnedFd; 4]);

impl PuntLimits {
    /// Creates rate limits without known peers. No packet passes until [`PuntLimits::set_rate`] has set the rate of its
    /// class.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new() -> Result<PuntLimits, Error> {
        let maps = PuntMaps::create()?;
        let state = maps.state()?;
        let random = RandomState::new();
        for (nth, secret) in state.words().iter().skip(RATE_WORDS * PUNT_CLASSES).take(SECRETS).enumerate() {
            secret.store(random.hash_one(nth), Ordering::Relaxed);
        }
        Ok(PuntLimits { maps: Arc::new(maps), state, peers: BTreeSet::new() })
    }

    /// Sets the rate of the class of control packets with this index, which is below [`PUNT_CLASSES`]. Unless the class
    /// has this rate already, its token bucket and its shares are full afterwards.
    pub fn set_rate(&self, class: usize, rate: PuntRate) {
        let state = self.state.words();
        let words = rate.words();
        let Some(places) =
            state.get(RATE_WORDS * class..RATE_WORDS * (class + 1)).filter(|_| class < PUNT_CLASSES)
        else {
            return;
        };
        if places.iter().zip(words).all(|(place, word)| place.load(Ordering::Relaxed) == word) {
            return;
        }
        for (place, word) in places.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        let interfaces = CONSTANTS + PUNT_CLASSES;
        let sources = interfaces + PUNT_CLASSES * SHARES;
        let bucket = state.get(CONSTANTS + class).into_iter();
        let shares = [interfaces, sources]
            .into_iter()
            .flat_map(|from| state.iter().skip(from + SHARES * class).take(SHARES));
        bucket.chain(shares).for_each(|until| until.store(0, Ordering::Relaxed));
    }

    /// Replaces the known peers of the routing daemons. Peers beyond [`PUNT_PEERS`] are ignored. A peer in both the old
    /// and the new set stays known throughout.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails. Another call tries the remaining changes again.
    pub fn set_peers(&mut self, wanted: &BTreeSet<PuntPeer>) -> Result<(), Error> {
        let failed = |operation| move |source| Error::Map { map: PEERS, operation, source };
        let wanted: BTreeSet<PuntPeer> = wanted.iter().take(PUNT_PEERS).copied().collect();
        let map = self.maps.get(1);
        let gone: Vec<PuntPeer> = self.peers.difference(&wanted).copied().collect();
        for peer in gone {
            sys::map_delete(map, &peer.bytes()).map_err(failed("delete from"))?;
            self.peers.remove(&peer);
        }
        for peer in wanted {
            if !self.peers.contains(&peer) {
                sys::map_update(map, &peer.bytes(), &THERE).map_err(failed("add to"))?;
                self.peers.insert(peer);
            }
        }
        Ok(())
    }

    /// Returns the number of packets of a class of control packets that passed to the kernel, and the number of packets
    /// that were dropped.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn counted(&self, class: usize) -> Result<(u64, u64), Error> {
        let Ok(class) = u32::try_from(class) else { return Ok((0, 0)) };
        let words = sys::map_lookup_per_cpu(self.maps.get(2), class, 2).map_err(|source| Error::Map {
            map: COUNTS,
            operation: "read",
            source,
        })?;
        let sum = |at: usize| words.iter().skip(at).step_by(2).fold(0, |a: u64, b| a.wrapping_add(*b));
        Ok((sum(0), sum(1)))
    }

    pub(crate) fn maps(&self) -> &Arc<PuntMaps> {
        &self.maps
    }
}

impl PuntMaps {
    /// Names of all maps that only a program with rate limits of control traffic has.
    pub const NAMES: [&'static str; 4] = [STATE, PEERS, COUNTS, FRAMES];

    fn create() -> Result<PuntMaps, Error> {
        let classes = u32::try_from(PUNT_CLASSES).unwrap_or(u32::MAX);
        let state = u32::try_from(8 * STATE_WORDS).unwrap_or(u32::MAX);
        Ok(PuntMaps([
            create(STATE, MapKind::Mappable, 4, state, 1)?,
            create_peers()?,
            create(COUNTS, MapKind::PerCpuArray, 4, PUNT_COUNT_SIZE, classes)?,
            create(FRAMES, MapKind::PerCpuArray, 4, PUNT_FRAME_SIZE, 1)?,
        ]))
    }

    fn get(&self, at: usize) -> BorrowedFd<'_> {
        self.0[at].as_fd()
    }

    fn state(&self) -> Result<Mapped, Error> {
        Mapped::new(self.get(0)).map_err(|source| Error::Map { map: STATE, operation: "map", source })
    }

    pub fn list(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        PuntMaps::NAMES.into_iter().zip(self.0.iter().map(AsFd::as_fd))
    }

    /// Returns the kernel's id of one of the rate limit maps. The id identifies the router whose limits a program
    /// applies.
    pub fn id(&self) -> Result<u32, Error> {
        let failed = |source| Error::Map { map: STATE, operation: "query", source };
        sys::map_info(self.get(0)).map(|info| info.id).map_err(failed)
    }

    /// Returns a copy with the same rates and known peers, full token buckets and zero counts. A test run with the copy
    /// therefore takes no tokens of the router.
    pub fn scratch(&self) -> Result<PuntMaps, Error> {
        let mut scratch = PuntMaps::create()?;
        scratch.0[1] = duplicate(PEERS, &self.get(1))?;
        let (from, to) = (self.state()?, scratch.state()?);
        for (from, to) in from.words().iter().zip(to.words()).take(CONSTANTS) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(scratch)
    }

    /// Restores the rate limits of a program that is already in the kernel. `take` returns the program's map of a given
    /// name. Returns `None` if the program comes from a release with other classes, whose maps the programs of this
    /// release cannot use.
    pub fn adopt(
        take: impl FnMut(&'static str) -> Result<OwnedFd, Error>,
    ) -> Result<Option<PuntMaps>, Error> {
        let maps: Vec<OwnedFd> = PuntMaps::NAMES.into_iter().map(take).collect::<Result<_, _>>()?;
        let maps = maps.try_into().map_err(|_| Error::Object { object: "trivium", what: STATE })?;
        let maps = PuntMaps(maps);
        let state = sys::map_info(maps.get(0));
        let state = state.map_err(|source| Error::Map { map: STATE, operation: "query", source })?;
        let is_ours = usize::try_from(state.value_size) == Ok(8 * STATE_WORDS);
        Ok(is_ours.then_some(maps))
    }
}

fn create_peers() -> Result<OwnedFd, Error> {
    let (key, entries) = (u32::try_from(PEER_SIZE), u32::try_from(PUNT_PEERS));
    create(PEERS, MapKind::SparseHash, key.unwrap_or(u32::MAX), 4, entries.unwrap_or(u32::MAX))
}

fn create(name: &'static str, kind: MapKind, key: u32, value: u32, entries: u32) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key, value, entries };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maps of a release with other classes of control packets must not be adopted, because a program of this
    /// release cannot use them.
    #[test]
    fn maps_of_a_release_with_other_classes_are_not_adopted() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let adopted = |state: u32| {
            let mut maps = PuntMaps::create().unwrap();
            maps.0[0] = create(STATE, MapKind::Mappable, 4, state, 1).unwrap();
            let take = |name| {
                let at = PuntMaps::NAMES.iter().position(|own| *own == name).unwrap();
                Ok(maps.get(at).try_clone_to_owned().unwrap())
            };
            PuntMaps::adopt(take).unwrap().is_some()
        };
        let ours = u32::try_from(8 * STATE_WORDS).unwrap();
        assert!(adopted(ours) && !adopted(ours - 8 * 3 * 516));
    }
}
