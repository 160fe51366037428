//! Block list of a filter: the prefixes of the list's file, and the prefixes that an operator has blocked at
//! run time.

use std::sync::Arc;
use std::time::Duration;

use control::{FailureKind, PlaneError};
use model::{BlockRequest, Blocked, FilterName};
use packet::net::Prefix;
use serde::{Deserialize, Serialize};
use xdp::filter::{Blocklist, FormerList, Moment};

use super::list_build::{Blocks, BuiltList, ListSource, ListState, ReadList, Reloaded};
use super::{Definition, Filtering, Filters, failed, object};

/// A prefix that an operator has blocked in a filter, as it is passed to a successor process: the text of the prefix,
/// and the time at which the block ends, in nanoseconds of CLOCK_MONOTONIC. `None`: the block does not end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Expiring(String, Option<u64>);

impl Expiring {
    /// Converts the prefixes that an operator has blocked in a filter into hand-over state.
    pub fn all(blocks: &Blocks) -> Vec<Expiring> {
        blocks
            .iter()
            .map(|(prefix, until)| Expiring(prefix.to_string(), until.map(|until| until.0)))
            .collect()
    }

    /// Converts hand-over state into blocked prefixes with their end times. Entries that cannot be decoded are omitted.
    pub fn blocks(all: Vec<Expiring>) -> Blocks {
        let read = |Expiring(prefix, until)| Some((prefix.parse().ok()?, until.map(Moment)));
        all.into_iter().filter_map(read).collect()
    }
}

impl Filters {
    /// Checks that a request does not increase the number of prefixes that are blocked at run time beyond the limit.
    /// Prefixes in the request that the filter blocks already do not count as additional.
    ///
    /// # Errors
    /// Returns an error if all filters together would have more than [`BLOCKS_MAX`] such prefixes.
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

    /// Adds prefixes to the block list of a filter, or removes prefixes from the list.
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

    /// Returns the file and the blocked prefixes from which the block list of a filter can be built again.
    ///
    /// # Errors
    /// Returns an error if there is no such filter or file.
    pub fn list_source(&mut self, name: &str) -> Result<ListSource, PlaneError> {
        let (name, running) = self.found(name)?;
        match &running.definition.wanted.blocklist {
            Some(path) => Ok(ListSource {
                name,
                path: path.clone(),
                has_table: running.list.is_some(),
                blocks: Arc::clone(&running.blocks),
            }),
            None => Err(PlaneError {
                kind: FailureKind::Invalid,
                object: object(&name),
                cause: "it has no file of prefixes".to_owned(),
                fix: "give it `blocklist = \"FILE\"` and apply that".to_owned(),
            }),
        }
    }

    /// Builds a block list from the prefixes that were read from its file. The data plane need not
    /// be locked.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory for the table.
    pub fn build_list(source: &ListSource, prefixes: Arc<[Prefix]>) -> Result<ReadList, PlaneError> {
        source.build(prefixes).map_err(|error| failed(&source.name, &error))
    }

    /// Replaces the block list of a filter with a list that was read and built from `source` while the data plane was
    /// not locked. If prefixes were blocked or unblocked in the meantime and `is_last` is false, does not replace the
    /// list, but returns [`Reloaded::Behind`].
    ///
    /// # Errors
    /// Returns an error if there is no such filter, or if the kernel refuses the list. The block list is then
    /// unchanged.
    pub fn reload(
        &mut self,
        source: &ListSource,
        mut read: ReadList,
        is_last: bool,
    ) -> Result<Reloaded, PlaneError> {
        let now = self.list_source(source.name.as_str())?;
        if (&now.path, now.has_table) != (&source.path, source.has_table) {
            return Ok(Reloaded::OtherSource);
        }
        let is_current = read.built.as_ref().is_none_or(|built| built.is_current(&now.blocks));
        if !is_current && !is_last {
            return Ok(Reloaded::Behind(Box::new(read), now.blocks));
        }
        read.follow(&now.blocks);
        let (name, running) = self.found(source.name.as_str())?;
        if let Some((list, built)) = running.list.as_mut().zip(read.built) {
            let former = built.replace(list).map_err(|error| failed(&name, &error))?;
            running.former = Some(former);
        }
        running.definition.prefixes = read.prefixes;
        let listed = running.listed().unwrap_or(0);
        Ok(Reloaded::Done(Blocked { changed: listed, listed }))
    }

    /// Returns the state of a filter's block list: the prefixes from the file of the list, the prefixes that an
    /// operator has blocked, and whether a look-up table was built for the list. Returns `None` if there is no such
    /// filter.
    pub fn list_state(&self, name: &FilterName) -> Option<ListState> {
        let running = self.running.get(name)?;
        Some(ListState {
            prefixes: Arc::clone(&running.definition.prefixes),
            blocks: Arc::clone(&running.blocks),
            has_table: running.list.is_some(),
        })
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

    /// Updates the table of blocked prefixes that hooks and workers read. The table receives the prefixes in the block
    /// list's file and the prefixes that an operator has blocked.
    pub(super) fn write_list(&mut self) -> Result<(), xdp::Error> {
        if self.kernel.is_none() && self.stage.is_none() {
            // Neither a hook nor a worker uses the list. It is created again when one of them does.
            self.list = None;
            return Ok(());
        }
        if !self.definition.asks_for_list() {
            return Ok(());
        }
        if let Some(built) = self.take_built() {
            let list = match (&mut self.list, &self.kernel) {
                (Some(list), _) => list,
                (none, Some(kernel)) => none.insert(Blocklist::of(&kernel.filter, [])?),
                (none, None) => none.insert(Blocklist::new([])?),
            };
            self.former = Some(built.replace(list)?);
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

    /// Undoes a change of the filter's block list: restores the former contents of the list, and the fields of the
    /// former `definition` that concern the list. If no rule refers to a block list after the change, the change has
    /// left the list as it was, and only the fields are restored. Returns the contents that the change had written to
    /// the list.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the exchange. The former contents are then lost.
    pub(super) fn put_back_list(
        &mut self,
        definition: &Definition,
    ) -> Result<Option<FormerList>, xdp::Error> {
        let Some(list) = &mut self.list else { return Ok(None) };
        let replaced = self.former.take().map(|former| list.put_back(former)).transpose()?;
        if replaced.is_some() || !self.definition.asks_for_list() {
            self.definition.prefixes = Arc::clone(&definition.prefixes);
            self.definition.wanted = definition.wanted.clone();
        }
        Ok(replaced)
    }

    /// Takes the block list that was built from the list's file before the data plane was locked. Updates it to the
    /// prefixes that are blocked now, and returns it. Returns `None` if there is no such list.
    pub(super) fn take_built(&mut self) -> Option<BuiltList> {
        let mut built = self.built.take().filter(|built| built.is_of(&self.definition.prefixes))?;
        built.follow(&self.blocks);
        Some(built)
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
        self.blocks = Arc::new(blocks);
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
            let blocks = Arc::make_mut(&mut self.blocks);
            let new = prefixes.iter().filter(|prefix| blocks.insert(**prefix, until).is_none()).count();
            return (u64::try_from(new).unwrap_or(u64::MAX), None);
        };
        let before = list.len();
        // A prefix that is listed because of the list's file stays listed without an end time, even if an operator had
        // blocked it before the file contained it.
        let is_of_file = |prefix: &Prefix| self.definition.lists(prefix) && !list.expires(*prefix);
        let is_own =
            |prefix: &Prefix| !list.has(*prefix) || self.blocks.contains_key(prefix) && !is_of_file(prefix);
        let own: Vec<Prefix> = prefixes.iter().copied().filter(is_own).collect();
        let (refused, error) = list.insert_all(&own, until);
        let changed = u64::try_from(list.len() - before).unwrap_or(u64::MAX);
        let mut blocked = own
            .into_iter()
            .filter(|prefix| !refused.contains(prefix))
            .map(|prefix| (prefix, until))
            .peekable();
        // `make_mut` copies the blocks if a list that is being built shares them. It is therefore called only if there
        // is a change.
        if blocked.peek().is_some() {
            Arc::make_mut(&mut self.blocks).extend(blocked);
        }
        (changed, refused.into_iter().next().zip(error))
    }

    fn unblock(&mut self, prefix: Prefix) -> Result<bool, xdp::Error> {
        let blocked =
            self.blocks.contains_key(&prefix) && Arc::make_mut(&mut self.blocks).remove(&prefix).is_some();
        match &mut self.list {
            Some(list) => list.remove(prefix),
            None => Ok(blocked),
        }
    }
}

/// Maximum number of prefixes that are blocked at run time, by all filters together. Longer lists must be in files.
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
    /// Returns all prefixes of a filter's block list: the prefixes of the list's file, and the prefixes in `blocks`,
    /// which an operator has blocked. The caller writes both in one change. With two changes, a prefix that is in both
    /// could be absent from the block list between the changes.
    pub(super) fn with(&self, blocks: &Blocks) -> Vec<Prefix> {
        let besides = blocks.keys().filter(|prefix| !self.lists(prefix));
        self.prefixes.iter().chain(besides).copied().collect()
    }

    /// Sets the end times of the prefixes in `list`, the kernel's table of blocked prefixes. A prefix that is only in
    /// `blocks` gets its end time. A prefix of the block list's file gets no end time, even if an operator has also
    /// blocked it.
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
    use std::path::{Path, PathBuf};

    use model::Config;
    use xdp::filter::ListView;

    use super::super::{BlocklistFiles, BuiltLists, Changed, Tables};
    use super::*;
    use crate::open::PortSpec;
    use crate::ports::Ports;

    /// Files of block lists are read before filters are prepared, and not during the preparation, because the running
    /// state is then locked.
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
        let prepared = Filters::default().prepare(&config, &files, &Tables::default()).unwrap();
        assert_eq!(prepared[0].1.prefixes.len(), 2);
        // A filter that does not change needs no file.
        assert!(BlocklistFiles::read(&config, &config).is_ok());
        assert!(BlocklistFiles::read(&config, &model::Config::default()).is_err());
    }

    /// The number of blocked prefixes is limited even if no port uses the filter. In this case, there is no lookup
    /// table whose size would limit the number.
    #[test]
    fn no_more_prefixes_are_blocked_at_run_time_than_the_limit() {
        let text = "[[filter.edge.rule]]\nname='a'\naction='drop'\nlisted=true\n";
        let config = model::load(text, "t").unwrap();
        let mut filters = Filters::default();
        for (name, definition) in
            filters.prepare(&config, &BlocklistFiles::default(), &Tables::default()).unwrap()
        {
            filters.came(&name, definition, None);
        }
        let prefixes = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let request = BlockRequest { prefixes, ..BlockRequest::default() };
        assert_eq!(filters.block("edge", &request).unwrap(), Blocked { changed: 2, listed: 2 });
        // Blocking a prefix again with a new end time needs no space.
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

    /// Returns a configuration in which port `a` refers to a filter with a block list.
    fn config(path: &Path) -> Config {
        let text = format!(
            "[port.a]\nkind='tap'\nfilter='edge'\n[filter.edge]\nblocklist={path:?}\n\
             [[filter.edge.rule]]\nname='r'\naction='drop'\nlisted=true\n"
        );
        model::load(&text, "t").unwrap()
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("trivium-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Changes the filters from the configuration `before` to `new`, in the steps in which the data plane does. Returns
    /// a view of the list that was built before the change (`None` if no list was built), and the record of the change.
    fn change(filters: &mut Filters, new: &Config, before: &Config) -> (Option<ListView>, Changed) {
        let files = BlocklistFiles::read(new, before).unwrap();
        let mut lists = files.build(new, before, |name| filters.list_state(name)).unwrap();
        let view = lists.values().next().map(|built| built.list.view());
        let prepared = filters.prepare(new, &files, &Tables::default()).unwrap();
        let mut changed = Changed::new();
        filters.change(prepared, &mut lists, &mut Ports::default(), &mut changed).unwrap();
        (view, changed)
    }

    /// Applies the configuration `new` in the steps in which the data plane does. Returns whether the workers then use
    /// the list that was built before the filters were locked.
    fn apply(filters: &mut Filters, new: &Config, before: &Config) -> bool {
        let (view, _) = change(filters, new, before);
        let (port, _) = new.ports.iter().next().unwrap();
        filters.serve(port, &PortSpec::of(new, port).unwrap()).unwrap();
        let list = filters.running.values().next().unwrap().list.as_ref().unwrap();
        view.is_some_and(|view| view.is_of(list))
    }

    fn request(prefix: &str, expires_s: Option<u64>, unblock: bool) -> BlockRequest {
        BlockRequest { prefixes: vec![prefix.parse().unwrap()], expires_s, unblock }
    }

    #[test]
    fn prefixes_that_are_blocked_while_a_list_is_built_are_in_the_list() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let path = file("built", "192.0.2.0/24\n");
        let (mut filters, config) = (Filters::default(), config(&path));
        apply(&mut filters, &config, &Config::default());
        let block = |filters: &mut Filters, prefix, expires, unblock| {
            filters.block("edge", &request(prefix, expires, unblock)).unwrap();
        };
        block(&mut filters, "10.1.0.0/16", None, false);
        block(&mut filters, "10.2.0.0/16", None, false);
        let source = filters.list_source("edge").unwrap();
        let prefixes: Arc<[Prefix]> =
            ["10.4.0.0/16", "198.51.100.0/24"].map(|text| text.parse().unwrap()).into();
        // Nothing is borrowed from the filters while the list is built.
        let read = source.build(prefixes).unwrap();
        block(&mut filters, "10.1.0.0/16", None, true);
        block(&mut filters, "10.3.0.0/16", Some(1000), false);
        block(&mut filters, "10.4.0.0/16", Some(1000), false);
        let Reloaded::Behind(mut read, blocks) = filters.reload(&source, read, false).unwrap() else {
            panic!("prefixes were blocked meanwhile");
        };
        read.follow(&blocks);
        block(&mut filters, "10.5.0.0/16", None, false);
        let Reloaded::Behind(mut read, blocks) = filters.reload(&source, *read, false).unwrap() else {
            panic!("a prefix was blocked meanwhile");
        };
        read.follow(&blocks);
        block(&mut filters, "10.6.0.0/16", None, false);
        let done = filters.reload(&source, *read, true).unwrap();
        assert!(matches!(done, Reloaded::Done(Blocked { listed: 6, .. })));
        assert_eq!(filters.former().len(), 1);
        let running = filters.running.values_mut().next().unwrap();
        let list = running.list.as_mut().unwrap();
        let has = |text: &str| list.has(text.parse().unwrap());
        for listed in ["10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16", "10.5.0.0/16", "10.6.0.0/16"] {
            assert!(has(listed) && list.view().has(listed.parse::<Prefix>().unwrap().address()), "{listed}");
        }
        assert!(has("198.51.100.0/24") && !has("192.0.2.0/24") && !has("10.1.0.0/16"));
        // Only the prefix that is not in the file has an end.
        assert_eq!(list.expire(Moment(u64::MAX)).unwrap(), 1);
        assert!(!list.has("10.3.0.0/16".parse().unwrap()));
        std::fs::remove_file(path).unwrap();
    }

    /// If an operator has blocked a prefix for a limited time and the file then contains the prefix, the prefix stays
    /// blocked without an end time.
    #[test]
    fn a_prefix_of_the_file_gets_no_end_time() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let path = file("listed", "192.0.2.0/24\n");
        let (mut filters, config) = (Filters::default(), config(&path));
        apply(&mut filters, &config, &Config::default());
        let block = |filters: &mut Filters, expires, unblock| {
            filters.block("edge", &request("10.1.0.0/16", expires, unblock)).unwrap();
        };
        let prefix: Prefix = "10.1.0.0/16".parse().unwrap();
        let is_listed = |filters: &Filters| {
            let list = filters.running.values().next().unwrap().list.as_ref().unwrap();
            (list.has(prefix), list.expires(prefix))
        };
        block(&mut filters, Some(1000), false);
        assert_eq!(is_listed(&filters), (true, true));
        let source = filters.list_source("edge").unwrap();
        let read = source.build([prefix].into()).unwrap();
        assert!(matches!(filters.reload(&source, read, false).unwrap(), Reloaded::Done(_)));
        assert_eq!(is_listed(&filters), (true, false));
        block(&mut filters, Some(1000), false);
        assert_eq!(is_listed(&filters), (true, false), "the file lists it for ever");
        // Once an operator has unblocked the prefix, it no longer counts as a prefix of the file.
        block(&mut filters, None, true);
        block(&mut filters, Some(1000), false);
        block(&mut filters, Some(2000), false);
        assert_eq!(is_listed(&filters), (true, true));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_list_that_lost_its_users_or_its_file_is_read_again() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let path = file("moved", "192.0.2.0/24\n");
        let (mut filters, config) = (Filters::default(), config(&path));
        apply(&mut filters, &config, &Config::default());
        let source = filters.list_source("edge").unwrap();
        let read = source.build(Arc::default()).unwrap();
        filters.retain(&Config::default());
        assert!(filters.reload(&source, read, false).is_err(), "there is no such filter");
        apply(&mut filters, &config, &Config::default());
        let read = source.build(Arc::default()).unwrap();
        let elsewhere = ListSource { path: PathBuf::from("/elsewhere"), ..source };
        assert!(matches!(filters.reload(&elsewhere, read, true).unwrap(), Reloaded::OtherSource));
        std::fs::remove_file(path).unwrap();
    }

    /// If a change fails, the former block list is restored without being built again. The list that was built for the
    /// change becomes former state, which the caller frees after the data plane is unlocked.
    #[test]
    fn a_change_that_fails_puts_the_same_list_back() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let (one, two) = (file("before", "192.0.2.0/24\n"), file("after", "198.51.100.0/24\n10.0.0.0/8\n"));
        let (mut filters, first, second) = (Filters::default(), config(&one), config(&two));
        apply(&mut filters, &first, &Config::default());
        filters.block("edge", &request("10.1.0.0/16", None, false)).unwrap();
        drop(filters.former());
        let list = |filters: &Filters| {
            let list = filters.running.values().next().unwrap().list.as_ref().unwrap();
            (list.view(), list.len())
        };
        let (before, length) = list(&filters);
        let (_, changed) = change(&mut filters, &second, &first);
        assert_eq!(list(&filters).1, 3);
        filters.restore(changed, &mut Ports::default());
        let running = filters.running.values().next().unwrap();
        assert!(before.is_of(running.list.as_ref().unwrap()), "the same table");
        assert_eq!((list(&filters).1, running.definition.prefixes.len()), (length, 1));
        assert!(!filters.former().is_empty() && filters.former().is_empty());
        // The former list is also restored if the change removes the rule that refers to it.
        let mut unlisted = second.clone();
        for rule in unlisted.filters.values_mut().flat_map(|filter| &mut filter.rules) {
            rule.matches.listed = false;
        }
        let (_, changed) = change(&mut filters, &unlisted, &first);
        filters.restore(changed, &mut Ports::default());
        let running = filters.running.values().next().unwrap();
        assert!(before.is_of(running.list.as_ref().unwrap()), "the same table");
        assert_eq!((list(&filters).1, running.definition.prefixes.len()), (length, 1));
        // A removed filter is kept as former state, so that it is not freed while the data plane is locked.
        filters.retain(&Config::default());
        assert!(filters.running.is_empty() && !filters.former().is_empty());
        for path in [one, two] {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// A change of the configuration builds long lists before it locks the filters.
    #[test]
    fn a_change_uses_the_lists_that_were_built_before_it() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let (one, two) = (file("one", "192.0.2.0/24\n"), file("two", "198.51.100.0/24\n10.0.0.0/8\n"));
        let (mut filters, first, second) = (Filters::default(), config(&one), config(&two));
        assert!(apply(&mut filters, &first, &Config::default()), "a new filter");
        filters.block("edge", &request("10.1.0.0/16", None, false)).unwrap();
        assert!(apply(&mut filters, &second, &first), "a list with another file");
        let running = filters.running.values().next().unwrap();
        assert_eq!((running.list.as_ref().unwrap().len(), running.blocks.len()), (3, 1));
        // No list is built for a change of other rules.
        let mut other = second.clone();
        other.filters.values_mut().for_each(|filter| filter.unreadable = model::Unreadable::Pass);
        let files = BlocklistFiles::read(&other, &second).unwrap();
        let lists = files.build(&other, &second, |name| filters.list_state(name)).unwrap();
        assert!(lists.is_empty());
        let none: BuiltLists = files.build(&second, &second, |name| filters.list_state(name)).unwrap();
        assert!(none.is_empty());
        for path in [one, two] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
