//! State of filter rules with SYN cookies: clients that have returned a cookie, detected SYN floods, and counts of
//! SYNs. The state belongs to a filter and is kept when the filter's rule set is replaced. The state is created when
//! the filter gets its first rule with SYN cookies.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;

use super::{FilterSizes, Moment};
use crate::Error;
use crate::map_copy::duplicate;
use crate::sys::{self, MapKind, MapSpec};

const CLIENTS: &str = "filter_clients";
const LEARNED: &str = "filter_learned";
const PASSED: &str = "filter_passed";
const KEPT: &str = "filter_kept";
const CLAIMS: &str = "filter_claims";
const NAMESPACES: &str = "filter_namespaces";
const SERVICES: &str = "filter_services";
const ANSWERS: &str = "filter_answers";
/// Maximum number of rules with SYN cookies (`FILTER_SERVICES_MAX`). While a rule set is replaced, the rules of the old
/// and the new rule set count together.
pub(crate) const SERVICES_CAPACITY: u32 = 128;
/// Number of 64-bit words of `struct filter_answer` (the counts of a rule with SYN cookies).
pub(crate) const ANSWER_WORDS: usize = 5;
/// Size of `struct filter_client` (the key of a client, connection or service) in bytes.
pub(crate) const CLIENT_SIZE: u32 = 44;

/// Kernel helpers that programs with SYN cookies call, each with its name.
const HELPERS: [(ffi::bpf_func_id, &str); 4] = [
    (ffi::BPF_FUNC_tcp_raw_gen_syncookie_ipv4, "bpf_tcp_raw_gen_syncookie_ipv4"),
    (ffi::BPF_FUNC_tcp_raw_gen_syncookie_ipv6, "bpf_tcp_raw_gen_syncookie_ipv6"),
    (ffi::BPF_FUNC_tcp_raw_check_syncookie_ipv4, "bpf_tcp_raw_check_syncookie_ipv4"),
    (ffi::BPF_FUNC_tcp_raw_check_syncookie_ipv6, "bpf_tcp_raw_check_syncookie_ipv6"),
];

/// Counters of a rule with SYN cookies since the rule was added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CookieCounters {
    /// Number of SYNs that were answered with a cookie.
    pub answered: u64,
    /// Number of segments that contained a valid cookie.
    pub valid: u64,
    /// Number of segments without a valid cookie from clients that must return a cookie. The scheme "cookie" drops
    /// these segments, and the scheme "retry" passes them.
    pub invalid: u64,
    /// Number of SYNs that were dropped because they could not be answered. Such SYNs are fragments, are
    /// truncated or have other flags set.
    pub refused: u64,
    /// Number of SYNs that the filter passed to the service without a SYN cookie reply. The number includes the
    /// segments with a valid cookie that the filter has turned into SYNs.
    pub through: u64,
    /// Whether SYNs are answered with cookies at present because their rate exceeds the rule's threshold.
    pub flood: bool,
}

/// Maps for all rules with SYN cookies of one filter.
#[derive(Debug)]
pub(crate) struct CookieMaps {
    /// Clients that have returned a cookie.
    clients: OwnedFd,
    /// Time at which the last SYN was passed to each address and port of a service. The filter passes a SYN at
    /// intervals, so that the service's kernel keeps accepting SYN cookies.
    passed: OwnedFd,
    /// Token buckets of the rules, for SYNs that are passed to services.
    kept: OwnedFd,
    /// Connections that were open before a cookie was required for them. Forged segments can displace only
    /// entries of this map.
    learned: OwnedFd,
    /// Connections of which one segment was seen. Another segment can move such a connection to `learned`.
    claims: OwnedFd,
    /// Network namespaces of the services.
    namespaces: OwnedFd,
    services: OwnedFd,
    answers: OwnedFd,
}

/// Divisor that determines the sizes of the maps `claims`, `passed` and `namespaces`. The maximum number of entries in
/// each of these maps is the maximum number of clients divided by this value.
const OF_CLAIMS: u32 = 8;

fn create_passed(clients: u32) -> Result<OwnedFd, Error> {
    create(PASSED, MapKind::LruHash, CLIENT_SIZE, 8, (clients / OF_CLAIMS).max(1))
}

fn create_kept() -> Result<OwnedFd, Error> {
    create(KEPT, MapKind::Hash, 4, 8, SERVICES_CAPACITY)
}

fn create_learned(clients: u32) -> Result<OwnedFd, Error> {
    create(LEARNED, MapKind::LruHash, CLIENT_SIZE, 8, clients)
}

fn create_claims(clients: u32) -> Result<OwnedFd, Error> {
    create(CLAIMS, MapKind::LruHash, CLIENT_SIZE, 8, (clients / OF_CLAIMS).max(1))
}

fn create_namespaces(clients: u32) -> Result<OwnedFd, Error> {
    create(NAMESPACES, MapKind::LruHash, CLIENT_SIZE, 8, (clients / OF_CLAIMS).max(1))
}

/// Checks that the kernel has the helpers that SYN cookies need. `has` returns whether the kernel has a
/// helper. `rule` is the name of the rule in the error.
pub(super) fn check_kernel(rule: &str, has: impl Fn(ffi::bpf_func_id) -> bool) -> Result<(), Error> {
    match HELPERS.into_iter().find(|(helper, _)| !has(*helper)) {
        None => Ok(()),
        Some((_, lacks)) => Err(Error::NoCookies { rule: rule.to_owned(), lacks }),
    }
}

impl CookieMaps {
    /// Creates the maps with space for `clients` clients that have returned a cookie.
    pub fn new(clients: u32) -> Result<CookieMaps, Error> {
        Ok(CookieMaps {
            clients: create(CLIENTS, MapKind::LruHash, CLIENT_SIZE, 8, clients)?,
            passed: create_passed(clients)?,
            kept: create_kept()?,
            learned: create_learned(clients)?,
            claims: create_claims(clients)?,
            namespaces: create_namespaces(clients)?,
            services: create(SERVICES, MapKind::Hash, 4, 16, SERVICES_CAPACITY)?,
            answers: create(ANSWERS, MapKind::SparsePerCpuHash, 4, 40, SERVICES_CAPACITY)?,
        })
    }

    pub fn list(&self) -> [(&'static str, BorrowedFd<'_>); 8] {
        [
            (CLIENTS, self.clients.as_fd()),
            (PASSED, self.passed.as_fd()),
            (KEPT, self.kept.as_fd()),
            (LEARNED, self.learned.as_fd()),
            (CLAIMS, self.claims.as_fd()),
            (NAMESPACES, self.namespaces.as_fd()),
            (SERVICES, self.services.as_fd()),
            (ANSWERS, self.answers.as_fd()),
        ]
    }

    /// Restores the maps of a program that is already in the kernel. `take` returns a map of the program by
    /// its name.
    pub fn adopt(mut take: impl FnMut(&'static str) -> Result<OwnedFd, Error>) -> Result<CookieMaps, Error> {
        // Programs of older releases lack some maps, which are created here. Those programs stored the entries of
        // `passed` and `learned` in the map of clients. The old entries stay there.
        let clients = FilterSizes::default().clients;
        let kept = take(KEPT);
        let is_older = kept.is_err();
        let maps = CookieMaps {
            clients: take(CLIENTS)?,
            passed: take(PASSED).or_else(|_| create_passed(clients))?,
            kept: kept.or_else(|_| create_kept())?,
            learned: take(LEARNED).or_else(|_| create_learned(clients))?,
            claims: take(CLAIMS).or_else(|_| create_claims(clients))?,
            namespaces: take(NAMESPACES).or_else(|_| create_namespaces(clients))?,
            services: take(SERVICES)?,
            answers: take(ANSWERS)?,
        };
        if is_older {
            maps.slots()?.into_iter().try_for_each(|slot| maps.fill_bucket(slot))?;
        }
        Ok(maps)
    }

    /// Returns a copy for a test run. The copy has new counts, new flood states and full buckets. The copy shares the
    /// entries of clients, which a test run does not change.
    pub fn scratch(&self) -> Result<CookieMaps, Error> {
        let (clients, learned) = (duplicate(CLIENTS, &self.clients)?, duplicate(LEARNED, &self.learned)?);
        let passed = duplicate(PASSED, &self.passed)?;
        let namespaces = duplicate(NAMESPACES, &self.namespaces)?;
        let scratch = CookieMaps { clients, learned, passed, namespaces, ..CookieMaps::new(1)? };
        for slot in self.slots()? {
            scratch.put(slot, self.service(slot)?.unwrap_or_default())?;
        }
        Ok(scratch)
    }

    /// Adds entries for the rules with SYN cookies that have the counter indices `slots`. Removes the entries
    /// of all other rules, except those in `before`, which belong to a rule set that may still be in use.
    pub fn keep(&self, slots: &[u32], before: &[u32]) -> Result<(), Error> {
        let known = self.slots()?;
        for slot in known.iter().filter(|slot| !slots.contains(slot) && !before.contains(slot)) {
            self.forget(*slot)?;
        }
        let fresh = slots.iter().filter(|slot| !known.contains(slot));
        fresh.into_iter().try_for_each(|slot| self.put(*slot, [0, Moment::now().0]))
    }

    /// Removes the SYN cookie entries of a rule that was removed from the filter.
    pub fn forget(&self, slot: u32) -> Result<(), Error> {
        let failed = |map| move |source| Error::Map { map, operation: "delete from", source };
        let key = slot.to_ne_bytes();
        sys::map_delete(self.services.as_fd(), &key).map_err(failed(SERVICES))?;
        sys::map_delete(self.kept.as_fd(), &key).map_err(failed(KEPT))?;
        sys::map_delete(self.answers.as_fd(), &key).map(drop).map_err(failed(ANSWERS))
    }

    /// Returns the counters of the rules with SYN cookies, by counter index.
    pub fn counters(&self) -> Result<BTreeMap<u32, CookieCounters>, Error> {
        let now = Moment::now().0;
        let mut all = BTreeMap::new();
        for slot in self.slots()? {
            let words = match sys::map_lookup_per_cpu(self.answers.as_fd(), slot, ANSWER_WORDS) {
                Ok(words) => words,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Vec::new(),
                Err(source) => return Err(Error::Map { map: ANSWERS, operation: "read", source }),
            };
            let sum = |at| {
                words.iter().skip(at).step_by(ANSWER_WORDS).fold(0, |a: u64, b: &u64| a.wrapping_add(*b))
            };
            let [until, _] = self.service(slot)?.unwrap_or_default();
            let counters = CookieCounters {
                answered: sum(0),
                valid: sum(1),
                invalid: sum(2),
                refused: sum(3),
                through: sum(4),
                flood: until > now,
            };
            all.insert(slot, counters);
        }
        Ok(all)
    }

    fn slots(&self) -> Result<Vec<u32>, Error> {
        let keys = sys::map_keys::<4>(self.services.as_fd());
        let keys = keys.map_err(|source| Error::Map { map: SERVICES, operation: "list", source })?;
        Ok(keys.into_iter().map(u32::from_ne_bytes).collect())
    }

    /// Reads the flood state of a rule (`struct filter_service`): the time until which SYNs are answered because of
    /// their rate, and the time at which the rule was added. Returns `None` if the rule has no entry.
    fn service(&self, slot: u32) -> Result<Option<[u64; 2]>, Error> {
        let bytes = match sys::map_lookup::<16>(self.services.as_fd(), slot) {
            Ok(bytes) => bytes,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(source) => return Err(Error::Map { map: SERVICES, operation: "read", source }),
        };
        let (until, since) = bytes.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        Ok(Some([word(until), word(since)]))
    }

    fn put(&self, slot: u32, [until, since]: [u64; 2]) -> Result<(), Error> {
        let failed = |map| move |source| Error::Map { map, operation: "add to", source };
        sys::map_fill_per_cpu(self.answers.as_fd(), slot, &[0; ANSWER_WORDS]).map_err(failed(ANSWERS))?;
        self.fill_bucket(slot)?;
        let service = [until.to_ne_bytes(), since.to_ne_bytes()].concat();
        sys::map_update(self.services.as_fd(), &slot.to_ne_bytes(), &service).map_err(failed(SERVICES))
    }

    /// Fills the bucket of a rule for SYNs that are passed to services. The bucket's value is the time, in ticks,
    /// at which the bucket is full.
    fn fill_bucket(&self, slot: u32) -> Result<(), Error> {
        let failed = |source| Error::Map { map: KEPT, operation: "add to", source };
        sys::map_update(self.kept.as_fd(), &slot.to_ne_bytes(), &0_u64.to_ne_bytes()).map_err(failed)
    }
}

fn create(name: &'static str, kind: MapKind, key: u32, value: u32, entries: u32) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind, key, value, entries };
    sys::map_create(spec, None).map_err(|source| Error::Map { map: name, operation: "create", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_a_helper_is_refused_by_name() {
        assert!(check_kernel("web", |_| true).is_ok());
        for (missing, name) in HELPERS {
            let error = check_kernel("web", |helper| helper != missing).unwrap_err().to_string();
            assert!(error.contains("\"web\"") && error.contains(name), "{error}");
            assert!(error.contains("Linux 6.0 or later"), "{error}");
        }
    }
}
