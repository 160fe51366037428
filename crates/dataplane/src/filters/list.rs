//! Block list of a filter: the prefixes of the list's file, and the prefixes that an operator has blocked at
//! run time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::{BlockRequest, Blocked, FilterName};
use packet::net::Prefix;
use serde::{Deserialize, Serialize};
use xdp::filter::{Blocklist, Moment};

use super::{Blocks, Definition, Filtering, Filters, failed, object};

/// A prefix that an operator has blocked by a filter, as hand-over state. The number is the time at which the
/// block ends, in nanoseconds of CLOCK_MONOTONIC. `None` means that the block does not end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiring(String, Option<u64>);

impl Expiring {
    /// Converts the prefixes that an operator has blocked by a filter into hand-over state.
    pub fn all(blocks: &Blocks) -> Vec<Expiring> {
        blocks
            .iter()
            .map(|(prefix, until)| Expiring(prefix.to_string(), until.map(|until| until.0)))
            .collect()
    }

    /// Converts hand-over state into blocked prefixes with their end times. Entries that cannot be decoded are
    /// left out.
    pub fn blocks(all: Vec<Expiring>) -> Blocks {
        let read = |Expiring(prefix, until)| Some((prefix.parse().ok()?, until.map(Moment)));
        all.into_iter().filter_map(read).collect()
    }
}

impl Filters {
    /// Checks whether a request leaves the number of prefixes that are blocked at run time within the limit.
    /// Prefixes that the filter has blocked already do not count.
    ///
    /// # Errors
    /// Returns an error if all filters together would have more than [`BLOCKS_MAX`].
    pub fn check_space(&self, name: &str, request: &BlockRequest) -> Result<(), PlaneError> {
        self.check_space_of(name, request, BLOCKS_MAX)
    }

    fn check_space_of(&self, name: &str, request: &BlockRequest, most: usize) -> Result<(), PlaneError> {
        let blocks: usize = self.running.values().map(|running| running.blocks.len()).sum();
        let own = self.running.get(name).map(|running| &running.blocks);
        let is_new = |prefix: &Prefix| own.is_none_or(|own| !own.contains_key(prefix));
        let new = request.prefixes.iter().filter(|prefix| is_new(prefix)).count();
        if request.unblock || blocks + new <= most {
            return Ok(());
        }
        Err(PlaneError {
            kind: FailureKind::Invalid,
            object: format!("filter.{name}"),
            cause: format!("{blocks} prefixes are blocked at run time, and {most} are the most"),
            fix: "unblock prefixes, or put them into the file of a block list".to_owned(),
        })
    }

    /// Adds prefixes to the block list of a filter, or removes them.
    ///
    /// # Errors
    /// Returns an error if there is no such filter, if none of its rules refers to a list, or if the kernel
    /// refuses a prefix. The error names the first refused prefix. All other prefixes of the request are
    /// processed.
    pub fn block(&mut self, name: &str, request: &BlockRequest) -> Result<Blocked, PlaneError> {
        self.check_space(name, request)?;
        let (name, running) = self.found(name)?;
        let until = request.expires_s.map(|seconds| Moment::now().after(Duration::from_secs(seconds)));
        let (mut changed, mut refused) = (0, None);
        if request.unblock {
            for &prefix in &request.prefixes {
                match running.unblock(prefix) {
                    Ok(done) => changed += u64::from(done),
                    // The other prefixes are processed nevertheless.
                    Err(error) => drop(refused.get_or_insert((prefix, error))),
                }
            }
        } else {
            (changed, refused) = running.block(&request.prefixes, until);
        }
        if let Some((prefix, error)) = refused {
            let failed = failed(&name, &error);
            return Err(PlaneError { cause: format!("{prefix}: {}", failed.cause), ..failed });
        }
        Ok(Blocked { changed, listed: running.listed().unwrap_or(0) })
    }

    /// Returns the name of a filter in the configuration, and the path of its block list's file.
    ///
    /// # Errors
    /// Returns an error if there is no such filter or file.
    pub fn blocklist_path(&mut self, name: &str) -> Result<(FilterName, PathBuf), PlaneError> {
        let (name, running) = self.found(name)?;
        match &running.definition.wanted.blocklist {
            Some(path) => Ok((name, path.clone())),
            None => Err(PlaneError {
                kind: FailureKind::Invalid,
                object: object(&name),
                cause: "it has no file of prefixes".to_owned(),
                fix: "give it `blocklist = \"FILE\"` and apply that".to_owned(),
            }),
        }
    }

    /// Applies the prefixes that were read again from the block list's file.
    ///
    /// # Errors
    /// Returns an error if there is no such filter, or if the kernel refuses the prefixes. The block list is
    /// then unchanged.
    pub fn reload(&mut self, name: &str, prefixes: Arc<[Prefix]>) -> Result<Blocked, PlaneError> {
        let (name, running) = self.found(name)?;
        let before = std::mem::replace(&mut running.definition.prefixes, prefixes);
        if let Err(error) = running.write_list() {
            running.definition.prefixes = before;
            return Err(failed(&name, &error));
        }
        let listed = running.listed().unwrap_or(0);
        Ok(Blocked { changed: listed, listed })
    }

    fn found(&mut self, name: &str) -> Result<(FilterName, &mut Filtering), PlaneError> {
        let missing = || {
            let fix = "see the names with `trivium show filters`";
            PlaneError::not_found(format!("filter.{name}"), "there is no such filter", fix)
        };
        let key = self.running.get_key_value(name).map(|(name, _)| name.clone()).ok_or_else(missing)?;
        let running = self.running.get_mut(name).ok_or_else(missing)?;
        if !running.definition.asks_for_list() {
            return Err(PlaneError {
                kind: FailureKind::Invalid,
                object: object(&key),
                cause: "none of its rules asks for a block list".to_owned(),
                fix: "give it a rule with `listed = true` and `action = \"drop\"`".to_owned(),
            });
        }
        Ok((key, running))
    }
}

impl Filtering {
    /// Returns the number of prefixes in the filter's block list. Returns `None` if no rule of the filter
    /// refers to a block list.
    pub(super) fn listed(&self) -> Option<u64> {
        if !self.definition.asks_for_list() {
            return None;
        }
        let count = self
            .list
            .as_ref()
            .map_or_else(|| self.definition.prefixes.len() + self.blocks.len(), Blocklist::len);
        Some(u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Writes the prefixes of the block list's file and the prefixes that an operator has blocked to the table
    /// that hooks and workers read.
    pub(super) fn write_list(&mut self) -> Result<(), xdp::Error> {
        if self.kernel.is_none() && self.stage.is_none() {
            // The list has no user. The next user creates it.
            self.list = None;
            return Ok(());
        }
        if !self.definition.asks_for_list() {
            return Ok(());
        }
        let prefixes = self.definition.with(&self.blocks);
        let list = match (&mut self.list, &self.kernel) {
            (Some(list), _) => {
                list.replace(prefixes)?;
                list
            }
            (none, Some(kernel)) => none.insert(Blocklist::of(&kernel.filter, prefixes)?),
            (none, None) => none.insert(Blocklist::new(prefixes)?),
        };
        self.definition.time(list, &self.blocks)
    }

    /// Adopts the prefixes that an operator has blocked in a predecessor process. A prefix that the kernel
    /// refuses is logged, and the others are still adopted.
    pub(super) fn take_blocks(&mut self, blocks: Blocks) {
        if let Some(list) = &mut self.list {
            for (prefix, until) in blocks.iter().filter(|(prefix, _)| !self.definition.lists(prefix)) {
                if let Err(error) = list.insert(*prefix, *until) {
                    tracing::error!(%prefix, %error, "it was blocked, and cannot be after the upgrade");
                }
            }
        }
        self.next_end = blocks.values().flatten().min().copied();
        self.blocks = blocks;
    }

    /// Logs the number of prefixes that do not fit into the kernel table of the block list, if this number has
    /// changed since the last call.
    pub(super) fn tell_unlisted(&mut self, name: &FilterName) {
        let unlisted = self.list.as_ref().map(|list| list.unlisted().len()).unwrap_or_default();
        if unlisted == self.unlisted {
            return;
        }
        self.unlisted = unlisted;
        if let Some(text) = self.list.as_ref().and_then(unlisted_text) {
            tracing::error!(filter = %name, "{text}");
        }
    }

    /// Blocks prefixes until a time. Returns the number of prefixes that were not in the list before, and the
    /// first prefix that was refused.
    fn block(&mut self, prefixes: &[Prefix], until: Option<Moment>) -> (u64, Option<(Prefix, xdp::Error)>) {
        if let Some(until) = until {
            self.next_end = Some(self.next_end.map_or(until, |next| next.min(until)));
        }
        let Some(list) = &mut self.list else {
            let new = prefixes.iter().filter(|prefix| self.blocks.insert(**prefix, until).is_none()).count();
            return (u64::try_from(new).unwrap_or(u64::MAX), None);
        };
        let before = list.len();
        // A prefix of the list's file stays as it is.
        let is_own = |prefix: &Prefix| !list.has(*prefix) || self.blocks.contains_key(prefix);
        let own: Vec<Prefix> = prefixes.iter().copied().filter(is_own).collect();
        let (refused, error) = list.insert_all(&own, until);
        let changed = u64::try_from(list.len() - before).unwrap_or(u64::MAX);
        self.blocks.extend(own.into_iter().filter(|prefix| !refused.contains(prefix)).map(|p| (p, until)));
        (changed, refused.into_iter().next().zip(error))
    }

    fn unblock(&mut self, prefix: Prefix) -> Result<bool, xdp::Error> {
        let blocked = self.blocks.remove(&prefix).is_some();
        match &mut self.list {
            Some(list) => list.remove(prefix),
            None => Ok(blocked),
        }
    }
}

/// Maximum number of prefixes that are blocked at run time, by all filters together. Longer lists belong into files.
const BLOCKS_MAX: usize = 1_000_000;

/// Maximum number of prefixes that one diagnostic names.
const NAMED: usize = 8;

/// Returns a text about the prefixes that do not fit into the kernel table of a block list. Returns `None` if
/// all prefixes fit.
fn unlisted_text(list: &Blocklist) -> Option<String> {
    let unlisted = list.unlisted();
    let named: Vec<String> = unlisted.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if unlisted.len() > NAMED { ", ..." } else { "" };
    let text = format!(
        "{} prefixes of its block list have no place in the table, and packets from there pass as if they were not listed: {}{more}",
        unlisted.len(),
        named.join(", ")
    );
    (!unlisted.is_empty()).then_some(text)
}

impl Filters {
    /// Returns the filters with prefixes that do not fit into the table of their block list, each with a text
    /// about these prefixes.
    pub fn unlisted(&self) -> impl Iterator<Item = (&FilterName, String)> {
        self.running.iter().filter_map(|(name, running)| Some((name, unlisted_text(running.list.as_ref()?)?)))
    }
}

impl Definition {
    /// Returns all prefixes of a filter's block list: those of the list's file and those in `blocks`, which an
    /// operator has blocked. Both are written in one change. With two changes, a prefix that is in both could
    /// be absent from the block list in between.
    pub(super) fn with(&self, blocks: &Blocks) -> Vec<Prefix> {
        let besides = blocks.keys().filter(|prefix| !self.lists(prefix));
        self.prefixes.iter().chain(besides).copied().collect()
    }

    /// Writes the end time of each blocked prefix to `list`. Prefixes of the block list's file have no end
    /// time, even if an operator has also blocked them with an end time.
    pub(super) fn time(&self, list: &mut Blocklist, blocks: &Blocks) -> Result<(), xdp::Error> {
        let ending = blocks.iter().filter(|(prefix, until)| until.is_some() && !self.lists(prefix));
        ending.into_iter().try_for_each(|(prefix, until)| list.insert(*prefix, *until))
    }

    fn lists(&self, prefix: &Prefix) -> bool {
        self.prefixes.binary_search(prefix).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlocklistFiles;
    use super::*;

    /// Block lists are read before filters are prepared, because the running state is locked during the
    /// preparation.
    #[test]
    fn a_block_list_is_not_read_while_filters_are_prepared() {
        let path = std::env::temp_dir().join(format!("trivium-blocklist-{}", std::process::id()));
        std::fs::write(&path, "192.0.2.0/24\n10.0.0.0/8\n").unwrap();
        let text = format!(
            "[filter.edge]\nblocklist = {path:?}\n[[filter.edge.rule]]\nname='a'\naction='drop'\nlisted=true\n"
        );
        let config = model::load(&text, "t").unwrap();
        let files = BlocklistFiles::read(&config, &model::Config::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let prepared = Filters::default().prepare(&config, &files).unwrap();
        assert_eq!(prepared[0].1.prefixes.len(), 2);
        // A filter that does not change needs no file.
        assert!(BlocklistFiles::read(&config, &config).is_ok());
        assert!(BlocklistFiles::read(&config, &model::Config::default()).is_err());
    }

    /// A filter that no port uses has no table that could be full.
    #[test]
    fn no_more_prefixes_are_blocked_at_run_time_than_the_limit() {
        let text = "[[filter.edge.rule]]\nname='a'\naction='drop'\nlisted=true\n";
        let config = model::load(text, "t").unwrap();
        let mut filters = Filters::default();
        for (name, definition) in filters.prepare(&config, &BlocklistFiles::default()).unwrap() {
            filters.came(&name, definition);
        }
        let prefixes = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let request = BlockRequest { prefixes, ..BlockRequest::default() };
        assert_eq!(filters.block("edge", &request).unwrap(), Blocked { changed: 2, listed: 2 });
        // Prefixes whose end is renewed need no space.
        assert!(filters.check_space_of("edge", &request, 2).is_ok());
        let more = |text: &str| {
            let prefixes = request.prefixes.iter().copied().chain([text.parse().unwrap()]).collect();
            BlockRequest { prefixes, ..BlockRequest::default() }
        };
        assert!(filters.check_space_of("edge", &more("10.0.0.0/8"), 3).is_ok());
        let error = filters.check_space_of("edge", &more("10.0.0.0/8"), 2).unwrap_err();
        assert_eq!(error.object, "filter.edge");
        let unblock = BlockRequest { unblock: true, ..more("10.0.0.0/8") };
        assert!(filters.check_space_of("edge", &unblock, 2).is_ok());
    }

    #[test]
    fn blocks_survive_the_way_to_a_successor() {
        let blocks: Blocks = [("10.0.0.0/8", None), ("2001:db8::/32", Some(Moment(7)))]
            .map(|(p, m)| (p.parse().unwrap(), m))
            .into();
        let text = serde_json::to_string(&Expiring::all(&blocks)).unwrap();
        assert_eq!(Expiring::blocks(serde_json::from_str(&text).unwrap()), blocks);
        assert!(Expiring::blocks(vec![Expiring("x".to_owned(), None)]).is_empty());
    }
}
