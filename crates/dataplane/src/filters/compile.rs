//! Compiles the rules of filters into tables, and writes the tables for hooks to the kernel. The tables of thousands of
//! rules take seconds to build, so this is done before the data plane is locked. The total size of the tables of all
//! filters is limited ([`COMPILED_MAX`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control::{FailureKind, PlaneError};
use model::{Config, FilterName};
use xdp::filter::{Compiled, FilterError, RuleSet};

use super::rule_tables::compile;
use super::{BlocklistFiles, Definition, Filters, named_by_ports, object, refused, translate};

/// Maximum size in bytes of the tables of all compiled filters. The kernel holds a second copy of the
/// tables.
const COMPILED_MAX: usize = 1 << 30;

/// Filters that were compiled before the data plane was locked.
#[derive(Default)]
pub struct Tables(BTreeMap<FilterName, CompiledFilter>);

/// A filter of the configuration, its rules that have not expired, and their tables.
struct CompiledFilter {
    wanted: model::Filter,
    rules: RuleSet,
    compiled: Arc<Compiled>,
}

impl Tables {
    /// Compiles the filters that a change of the configuration from `before` to `new` needs. Stops at the limit of all
    /// compiled filters, because [`Filters::prepare`] then refuses the change.
    ///
    /// # Errors
    /// Returns an error if the rules of a filter conflict.
    pub fn compile(new: &Config, before: &Config) -> Result<Tables, PlaneError> {
        let (named, named_before) = (named_by_ports(new), named_by_ports(before));
        let hooked = in_hooks(new);
        let (mut tables, mut bytes) = (BTreeMap::new(), 0);
        for (name, wanted) in new.filters.iter().filter(|(name, _)| named.contains(name)) {
            if bytes > COMPILED_MAX {
                break;
            }
            if named_before.contains(name) && before.filters.get(name) == Some(wanted) {
                continue;
            }
            let rules = translate::current_rules(wanted);
            let compiled = compile(name, &rules, hooked.contains(name));
            let compiled = compiled.map_err(|error| refused(name, &error))?;
            bytes += compiled.table_bytes();
            let filter = CompiledFilter { wanted: wanted.clone(), rules, compiled };
            tables.insert(name.clone(), filter);
        }
        Ok(Tables(tables))
    }

    /// Adds the rules and tables that were compiled from the filter `name` to a definition that has no
    /// tables.
    fn fill(&self, name: &FilterName, definition: &mut Definition) {
        if let Some(filter) = self.0.get(name)
            && definition.compiled.is_none()
            && filter.wanted == definition.wanted
        {
            definition.rules = filter.rules.clone();
            definition.compiled = Some(Arc::clone(&filter.compiled));
        }
    }
}

/// Returns the filters that hooks apply. The other filters belong to ports without a hook, and are applied by workers.
fn in_hooks(config: &Config) -> BTreeSet<&FilterName> {
    let hooked = config.ports.values().filter(|port| port.kind.xdp().is_some());
    hooked.filter_map(|port| port.filter.as_ref()).collect()
}

/// Returns the problems that prevent hooks from applying the filters of an otherwise valid configuration:
/// rules that cannot be compiled, and tables that together exceed the limit.
#[must_use]
pub fn refusals(config: &Config) -> Vec<model::Problem> {
    refusals_within(config, COMPILED_MAX)
}

fn refusals_within(config: &Config, most: usize) -> Vec<model::Problem> {
    let named = named_by_ports(config);
    let (mut problems, mut bytes) = (Vec::new(), 0);
    for (name, wanted) in &config.filters {
        let rules = translate::current_rules(wanted);
        let compiled = if named.contains(name) {
            Compiled::new(&rules).map(|compiled| compiled.table_bytes())
        } else {
            Compiled::check(&rules).map(|()| 0)
        };
        let (cause, fix) = match compiled {
            Err(error) => {
                let text = error.to_string();
                let (cause, fix) = text.split_once("; ").unwrap_or((&text, "leave the rule out"));
                (cause.to_owned(), fix.to_owned())
            }
            Ok(own) => {
                // Only the filter that exceeds the limit is refused, as by `prepare`.
                let was_within = bytes <= most;
                bytes += own;
                if bytes <= most || !was_within {
                    continue;
                }
                let PlaneError { cause, fix, .. } = too_large(name, own, bytes - own, most);
                (cause, fix)
            }
        };
        problems.push(model::Problem::new(object(name), model::Cause::NotInHook { cause, fix }));
    }
    problems
}

impl Filters {
    /// Returns the tables of unchanged filters that hooks apply in the new configuration, and that only workers have
    /// applied so far. The caller writes these tables to the kernel before it locks the data plane for the change.
    pub fn newly_hooked(&self, new: &Config) -> Vec<(FilterName, Arc<Compiled>)> {
        let tables = |name: &FilterName| {
            let running = self.running.get(name).filter(|running| running.kernel.is_none())?;
            let Definition { wanted, compiled, .. } = &running.definition;
            let compiled = compiled.as_ref().filter(|_| new.filters.get(name) == Some(wanted))?;
            Some((name.clone(), Arc::clone(compiled)))
        };
        in_hooks(new).into_iter().filter_map(tables).collect()
    }

    /// Checks filters that are new or changed. `files` contains the prefixes of their block lists. Filters to which
    /// ports refer are compiled if they have changed, or if no port has referred to them before. A result in `tables`
    /// is used instead of compiling again. The running filters do not change.
    ///
    /// # Errors
    /// Returns an error if rules conflict, a block list cannot be read, or the compiled filters together exceed
    /// [`COMPILED_MAX`].
    pub fn prepare(
        &self,
        new: &Config,
        files: &BlocklistFiles,
        tables: &Tables,
    ) -> Result<Vec<(FilterName, Definition)>, PlaneError> {
        self.prepare_within(new, files, tables, COMPILED_MAX)
    }

    fn prepare_within(
        &self,
        new: &Config,
        files: &BlocklistFiles,
        tables: &Tables,
        most: usize,
    ) -> Result<Vec<(FilterName, Definition)>, PlaneError> {
        let named = named_by_ports(new);
        let unchanged = |name: &FilterName, wanted: &model::Filter| {
            self.running.get(name).map(|running| &running.definition).filter(|now| now.wanted == *wanted)
        };
        let kept = new.filters.iter().filter(|(name, _)| named.contains(name));
        let kept = kept.filter_map(|(name, wanted)| unchanged(name, wanted)?.compiled.as_ref());
        let mut bytes: usize = kept.map(|compiled| compiled.table_bytes()).sum();
        let mut prepared = Vec::new();
        for (name, wanted) in &new.filters {
            let is_named = named.contains(name);
            let mut definition = match unchanged(name, wanted) {
                Some(now) if now.compiled.is_some() || !is_named => continue,
                Some(now) => now.clone(),
                None => Definition::of(name, wanted, files)?,
            };
            if is_named {
                tables.fill(name, &mut definition);
                let own = definition.compile().map_err(|error| refused(name, &error))?.table_bytes();
                bytes += own;
                if bytes > most {
                    return Err(too_large(name, own, bytes - own, most));
                }
            }
            prepared.push((name.clone(), definition));
        }
        Ok(prepared)
    }
}

impl Definition {
    /// Returns the tables of the rules. If no port has referred to the filter before, compiles the rules first.
    pub(super) fn compile(&mut self) -> Result<Arc<Compiled>, FilterError> {
        if let Some(compiled) = &self.compiled {
            return Ok(Arc::clone(compiled));
        }
        let compiled = Arc::new(Compiled::new(&self.rules)?);
        Ok(Arc::clone(self.compiled.insert(compiled)))
    }
}

/// Returns the error for a filter whose tables of `own` bytes would exceed the limit of `most` bytes for all compiled
/// filters. The tables of the other compiled filters have `others` bytes.
fn too_large(name: &FilterName, own: usize, others: usize, most: usize) -> PlaneError {
    let mebibytes = |bytes: usize| bytes.div_ceil(1 << 20);
    PlaneError {
        kind: FailureKind::Invalid,
        object: object(name),
        cause: format!(
            "its tables take {} MiB and those of other filters that ports name take {} MiB, and {} MiB are the most",
            mebibytes(own),
            mebibytes(others),
            mebibytes(most)
        ),
        fix: "join prefixes and ports of alike rules, use the block list, or name fewer filters in ports"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use model::Port;

    use super::super::{Ports, Remaining, RemainingRules, write_tables};
    use super::*;

    /// Returns a configuration with two filters. There are ports that refer to the filters in `named`.
    fn config(named: &[&str], rule: &str) -> Config {
        let mut text = String::new();
        for name in ["first", "second"] {
            text += &format!("[[filter.{name}.rule]]\nname='a'\naction='drop'\n{rule}\n");
        }
        for name in named {
            text += &format!("[port.{name}]\nkind='tap'\nfilter='{name}'\n");
        }
        model::load(&text, "t").unwrap()
    }

    /// Adds the prepared filters to the running filters.
    fn defined(filters: &mut Filters, prepared: Vec<(FilterName, Definition)>) {
        for (name, definition) in prepared {
            filters.define(&name, definition, None, &mut Ports::default()).unwrap();
        }
    }

    fn names(prepared: &[(FilterName, Definition)]) -> Vec<(&str, bool)> {
        prepared.iter().map(|(name, definition)| (name.as_str(), definition.compiled.is_some())).collect()
    }

    #[test]
    fn only_filters_that_ports_name_are_compiled() {
        let mut filters = Filters::default();
        let files = BlocklistFiles::default();
        let first = config(&["first"], "protocol='udp'");
        let prepared = filters.prepare(&first, &files, &Tables::default()).unwrap();
        assert_eq!(names(&prepared), [("first", true), ("second", false)]);
        defined(&mut filters, prepared);
        assert!(
            filters.prepare(&first, &files, &Tables::default()).unwrap().is_empty(),
            "nothing has changed"
        );
        // The other filter is compiled when a port names it.
        let both = config(&["first", "second"], "protocol='udp'");
        let prepared = filters.prepare(&both, &files, &Tables::default()).unwrap();
        assert_eq!(names(&prepared), [("second", true)]);
        defined(&mut filters, prepared);
        // Tables that no port uses any more are freed.
        filters.retain(&first);
        assert_eq!(names(&filters.prepare(&both, &files, &Tables::default()).unwrap()), [("second", true)]);
    }

    /// The lookup tables of a filter are not built while the data plane is locked, because building them takes long.
    #[test]
    fn tables_that_were_compiled_before_the_lock_are_used() {
        let (mut filters, files) = (Filters::default(), BlocklistFiles::default());
        let rule = "protocol='udp'\nexpires='2999-01-01T00:00:00Z'";
        let (none, first, both) =
            (config(&[], rule), config(&["first"], rule), config(&["first", "second"], rule));
        let compiled = |prepared: &[(FilterName, Definition)], tables: &Tables| {
            let is_own = |(name, definition): &(FilterName, Definition)| {
                let own = tables.0.get(name).map(|filter| &filter.compiled);
                definition.compiled.as_ref().zip(own).is_some_and(|(used, own)| Arc::ptr_eq(used, own))
            };
            prepared.iter().map(is_own).collect::<Vec<_>>()
        };
        let tables = Tables::compile(&first, &Config::default()).unwrap();
        let prepared = filters.prepare(&first, &files, &tables).unwrap();
        assert_eq!(compiled(&prepared, &tables), [true, false], "no port names the second");
        defined(&mut filters, prepared);
        // A filter that did not change, and to which a port now refers.
        let tables = Tables::compile(&both, &first).unwrap();
        let prepared = filters.prepare(&both, &files, &tables).unwrap();
        assert_eq!((compiled(&prepared, &tables), tables.0.len()), (vec![true], 1));
        // Tables of other rules are not used.
        let other = config(&["first"], "protocol='tcp'");
        let tables = Tables::compile(&other, &none).unwrap();
        let prepared = Filters::default().prepare(&first, &files, &tables).unwrap();
        assert_eq!(compiled(&prepared, &tables), [false, false]);
    }

    /// Large tables take long to write to the kernel, so this is done before the data plane is locked. Filters that
    /// only workers apply have no tables in the kernel.
    #[test]
    fn tables_for_hooks_are_in_the_kernel_before_the_lock() {
        if !testbed::privileged() {
            return testbed::skip("needs root (BPF)");
        }
        let text = "[port.a]\nkind='af_xdp'\nfilter='hooked'\n[port.b]\nkind='tap'\nfilter='worked'\n\
                    [[filter.hooked.rule]]\nname='a'\naction='drop'\n\
                    [[filter.worked.rule]]\nname='a'\naction='drop'\n";
        let config = model::load(text, "t").unwrap();
        let tables = Tables::compile(&config, &Config::default()).unwrap();
        let has_maps = |(name, definition): &(FilterName, Definition)| {
            (name.to_string(), definition.compiled.as_ref().is_some_and(|compiled| compiled.has_maps()))
        };
        let prepared = Filters::default().prepare(&config, &BlocklistFiles::default(), &tables).unwrap();
        let found: Vec<_> = prepared.iter().map(has_maps).collect();
        assert_eq!(found, [("hooked".to_owned(), true), ("worked".to_owned(), false)]);
        // A filter that only workers have applied before, and that a port with a hook now uses.
        let mut filters = Filters::default();
        defined(&mut filters, prepared);
        let port = config.ports.values().find(|port| port.kind.xdp().is_some()).cloned().unwrap();
        let mut both = config.clone();
        let second = Port { filter: Some("worked".parse().unwrap()), ..port };
        both.ports.insert("c".parse().unwrap(), second);
        for (name, compiled) in filters.newly_hooked(&both) {
            write_tables(&name, &compiled);
        }
        let of_running = filters.running["worked"].definition.compiled.as_ref();
        assert!(of_running.is_some_and(|compiled| compiled.has_maps()));
        // The rules that remain when others have expired.
        let remaining = |in_hooks| {
            let rules = translate::current_rules(&config.filters["hooked"]);
            let rules = RemainingRules { rules, needs_tables: true, in_hooks, compiled: None };
            let filters = [("hooked".parse().unwrap(), rules)].into();
            let compiled = Remaining { filters, ..Remaining::none() }.compiled();
            compiled.filters["hooked"].compiled.as_ref().is_some_and(|compiled| compiled.has_maps())
        };
        assert_eq!([true, false].map(remaining), [true, false]);
    }

    /// `trivium check` refuses filters whose tables together exceed the limit, if ports refer to the filters. The
    /// messages are the same as those for a change of the configuration.
    #[test]
    fn a_check_adds_up_the_filters_that_ports_name() {
        let rule = "source_port='1-1000'";
        let (one, both) = (config(&["first"], rule), config(&["first", "second"], rule));
        let (filters, files) = (Filters::default(), BlocklistFiles::default());
        let prepared = filters.prepare(&one, &files, &Tables::default()).unwrap();
        let bytes = prepared[0].1.compiled.as_ref().unwrap().table_bytes();
        assert!(refusals_within(&both, 2 * bytes).is_empty() && refusals_within(&one, bytes).is_empty());
        let problems = refusals_within(&both, 2 * bytes - 1);
        let refused = filters.prepare_within(&both, &files, &Tables::default(), 2 * bytes - 1);
        let error = refused.map(|_| ()).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].to_string(), error.to_string());
    }

    /// When rules expire, the remaining rules are compiled while the data plane is not locked. If a configuration
    /// change has replaced the rules of the filter in the meantime, the compiled rules are discarded and the changed
    /// rules are kept.
    #[test]
    fn expired_rules_are_removed_unless_the_filter_has_changed_meanwhile() {
        let text = "[port.p]\nkind='tap'\nfilter='f'\n[[filter.f.rule]]\nname='stays'\naction='drop'\n\
                    [[filter.f.rule]]\nname='ends'\naction='drop'\nprotocol='udp'\nexpires='2999-01-01T00:00:00Z'\n";
        let config = model::load(text, "t").unwrap();
        let mut filters = Filters::default();
        let prepared = filters.prepare(&config, &BlocklistFiles::default(), &Tables::default()).unwrap();
        defined(&mut filters, prepared);
        assert!(filters.remaining().is_empty(), "no rule has expired");
        let definition =
            |filters: &mut Filters| filters.running.values_mut().next().unwrap().definition.clone();
        let whole = definition(&mut filters);
        let expire = |filters: &mut Filters| {
            for rule in &mut filters.running.values_mut().next().unwrap().definition.rules.rules {
                rule.expires = rule.expires.map(|_| xdp::filter::Moment(1));
            }
        };
        expire(&mut filters);
        let remaining = filters.remaining().compiled();
        let tables = remaining.filters.values().next().unwrap().compiled.clone().unwrap();
        // Another change was applied first.
        filters.running.values_mut().next().unwrap().definition = whole.clone();
        filters.expire(&mut Ports::default(), remaining);
        assert_eq!(definition(&mut filters).rules.rules.len(), 2);
        expire(&mut filters);
        let remaining = filters.remaining().compiled();
        drop(filters.former());
        filters.expire(&mut Ports::default(), remaining);
        assert_eq!(filters.former().len(), 1, "the former tables are given away");
        let now = definition(&mut filters);
        assert_eq!(now.rules.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["stays"]);
        assert_eq!(now.compiled.unwrap().table_bytes(), tables.table_bytes());
        assert!(filters.remaining().is_empty());
    }

    /// Some mistakes in a filter are found only when its rules are compiled. A configuration with such a mistake is
    /// refused even if no port refers to the filter.
    #[test]
    fn mistakes_in_a_filter_that_no_port_names_are_refused() {
        let places: Vec<String> =
            (0..9).map(|at| format!("{{ at = 'frame', offset = {}, bytes = '01' }}", 100 * at)).collect();
        let config = config(&[], &format!("pattern = [{}]", places.join(",")));
        let prepared = Filters::default().prepare(&config, &BlocklistFiles::default(), &Tables::default());
        let error = prepared.map(|_| ()).unwrap_err();
        assert_eq!((error.kind, error.object.as_str()), (FailureKind::Invalid, "filter.first"));
        assert!(error.cause.contains("9th place"), "{error}");
    }

    #[test]
    fn filters_that_together_exceed_the_limit_are_refused() {
        let (mut filters, files) = (Filters::default(), BlocklistFiles::default());
        let rule = "source_port='1-1000'";
        let prepared = filters.prepare(&config(&["first"], rule), &files, &Tables::default()).unwrap();
        let one = prepared[0].1.compiled.as_ref().unwrap().table_bytes();
        // Two filters that one configuration change adds.
        let both = config(&["first", "second"], rule);
        assert!(filters.prepare_within(&both, &files, &Tables::default(), 2 * one).is_ok());
        let error =
            filters.prepare_within(&both, &files, &Tables::default(), 2 * one - 1).map(|_| ()).unwrap_err();
        assert_eq!((error.kind, error.object.as_str()), (FailureKind::Invalid, "filter.second"));
        assert!(error.cause.contains("are the most") && error.fix.contains("block list"), "{error}");
        // A running filter counts towards the limit. A filter to which no port refers does not count.
        defined(&mut filters, prepared);
        assert!(filters.prepare_within(&both, &files, &Tables::default(), 2 * one - 1).is_err());
        assert!(filters.prepare_within(&both, &files, &Tables::default(), 2 * one).is_ok());
        let changed = config(&["first"], "source_port='1-999'");
        assert!(
            filters.prepare_within(&changed, &files, &Tables::default(), one).is_ok(),
            "the former tables do not count"
        );
    }
}
