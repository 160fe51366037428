//! Loads a text as a checked configuration, or reports all its problems.
//!
//! A text is read in three steps. Reading continues after a problem, and all problems are reported together.
//! The steps check:
//!
//! - the syntax (`tree`);
//! - the schema with types and bounds (`daemon`, and the module `load` of each kind of object, based on `fields`);
//! - the relations between objects ([`crate::check`]).
//!
//! The syntax is described in docs/config.md.

mod daemon;
pub(crate) mod fields;
mod nesting;
pub(crate) mod tree;
pub(crate) mod users;
pub(crate) mod vlans;

use std::collections::{BTreeMap, BTreeSet};

use fields::{Fields, Findings, PROBLEM_LIMIT};
use serde::{Deserialize, Deserializer, de::Error};
use tree::{Place, Table};

use crate::check::check;
use crate::{
    Cause, Change, Config, Machine, ObjectKey, Problem, Severity, bridge, filter, port, router, steering,
};

/// Maximum length of a configuration text, in bytes.
pub const LIMIT_BYTES: usize = 1 << 20;
/// Maximum length, in bytes, of the configuration text that the predecessor process passes on in a hand-over. The text
/// contains all default values, so it is longer than the file from which it was read.
pub const HANDED_OVER_LIMIT_BYTES: usize = 64 * LIMIT_BYTES;

/// Syntax of a configuration text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// TOML, the syntax of configuration files.
    Toml,
    /// JSON with the structure of the configuration file, as in the API.
    Json,
}

/// A configuration without errors, and its warnings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// The loaded configuration.
    pub config: Config,
    /// Problems that do not invalidate the configuration, but are probably unintended.
    pub warnings: Vec<Problem>,
}

/// Loads a configuration from the TOML text of a configuration file. `file` is the file name for messages about
/// problems.
///
/// # Errors
///
/// Returns every problem of the text in the order of the lines, including warnings. At least one problem is
/// an error.
pub fn load(text: &str, file: &str) -> Result<Config, Vec<Problem>> {
    load_on(text, file, Format::Toml, None).map(|loaded| loaded.config)
}

/// Loads the TOML text that [`Config::to_toml`] returned in the predecessor process. The text may be longer than a
/// configuration file.
///
/// # Errors
///
/// Returns the problems that [`load`] returns.
pub fn load_handed_over(text: &str, file: &str) -> Result<Config, Vec<Problem>> {
    load_up_to(HANDED_OVER_LIMIT_BYTES, text, file, Format::Toml, None).map(|loaded| loaded.config)
}

/// Loads a configuration from a TOML or JSON text, and checks it against a machine if `machine` is given.
///
/// # Errors
///
/// Returns the problems that [`load`] returns.
pub fn load_on(
    text: &str,
    file: &str,
    format: Format,
    machine: Option<&Machine>,
) -> Result<Loaded, Vec<Problem>> {
    load_up_to(LIMIT_BYTES, text, file, format, machine)
}

/// Loads a configuration like [`load_on`] from a text of at most `limit` bytes.
fn load_up_to(
    limit: usize,
    text: &str,
    file: &str,
    format: Format,
    machine: Option<&Machine>,
) -> Result<Loaded, Vec<Problem>> {
    if text.len() > limit {
        let cause = Cause::TooLarge { bytes: text.len(), limit };
        return Err(vec![Problem { file: file.to_owned(), ..Problem::new("", cause) }]);
    }
    let (table, syntax) = match format {
        Format::Toml => tree::from_toml(text),
        Format::Json => tree::from_json(text),
    };
    let lines = Lines::new(text);
    let broken: BTreeSet<_> = syntax.iter().filter_map(|(place, _)| Some(lines.number((*place)?))).collect();
    let (config, mut findings, declared) = read(&table);
    // References are checked only in a text that resembles a configuration.
    if findings.problems.len() < PROBLEM_LIMIT {
        for problem in check(&config, machine, &declared) {
            findings.problems.push((nearest_place(&findings.places, &problem.object), problem));
        }
    }
    // Values on a line with a syntax error were not read as intended, so their problems are not reported.
    findings.problems.retain(|(place, _)| place.is_none_or(|place| !broken.contains(&lines.number(place))));
    findings.problems.extend(syntax);
    let problems = placed(findings.problems, file, &lines);
    match problems.iter().any(|problem| problem.severity == Severity::Error) {
        true => Err(problems),
        false => Ok(Loaded { config, warnings: problems }),
    }
}

/// Deserializes a configuration that has the structure of the configuration file, in any format (for example, JSON),
/// and performs all checks. The error lists every problem.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let tree = serde_json::Value::deserialize(from)?;
        let loaded = load_on(&tree.to_string(), "configuration", Format::Json, None);
        loaded.map(|loaded| loaded.config).map_err(|problems| {
            let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
            D::Error::custom(lines.join("\n"))
        })
    }
}

/// Reads one object from an API request. The JSON text has the fields of the object's table in the
/// configuration file.
///
/// # Errors
///
/// If at least one problem is an error, returns every problem of the object itself. References to other objects are
/// checked later, when the object is merged with the other objects.
pub fn load_change(object: &ObjectKey, json: &str) -> Result<Change, Vec<Problem>> {
    let (table, syntax) = tree::from_json(json);
    let mut findings = Findings { problems: syntax, ..Findings::default() };
    let fields = Fields::new(object.to_string(), None, &table);
    let change = match object {
        _ if !findings.problems.is_empty() => None,
        ObjectKey::Filter(name) => {
            Some(Change::PutFilter(name.clone(), filter::load::read_filter(fields, &mut findings)))
        }
        ObjectKey::Steering(name) => {
            Some(Change::PutSteering(name.clone(), steering::load::read_steering(fields, &mut findings)))
        }
        ObjectKey::Port(name) => {
            port::load::read_port(name, fields, &mut findings).map(|port| Change::PutPort(name.clone(), port))
        }
        ObjectKey::Bridge(name) => {
            Some(Change::PutBridge(name.clone(), bridge::load::read_settings_alone(fields, &mut findings)))
        }
        ObjectKey::Member(name, port) => Some(Change::PutMember(
            name.clone(),
            port.clone(),
            bridge::load::read_member(fields, &mut findings),
        )),
        ObjectKey::Static(name, key) => bridge::load::read_static_alone(fields, &mut findings)
            .map(|port| Change::PutStatic(name.clone(), *key, port)),
        ObjectKey::Router(name) => router::load::read_settings_alone(fields, &mut findings)
            .map(|settings| Change::PutRouter(name.clone(), settings)),
        ObjectKey::RouterPort(name, port) => {
            let put = router::load::read_port(fields, &mut findings);
            Some(Change::PutRouterPort(name.clone(), port.clone(), put))
        }
    };
    let mut problems: Vec<_> = findings.problems.into_iter().map(|(_, problem)| problem).collect();
    for problem in problems.iter_mut().filter(|problem| problem.object.is_empty()) {
        problem.object = object.to_string();
    }
    match change {
        Some(change) if problems.iter().all(|problem| problem.severity == Severity::Warning) => Ok(change),
        _ => Err(problems),
    }
}

/// Reads the sections of a whole configuration. Also returns the names of all ports in the text, including ports that
/// could not be read.
fn read(table: &Table) -> (Config, Findings, BTreeSet<String>) {
    let mut findings = Findings::default();
    let mut fields = Fields::new(String::new(), Some(0), table);
    let mut config = Config::default();
    let mut declared = BTreeSet::new();
    if let Some(entry) = fields.get("daemon", &mut findings) {
        config.daemon = daemon::read_daemon(&entry.node, &mut findings);
    }
    if let Some(entry) = fields.get("engine", &mut findings) {
        config.engine = daemon::read_engine(&entry.node, &mut findings);
    }
    if let Some(entry) = fields.get("memory", &mut findings) {
        config.memory = daemon::read_memory(&entry.node, &mut findings);
    }
    if let Some(entry) = fields.get("ovsdb", &mut findings) {
        config.ovsdb = daemon::read_ovsdb(&entry.node, &mut findings);
    }
    if let Some(entry) = fields.get("filter", &mut findings) {
        config.filters = fields::named("filter", &entry.node, &mut findings, filter::load::read_filter);
    }
    fields.renamed("steer", "steering", &mut findings);
    if let Some(entry) = fields.get("steering", &mut findings) {
        config.steering =
            fields::named("steering", &entry.node, &mut findings, steering::load::read_steering);
    }
    if let Some(entry) = fields.get("port", &mut findings) {
        config.ports = port::load::read_ports(&entry.node, &mut findings, &mut declared);
    }
    if let Some(entry) = fields.get("bridge", &mut findings) {
        config.bridges = fields::named("bridge", &entry.node, &mut findings, bridge::load::read_bridge);
    }
    if let Some(entry) = fields.get("router", &mut findings) {
        let read: BTreeMap<_, _> =
            fields::named("router", &entry.node, &mut findings, router::load::read_router);
        config.routers = read.into_iter().filter_map(|(name, router)| Some((name, router?))).collect();
    }
    fields.finish(&mut findings);
    (config, findings, declared)
}

/// Returns the position of an object in the text. If the position is not known, returns the position of the nearest
/// enclosing table.
fn nearest_place(places: &BTreeMap<String, usize>, object: &str) -> Place {
    let mut object = object;
    loop {
        if let Some(place) = places.get(object) {
            return Some(*place);
        }
        object = &object[..object.rfind(['.', '['])?];
    }
}

/// Returns the problems with line and column numbers, in the order of their positions.
fn placed(mut problems: Vec<(Place, Problem)>, file: &str, lines: &Lines<'_>) -> Vec<Problem> {
    problems.sort_by_key(|(place, _)| place.unwrap_or(usize::MAX));
    if problems.len() > PROBLEM_LIMIT {
        let cause = Cause::MoreProblems { more: problems.len() - PROBLEM_LIMIT };
        problems.truncate(PROBLEM_LIMIT);
        problems.push((None, Problem::new("configuration", cause)));
    }
    let problems = problems.into_iter().map(|(place, problem)| {
        let (line, column) = place.map_or((0, 0), |place| lines.position(place));
        Problem { file: file.to_owned(), line, column, ..problem }
    });
    problems.collect()
}

/// A text, and the byte offsets at which its lines begin.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(place, _)| place + 1));
        Lines { text, starts: starts.collect() }
    }

    /// Returns the line number of an offset, starting at 1.
    fn number(&self, place: usize) -> usize {
        self.starts.partition_point(|&start| start <= place)
    }

    /// Returns the line and column numbers of an offset, starting at 1. Columns are counted in characters.
    fn position(&self, place: usize) -> (u32, u32) {
        let line = self.number(place);
        let start = self.starts[line - 1];
        let before = self.text.get(start..place.min(self.text.len())).unwrap_or_default();
        // For very long lines, bytes are counted instead, because counting characters repeatedly takes too
        // long.
        let characters = if before.len() > 4096 { before.len() } else { before.chars().count() };
        let column = characters + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }
}
