//! Running filters. The kernel objects of a filter are created when the hook of a port first needs them. All ports that
//! refer to the filter share its kernel objects, which can be changed while traffic flows. For ports without a hook,
//! workers apply the filter in their ingress stage (`stage.rs`). After a change of the filter, the next snapshot
//! contains a new ingress stage.
//!
//! ```text
//!  configuration --prepare: read, compile--> Definition --change--> rules and list in the kernel
//!               (an error changes nothing)                   `ensure`: each port's hook gets the filter that the port names
//! ```
//!
//! A filter is compiled when a port refers to it. The rules of other filters are only checked (`compile.rs`). Large
//! tables and lists are built before the data plane is locked, and freed after the data plane is unlocked.
//!
//! A filter that a killed predecessor left in a pinned hook is adopted with its counters. The adopted filter is
//! identified by the filter name in the port's configuration. After a hand-over, filters are adopted when the
//! configuration is first applied.

mod compile;
mod follow;
mod list;
mod list_build;
mod list_file;
mod remaining;
mod resume;
mod rule_tables;
mod stage;
mod translate;
mod worker_stage;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use control::{FailureKind, PlaneError};
use model::{Config, CookieState, FilterName, FilterState, PortName, RuleState};
use packet::net::Prefix;
use xdp::filter::{
    Blocklist, Compiled, CookieCounters, Filter, FilterError, FilterSizes, FormerList, Moment, RULES_MAX,
    RuleCounters, RuleSet, Tally, Unreadable,
};
use xdp::{Attached, StageChange};

use super::af_xdp;
use super::device::object as port_object;
use super::open::{Opened, PortSpec};
use super::ports::{Ports, Running};

pub use compile::{Tables, refusals};
pub use follow::{Followed, Taken};
pub use list::Expiring;
use list_build::BuiltList;
pub use list_build::{Blocks, Reloaded};
pub use list_file::{BlocklistFiles, read_blocklist};
pub use remaining::Remaining;
use remaining::RemainingRules;
pub use rule_tables::write_tables;
use worker_stage::Stage;

/// All running filters of the daemon.
#[derive(Default)]
pub struct Filters {
    running: BTreeMap<FilterName, Filtering>,
    /// Former state of filters that changes have replaced. Freeing the state takes long, so the caller drops it after
    /// the data plane is unlocked ([`Filters::former`]).
    former: Vec<Former>,
}

/// Former state of filters, such as tables and block lists, which only has to be dropped.
pub type Former = Box<dyn Send>;

/// State of a running filter: its definition, its kernel objects, its ingress stage and its counters.
struct Filtering {
    definition: Definition,
    /// Prefixes that an operator has blocked. While a block list is being built from these prefixes, the value is
    /// shared with the builder. A later change is then made in a copy.
    blocks: Arc<Blocks>,
    /// Time at or before the first end time in `blocks`. Before this time, no block expires. `None` if no blocked
    /// prefix has an end time.
    next_end: Option<Moment>,
    /// Block list of the filter. `None` if no rule refers to the list, or if neither a hook nor a worker uses the
    /// filter.
    list: Option<Blocklist>,
    /// Block list that was built before the data plane was locked. The filter does not use it yet.
    built: Option<BuiltList>,
    /// Contents of `list` before the change that is being applied. If the change fails, these contents
    /// are restored.
    former: Option<FormerList>,
    kernel: Option<Kernel>,
    /// Ingress stage for the workers of ports without a hook. `None` until such a port uses the filter.
    stage: Option<Arc<Stage>>,
    /// Counters of the filter's rules for packets that workers have filtered. Packets that hooks have filtered are
    /// counted in the kernel.
    tally: Tally,
    /// Number of prefixes of the block list that do not fit into its kernel table, as it was last logged.
    unlisted: usize,
}

/// Definition of a filter in the configuration, from which the filter's kernel objects are created.
#[derive(Clone)]
pub struct Definition {
    wanted: model::Filter,
    /// Rules of the filter that have not expired.
    rules: RuleSet,
    /// Tables of the rules. `None` if no port refers to the filter.
    compiled: Option<Arc<Compiled>>,
    /// Prefixes in the block list's file, sorted.
    prefixes: Arc<[Prefix]>,
}

/// Kernel objects of a filter, such as its BPF maps.
struct Kernel {
    filter: Filter,
    /// Whether a client reads the filter's samples.
    followed: Arc<AtomicBool>,
}

/// Record of changed filters, for undoing the changes. Each entry has the filter's former definition and rule
/// counters, or `None` for a new filter.
pub type Changed = Vec<(FilterName, Option<(Definition, Vec<RuleCounters>)>)>;

/// Block lists that were built before the data plane was locked, by the names of their filters.
pub type BuiltLists = BTreeMap<FilterName, BuiltList>;

impl Definition {
    fn of(
        name: &FilterName,
        wanted: &model::Filter,
        files: &BlocklistFiles,
    ) -> Result<Definition, PlaneError> {
        let rules = translate::current_rules(wanted);
        Compiled::check(&rules).map_err(|error| refused(name, &error))?;
        let prefixes = match &wanted.blocklist {
            Some(path) => files.prefixes(name, path)?,
            None => Arc::default(),
        };
        Ok(Definition { wanted: wanted.clone(), rules, compiled: None, prefixes })
    }

    fn asks_for_list(&self) -> bool {
        self.wanted.rules.iter().any(|rule| rule.matches.listed)
    }
}

impl Filters {
    /// Reads and compiles the filters of a configuration, and creates the ingress stages for workers.
    ///
    /// # Errors
    /// Returns the errors of [`Filters::prepare`], or an error if the kernel refuses a block list.
    pub fn begun(config: &Config) -> Result<Filters, PlaneError> {
        let mut filters = Filters::default();
        let files = BlocklistFiles::read(config, &Config::default())?;
        for (name, definition) in filters.prepare(config, &files, &Tables::default())? {
            filters.came(&name, definition, None);
        }
        for port in config.ports.keys() {
            if let Some(wanted) = PortSpec::of(config, port) {
                filters.serve(port, &wanted)?;
            }
        }
        Ok(filters)
    }

    /// Adopts the blocked prefixes and the workers' rule counters of a predecessor process.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a change of a block list.
    pub fn inherit(
        &mut self,
        mut blocks: BTreeMap<FilterName, Blocks>,
        mut counted: BTreeMap<FilterName, Vec<RuleCounters>>,
    ) -> Result<(), PlaneError> {
        for (name, running) in &mut self.running {
            running.tally = Tally::after(counted.remove(name).unwrap_or_default());
            let blocks = blocks.remove(name).unwrap_or_default();
            running.take_blocks(blocks);
            running.remake_stage().map_err(|error| failed(name, &error))?;
        }
        Ok(())
    }

    /// Applies changed filter definitions on all ports that use the filters. `lists` contains the block lists that were
    /// built before the data plane was locked. The changes are recorded in `changed` even if one of them fails.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a change.
    pub fn change(
        &mut self,
        prepared: Vec<(FilterName, Definition)>,
        lists: &mut BuiltLists,
        ports: &mut Ports,
        changed: &mut Changed,
    ) -> Result<(), PlaneError> {
        for (name, definition) in prepared {
            let before = self
                .running
                .get(&name)
                .map(|running| (running.definition.clone(), running.counters().into_values().collect()));
            changed.push((name.clone(), before));
            self.define(&name, definition, lists.remove(&name), ports)?;
        }
        Ok(())
    }

    fn define(
        &mut self,
        name: &FilterName,
        definition: Definition,
        built: Option<BuiltList>,
        ports: &mut Ports,
    ) -> Result<(), PlaneError> {
        let Some(running) = self.running.get_mut(name) else {
            self.came(name, definition, built);
            return Ok(());
        };
        let before = std::mem::replace(&mut running.definition, definition);
        running.built = built;
        // A long list is not written again for a change of other rules.
        let now = &running.definition;
        let is_same = before.asks_for_list() == now.asks_for_list() && before.prefixes == now.prefixes;
        let listed = if is_same && running.list.is_some() { Ok(()) } else { running.write_list() };
        let written = listed.and_then(|()| running.write_rules(ports)).map_err(|error| failed(name, &error));
        self.former.push(Box::new(before));
        written
    }

    /// Adds a new filter, which no port uses yet.
    fn came(&mut self, name: &FilterName, definition: Definition, built: Option<BuiltList>) {
        let running = Filtering {
            definition,
            blocks: Arc::default(),
            next_end: None,
            list: None,
            built,
            former: None,
            kernel: None,
            stage: None,
            tally: Tally::default(),
            unlisted: 0,
        };
        self.running.insert(name.clone(), running);
    }

    /// Undoes the changes of filters that `changed` records.
    pub fn restore(&mut self, changed: Changed, ports: &mut Ports) {
        for (name, before) in changed.into_iter().rev() {
            let Some((definition, counted)) = before else {
                self.former.extend(self.running.remove(&name).map(|running| Box::new(running) as Former));
                continue;
            };
            if let Some(running) = self.running.get_mut(&name) {
                // Rules that the change has removed are restored with their counters.
                let now = running.counters();
                running.tally.inherit(counted.into_iter().filter(|rule| !now.contains_key(&rule.name)));
                match running.put_back_list(&definition) {
                    Ok(replaced) => self.former.extend(replaced.map(|list| Box::new(list) as Former)),
                    // If this fails, the list is built again from its prefixes.
                    Err(error) => {
                        tracing::error!(filter = %name, %error, "its former list could not be put back")
                    }
                }
            }
            if let Err(error) = self.define(&name, definition, None, ports) {
                tracing::error!(%error, "could not be changed back after a change that failed");
            }
        }
    }

    /// Adds the record of a successful change to the former state that [`Filters::former`] returns and the caller
    /// frees.
    pub fn forget(&mut self, changed: Changed) {
        self.former.push(Box::new(changed));
    }

    /// Returns the former state that changes have replaced. Freeing this state takes long, so the caller must drop it
    /// only after the data plane is unlocked.
    pub fn former(&mut self) -> Vec<Former> {
        let lists = self.running.values_mut().filter_map(|running| running.former.take());
        self.former.extend(lists.map(|list| Box::new(list) as Former));
        std::mem::take(&mut self.former)
    }

    /// Removes filters that the new configuration does not contain, ingress stages that no port uses, and the tables of
    /// filters to which no port refers.
    pub fn retain(&mut self, new: &Config) {
        let removed: Vec<_> =
            self.running.extract_if(.., |name, _| !new.filters.contains_key(name)).collect();
        self.former.extend(removed.into_iter().map(|filter| Box::new(filter) as Former));
        let named = named_by_ports(new);
        for (name, running) in &mut self.running {
            self.former.extend(running.built.take().map(|list| Box::new(list) as Former));
            self.former.extend(running.former.take().map(|list| Box::new(list) as Former));
            if !named.contains(name) {
                self.former.extend(running.release());
            }
        }
        let wanted: Vec<PortSpec> = new.ports.keys().filter_map(|port| PortSpec::of(new, port)).collect();
        let served: BTreeSet<&FilterName> = wanted.iter().filter_map(PortSpec::workers_filter).collect();
        for (_, running) in self.running.iter_mut().filter(|(name, _)| !served.contains(name)) {
            running.stage = None;
            if running.kernel.is_none() {
                // Neither a hook nor a worker uses the list any more, so the list would not be updated.
                self.former.extend(running.list.take().map(|list| Box::new(list) as Former));
            }
        }
    }

    /// Installs in every port's hook the filter to which the port refers. A hook that drops all frames continues to do
    /// so. Skips hooks that are detached. For ports without a hook, prepares the filter for the workers.
    /// [`Filters::ensure_workers`] then publishes the filter to the workers.
    ///
    /// # Errors
    /// Returns an error for the first hook that refuses its filter, or an error for a filter that only a hook can
    /// apply.
    pub fn ensure(&mut self, ports: &mut Ports) -> Result<(), PlaneError> {
        for (port, running) in ports.iter_mut() {
            let wanted = named(running).cloned();
            if let Some(hook) = &mut running.hook {
                let put = self.put(port, wanted.as_ref(), hook);
                af_xdp::unless_detached(port, hook, put)?;
            }
        }
        // The workers follow the hooks, because installing a filter in a hook may create the block list.
        ports.iter().try_for_each(|(port, running)| self.serve(port, &running.wanted).map(drop))
    }

    /// Installs in a port's hook the filter to which the port refers. If the hook dropped all frames, it then starts to
    /// pass frames. Does nothing if the hook is detached.
    ///
    /// # Errors
    /// Returns an error if the hook refuses the filter or its program.
    pub fn ensure_hook(&mut self, port: &PortName, running: &mut Running) -> Result<(), PlaneError> {
        let wanted = named(running).cloned();
        let Some(hook) = &mut running.hook else { return Ok(()) };
        let put = self.put(port, wanted.as_ref(), hook).and_then(|()| match af_xdp::is_locked(hook) {
            true => af_xdp::unlock(port, &running.wanted, hook, &running.sockets),
            false => Ok(()),
        });
        af_xdp::unless_detached(port, hook, put)
    }

    /// Sets the ingress stages of ports without a hook for the next snapshot. This must be the last step of a
    /// configuration change, because a snapshot with the new stages may be published while other steps are
    /// undone.
    ///
    /// # Errors
    /// Returns an error for the first filter that only a hook can apply, or whose block list the kernel
    /// refuses. The ports then keep their former ingress stages.
    pub fn ensure_workers(&mut self, ports: &mut Ports) -> Result<(), PlaneError> {
        let stages: Result<Vec<_>, PlaneError> =
            ports.iter().map(|(port, running)| self.serve(port, &running.wanted)).collect();
        for (running, stage) in ports.values_mut().zip(stages?) {
            running.own = stage;
        }
        Ok(())
    }

    /// Installs a filter in a port's hook, or removes the hook's filter.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the filter. The hook is then unchanged.
    pub fn put(
        &mut self,
        port: &PortName,
        wanted: Option<&FilterName>,
        hook: &mut Attached,
    ) -> Result<(), PlaneError> {
        let failed = |error: xdp::Error| super::device::failed(port, &error);
        let present = hook.filter_id().map_err(failed)?;
        let Some(name) = wanted else {
            return if present.is_some() {
                hook.set_stage(StageChange::Filter(None)).map_err(failed)
            } else {
                Ok(())
            };
        };
        let taken = self.ids();
        let running = self.running.get_mut(name).ok_or_else(|| no_such_filter(port, name))?;
        if let Some(kernel) = &running.kernel {
            // Equal counters do not prove that the rules are equal: the hook of a predecessor has the filter's
            // counters, but its own rules.
            let same = kernel.filter.is_on(hook);
            return if same {
                Ok(())
            } else {
                hook.set_stage(StageChange::Filter(Some(&kernel.filter))).map_err(failed)
            };
        }
        let taken = taken.map_err(failed)?;
        let left = present.is_some_and(|id| !taken.contains(&id));
        let kernel = if left { running.adopt(hook) } else { running.make(hook) };
        running.kernel = Some(kernel.map_err(failed)?);
        Ok(())
    }

    /// Installs the filter of a newly opened port, before the workers use the port.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the filter.
    pub fn equip(
        &mut self,
        port: &PortName,
        wanted: &PortSpec,
        opened: &mut Opened,
    ) -> Result<(), PlaneError> {
        opened.own = self.serve(port, wanted)?;
        opened.hook.as_mut().map_or(Ok(()), |hook| self.put(port, wanted.filter(), hook))
    }

    /// Returns the kernel IDs of the filters that have kernel objects.
    fn ids(&self) -> Result<Vec<u32>, xdp::Error> {
        self.running.values().filter_map(|running| running.kernel.as_ref()).map(|k| k.filter.id()).collect()
    }

    /// Returns the filters in which rules have expired, each with its remaining rules.
    pub fn remaining(&self) -> Remaining {
        let now = Moment::now();
        let of = |(name, running): (&FilterName, &Filtering)| {
            running.definition.rules.next_expiry().filter(|next| *next <= now)?;
            let rules = running.definition.rules.without_expired(now)?;
            let needs_tables = running.definition.compiled.is_some();
            let in_hooks = running.kernel.is_some();
            Some((name.clone(), RemainingRules { rules, needs_tables, in_hooks, compiled: None }))
        };
        Remaining { at: now, filters: self.running.iter().filter_map(of).collect() }
    }

    /// Removes blocked prefixes whose time has ended, and expired rules of filters in `remaining`. The housekeeping
    /// thread calls this function regularly.
    pub fn expire(&mut self, ports: &mut Ports, mut remaining: Remaining) {
        let now = Moment::now();
        for (name, running) in &mut self.running {
            running.tell_unlisted(name);
            let rules = remaining.filters.remove(name);
            let expired = running.expire_prefixes(now).and_then(|()| match rules {
                Some(rules) => running.expire_rules(name, ports, rules, remaining.at),
                None => Ok(None),
            });
            match expired {
                Ok(former) => self.former.extend(former),
                Err(error) => {
                    tracing::warn!(filter = %name, %error, "expired rules or prefixes could not be removed");
                }
            }
        }
    }

    /// Returns the states of all filters for the API.
    pub fn states(&self, ports: &Ports) -> Vec<FilterState> {
        self.running.iter().map(|(name, running)| running.state(name, ports)).collect()
    }

    /// Returns the rules with SYN cookies of all filters that are installed in a hook, each with the name of
    /// its filter.
    pub fn services(&self) -> impl Iterator<Item = (&FilterName, &model::FilterRule, &model::SynCookie)> {
        let running = self.running.iter().filter(|(_, running)| running.kernel.is_some());
        running.flat_map(|(name, running)| {
            running.definition.wanted.rules.iter().filter_map(move |rule| match &rule.action {
                model::FilterAction::SynCookie(cookie) => Some((name, rule, cookie)),
                _ => None,
            })
        })
    }

    /// Returns the filters that pass packets whose headers cannot be parsed, each with the names of the ports that use
    /// the filter.
    pub fn open(&self, ports: &Ports) -> Vec<(&FilterName, Vec<String>)> {
        let open = |(name, running): (&'_ FilterName, &Filtering)| {
            let strict = RuleSet { unreadable: Unreadable::Drop, ..running.definition.rules.clone() };
            let evaded =
                running.definition.wanted.unreadable == model::Unreadable::Pass && strict.drops_unreadable();
            evaded.then(|| running.state(name, ports).ports)
        };
        self.running.iter().filter_map(|(name, running)| Some((name, open((name, running))?))).collect()
    }

    /// Returns whether a port's hook answers SYN packets itself (SYN cookies).
    pub fn answers(&self, running: &Running) -> bool {
        named(running).is_some_and(|name| self.services().any(|(other, _, _)| other == name))
    }

    /// Returns the prefixes that an operator has blocked while the daemon ran, for the hand-over to a successor
    /// process.
    pub fn blocks(&self) -> impl Iterator<Item = (&FilterName, &Blocks)> {
        self.running.iter().map(|(name, running)| (name, running.blocks.as_ref()))
    }

    /// Returns the workers' counters of each filter's rules, for the hand-over to a successor process.
    pub fn counted(&self) -> impl Iterator<Item = (&FilterName, Vec<RuleCounters>)> {
        self.running.iter().map(|(name, running)| (name, running.tally.counters()))
    }
}

impl Filtering {
    /// Adopts the kernel objects of the filter that a predecessor process left in a hook.
    fn adopt(&mut self, hook: &mut Attached) -> Result<Kernel, xdp::Error> {
        let Some(mut filter) = Filter::of(hook)? else { return self.make(hook) };
        // The predecessor's program may read block lists of another format. The hook therefore keeps its own list until
        // the program is replaced.
        let made = if self.list.is_none() { self.new_list()? } else { None };
        if let Some(list) = self.list.as_ref().or(made.as_ref()) {
            filter.use_list(list)?;
        }
        filter.replace_on(&*self.definition.compile()?, &mut [hook])?;
        self.list = self.list.take().or(made);
        Ok(Kernel { filter, followed: Arc::default() })
    }

    /// Removes and returns the tables of a filter to which no port refers any more. The counts of the filter's rules
    /// are kept.
    fn release(&mut self) -> Option<Former> {
        let compiled = self.definition.compiled.take();
        if compiled.is_none() && self.kernel.is_none() && self.stage.is_none() {
            return None;
        }
        self.tally = Tally::after(self.counters().into_values());
        Some(Box::new((compiled, self.kernel.take(), self.stage.take(), self.list.take())))
    }

    fn make(&mut self, hook: &mut Attached) -> Result<Kernel, xdp::Error> {
        let mut made = None;
        if self.list.is_none() {
            made = self.new_list()?;
        }
        let sizes = FilterSizes { rules: RULES_MAX, ..FilterSizes::default() };
        let list = self.list.as_ref().or(made.as_ref());
        let filter = Filter::new(&*self.definition.compile()?, sizes, list)?;
        hook.set_stage(StageChange::Filter(Some(&filter)))?;
        self.list = self.list.take().or(made);
        Ok(Kernel { filter, followed: Arc::default() })
    }

    /// Creates the block list and writes its prefixes. Returns `None` if no rule refers to a block list.
    fn new_list(&mut self) -> Result<Option<Blocklist>, xdp::Error> {
        if !self.definition.asks_for_list() {
            return Ok(None);
        }
        if let Some(built) = self.take_built() {
            return Ok(Some(built.into_list()));
        }
        let mut list = Blocklist::new(self.definition.with(&self.blocks))?;
        self.definition.time(&mut list, &self.blocks)?;
        Ok(Some(list))
    }

    /// Writes the current rules of the filter to every hook in which the filter is installed. Skips hooks that are
    /// detached, because their devices were deleted or another program has detached them.
    fn write_rules(&mut self, ports: &mut Ports) -> Result<(), xdp::Error> {
        // A filter without tables is a filter to which no port of the configuration refers.
        let (Some(kernel), Some(compiled)) = (&mut self.kernel, &self.definition.compiled) else {
            return Ok(());
        };
        let is_attached = |hook: &&mut Attached| hook.is_alive().unwrap_or(true);
        let mut hooks: Vec<&mut Attached> = Vec::new();
        for hook in ports.values_mut().filter_map(|running| running.hook.as_mut()).filter(is_attached) {
            // The hook's filter is compared, because the port's filter name may be about to change.
            if hook.filter_id()? == Some(kernel.filter.id()?) {
                hooks.push(hook);
            }
        }
        let mut written = kernel.filter.replace_on(compiled, &mut hooks);
        // A hook may have been detached during the change. It is left out, and the others are tried again.
        while written.is_err() {
            let tried = hooks.len();
            hooks.retain(is_attached);
            if hooks.len() == tried {
                break;
            }
            written = kernel.filter.replace_on(compiled, &mut hooks);
        }
        written
    }

    fn expire_prefixes(&mut self, now: Moment) -> Result<(), xdp::Error> {
        if let Some(list) = &mut self.list {
            list.expire(now)?;
        }
        // Several calls may be needed to remove all expired prefixes from the list. Until then, the expired prefixes
        // stay in `blocks`.
        let is_current = self.list.as_ref().and_then(Blocklist::next_expiry).is_none_or(|next| next > now);
        if is_current && self.next_end.is_some_and(|next| next <= now) {
            Arc::make_mut(&mut self.blocks).retain(|_, until| until.is_none_or(|until| until > now));
            self.next_end = self.blocks.values().flatten().min().copied();
        }
        Ok(())
    }

    /// Replaces the rules with the rules in `remaining`, which had not expired at the time `at`. Does nothing if the
    /// rules were changed after `remaining` was computed, and leaves the removal to a later call. Rules that have
    /// expired since `at` are removed by a later call as well. Returns the former tables.
    fn expire_rules(
        &mut self,
        name: &FilterName,
        ports: &mut Ports,
        remaining: RemainingRules,
        at: Moment,
    ) -> Result<Option<Former>, xdp::Error> {
        let RemainingRules { rules, compiled, .. } = remaining;
        let has_tables = self.definition.compiled.is_some();
        if self.definition.rules.without_expired(at).as_ref() != Some(&rules)
            || compiled.is_none() && has_tables
        {
            return Ok(None);
        }
        tracing::info!(filter = %name, left = rules.rules.len(), "rules have expired");
        self.definition.rules = rules;
        let compiled = if has_tables { compiled } else { None };
        let former = std::mem::replace(&mut self.definition.compiled, compiled);
        self.write_rules(ports)?;
        Ok(former.map(|former| Box::new(former) as Former))
    }

    /// Returns the counters of each rule, summed over hooks and workers and indexed by rule name.
    fn counters(&self) -> BTreeMap<String, RuleCounters> {
        let counters = self.kernel.as_ref().and_then(|kernel| kernel.filter.counters().ok());
        let mut counters: BTreeMap<String, RuleCounters> =
            counters.into_iter().flatten().map(|rule| (rule.name.clone(), rule)).collect();
        for rule in self.tally.counters() {
            match counters.get_mut(&rule.name) {
                Some(sum) => {
                    sum.packets += rule.packets;
                    sum.bytes += rule.bytes;
                    sum.acted += rule.acted;
                    sum.acted_bytes += rule.acted_bytes;
                }
                None => drop(counters.insert(rule.name.clone(), rule)),
            }
        }
        counters
    }

    fn state(&self, name: &FilterName, ports: &Ports) -> FilterState {
        let counters = self.counters();
        let cookies = self.kernel.as_ref().and_then(|kernel| kernel.filter.cookie_counters().ok());
        let cookies = cookies.unwrap_or_default();
        let wanted = &self.definition.wanted;
        let mut rules: Vec<&model::FilterRule> = wanted.rules.iter().collect();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let alive: HashSet<&str> =
            self.definition.rules.rules.iter().map(|rule| rule.name.as_str()).collect();
        let state = |rule: &model::FilterRule| {
            let counted = counters.get(rule.name.as_str());
            let figure = |read: fn(&RuleCounters) -> u64| counted.map_or(0, read);
            RuleState {
                name: rule.name.to_string(),
                priority: rule.priority,
                action: rule.action.name().to_owned(),
                dry_run: rule.dry_run,
                expires: rule.expires.map(|time| time.to_string()),
                expired: rule.expires.is_some() && !alive.contains(rule.name.as_str()),
                packets: figure(|rule| rule.packets),
                bytes: figure(|rule| rule.bytes),
                acted_packets: figure(|rule| rule.acted),
                acted_bytes: figure(|rule| rule.acted_bytes),
                cookies: cookie_state(&rule.action, cookies.get(rule.name.as_str())),
            }
        };
        // The rule for unreadable packets follows all others and is not part of the configuration.
        let unreadable = self.definition.rules.drops_unreadable().then(|| {
            let counted = counters.get(Unreadable::RULE);
            let figure = |read: fn(&RuleCounters) -> u64| counted.map_or(0, read);
            RuleState {
                name: Unreadable::RULE.to_owned(),
                priority: 0,
                action: model::FilterAction::Drop.name().to_owned(),
                dry_run: false,
                expires: None,
                expired: false,
                packets: figure(|rule| rule.packets),
                bytes: figure(|rule| rule.bytes),
                acted_packets: figure(|rule| rule.acted),
                acted_bytes: figure(|rule| rule.acted_bytes),
                cookies: None,
            }
        });
        let has = |running: &Running| match running.wanted.workers_filter() {
            Some(named) => named == name && running.own.is_some() && !running.queues.is_empty(),
            None => running.hook.is_some() && named(running) == Some(name),
        };
        let having = ports.iter().filter(|(_, running)| has(running));
        FilterState {
            name: name.to_string(),
            owner: model::Owner::File,
            ports: having.map(|(port, _)| port.to_string()).collect(),
            blocklist: wanted.blocklist.as_ref().map(|path| path.display().to_string()),
            listed: self.listed(),
            rules: rules.into_iter().map(state).chain(unreadable).collect(),
        }
    }
}

/// Returns the counters of a rule with SYN cookies. All counters are zero if no hook has the rule.
fn cookie_state(action: &model::FilterAction, counted: Option<&CookieCounters>) -> Option<CookieState> {
    let model::FilterAction::SynCookie(cookie) = action else { return None };
    let counted = counted.copied().unwrap_or_default();
    Some(CookieState {
        answered: counted.answered,
        valid: counted.valid,
        invalid: counted.invalid,
        refused: counted.refused,
        through: counted.through,
        answering: counted.flood || cookie.mode == model::CookieMode::Always,
    })
}

/// Returns the names of the filters to which the ports of a configuration refer.
fn named_by_ports(config: &Config) -> BTreeSet<&FilterName> {
    config.ports.values().filter_map(|port| port.filter.as_ref()).collect()
}

/// Returns the name of the filter in the configuration of a running port. Returns `None` if the port has no
/// filter.
pub fn named(running: &Running) -> Option<&FilterName> {
    running.wanted.filter()
}

fn refused(name: &FilterName, error: &FilterError) -> PlaneError {
    PlaneError { kind: FailureKind::Invalid, ..failed(name, error) }
}

fn failed(name: &FilterName, error: &dyn std::error::Error) -> PlaneError {
    PlaneError::failed(object(name), error, "correct that, then apply again")
}

fn object(name: &FilterName) -> String {
    format!("filter.{name}")
}

fn no_such_filter(port: &PortName, name: &FilterName) -> PlaneError {
    let cause = format!("its filter {name} does not run");
    PlaneError::not_found(port_object(port), cause, "see the names with `trivium show filters`")
}
