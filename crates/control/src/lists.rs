//! Registry of the lists of state.
//!
//! The API route of a list, the route's description in OpenAPI, and the command `trivium show NAME` with its option
//! `--json` are made from the list's entry in [`LISTS`]. A new list consists of:
//!
//! - a value in the crate `model`, which implements [`Listed`] (the columns of its table);
//! - a method of [`Lists`], which the data plane implements;
//! - an entry in [`LISTS`].
//!
//! ```text
//!  Lists (data plane) --read--> Resource --JSON--> api/lists.rs: GET /v1/NAME
//!                                  |                      |
//!                                  +--text, --json--> cli: trivium show NAME
//! ```

use std::io::Write;
use std::sync::Arc;

use model::table::{Listed, by_number};
use model::{
    BridgeState, CachesState, ConnectionQuery, ConnectionState, DropState, FdbEntry, FdbFilter, FilterState,
    FlowQuery, FlowRuleState, GroupState, MegaflowState, Merged, MeterState, NeighbourEntry, NextHopEntry,
    PortState, RouteEntry, RouteQuery, RouterState, StageState, SteeringState, WorkerState,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use crate::owners;
use crate::plane_error::PlaneError;

/// The operations of the data plane that return lists of state.
pub trait Lists: Send + Sync + 'static {
    /// Returns the states of all ports, sorted by name. The caller adds the owner of each port (such as the API).
    fn ports(&self) -> Vec<PortState>;

    /// Returns the states of all filters, sorted by name. The caller adds the owner of each filter (such as the API).
    fn filters(&self) -> Vec<FilterState>;

    /// Returns the states of all steering policies, sorted by name. The caller adds the owner of each policy (such as
    /// the API).
    fn steering(&self) -> Vec<SteeringState>;

    /// Returns the states of all bridges, sorted by name. The caller adds the owners (such as the API) of each bridge
    /// and its members.
    fn bridges(&self) -> Vec<BridgeState>;

    /// Returns the MAC table entries that match `filter`, at most `filter.limit`.
    fn fdb(&self, filter: &FdbFilter) -> Vec<FdbEntry>;

    /// Returns the states of all virtual routers, sorted by name. The caller adds the owners (such as the API) of each
    /// router and its interfaces.
    fn routers(&self) -> Vec<RouterState> {
        Vec::new()
    }

    /// Returns the routes of a router that match the query, sorted by table and prefix, at most
    /// `query.limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn routes(&self, router: &str, _query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the neighbours of a router, sorted by device and address, at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn neighbours(&self, router: &str, _limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the next-hop objects of a router, sorted by number, at most `limit`.
    ///
    /// # Errors
    ///
    /// Returns an error if the router does not exist.
    fn next_hops(&self, router: &str, _limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        Err(PlaneError::no_router(router))
    }

    /// Returns the OpenFlow flow entries that match the query, sorted by bridge, table and descending priority.
    ///
    /// # Errors
    ///
    /// Returns an error if the bridge of the query does not exist or does not use OpenFlow.
    fn flow_rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the OpenFlow groups that match the query, sorted by bridge and group number.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Lists::flow_rules`].
    fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the OpenFlow meters that match the query, sorted by bridge and meter number.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Lists::flow_rules`].
    fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the megaflows that match the query from the workers' flow caches, in no particular order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Lists::flow_rules`].
    fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        nothing_flows(query)
    }

    /// Returns the tracked connections that the query selects, in no particular order.
    fn connections(&self, _query: &ConnectionQuery) -> Vec<ConnectionState> {
        Vec::new()
    }

    /// Returns the state and the memory usage of the workers' flow caches.
    fn caches(&self) -> CachesState {
        CachesState::default()
    }

    /// Returns the states of all workers, sorted by worker number.
    fn workers(&self) -> Vec<WorkerState>;

    /// Returns the states of all stages of the data path, in the order in which packets pass them.
    fn stages(&self) -> Vec<StageState>;

    /// Returns the number of dropped packets for each port and drop reason. Pairs without drops are left out.
    fn drops(&self) -> Vec<DropState>;
}

/// Returns the response to an OpenFlow query if no bridge uses OpenFlow: an error if the query names a bridge,
/// otherwise an empty list.
fn nothing_flows<T>(query: &FlowQuery) -> Result<Vec<T>, PlaneError> {
    query.bridge.as_ref().map_or(Ok(Vec::new()), |bridge| Err(PlaneError::no_rules(bridge)))
}

/// Parameters of a request for a list of state. Only the parameters that the list's [`Arguments`] include are set.
#[derive(Clone, Default)]
pub(crate) struct Query {
    /// Function that returns the configuration with the owner of each object. The function is
    /// called after the data plane has returned a list, so that the configuration contains each
    /// object of the list.
    pub merged: Option<Arc<dyn Fn() -> Arc<Merged> + Send + Sync>>,
    /// Bridge and maximum number of entries, for [`Arguments::Bridge`].
    pub flows: FlowQuery,
    /// Name of the router, for [`Arguments::Router`].
    pub router: String,
    /// Maximum number of entries, for [`Arguments::Router`].
    pub limit: usize,
}

impl Query {
    fn merged(&self) -> Arc<Merged> {
        self.merged.as_ref().map_or_else(Arc::default, |merged| merged())
    }
}

/// Kinds of arguments that the command (`trivium show`) and the API route of a list accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arguments {
    /// The list has no arguments.
    None,
    /// The command may be given the name of one object, and then shows only this object. The first value is the kind of
    /// the objects, such as `port`. The second value is the placeholder for the name in the help text, such as `PORT`.
    /// The API route has no arguments.
    Name(&'static str, &'static str),
    /// The command and the API route accept the name of a bridge and a maximum number of entries.
    Bridge,
    /// The command and the API route accept the name of a router and a maximum number of entries.
    Router,
    /// The command has special arguments, which the command line program defines (`cmd/show/`). The API route has no
    /// arguments, or is not made from the registry.
    Own,
}

/// A list of state.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// Name of the list: the subcommand of `trivium show`, and the last part of the path of the API route.
    pub name: &'static str,
    /// Former name of the command, which is still accepted.
    pub alias: Option<&'static str>,
    /// Help text of the command.
    pub about: &'static str,
    /// Arguments of the command and of the API route.
    pub arguments: Arguments,
    /// Name of the operation in the description of the API.
    pub(crate) operation: &'static str,
    /// Resource of the API that returns the list. `None` means that the list's API route is not made from the registry.
    pub(crate) resource: Option<&'static dyn Resource>,
}

impl List {
    /// Returns an entry of the registry for a list whose command has special arguments and whose API route is not made
    /// from the registry.
    const fn own(name: &'static str, about: &'static str) -> List {
        List { name, alias: None, about, arguments: Arguments::Own, operation: name, resource: None }
    }

    /// Returns an entry of the registry for a list that API clients read as the resource `resource`.
    const fn new(
        name: &'static str,
        about: &'static str,
        arguments: Arguments,
        resource: &'static dyn Resource,
    ) -> List {
        List { arguments, resource: Some(resource), ..List::own(name, about) }
    }

    /// Formats the answer of the API to a request for the list. If `name` is given, only the object with this name is
    /// formatted. Objects with names are sorted by name.
    ///
    /// # Errors
    /// Returns an error if the answer is not valid JSON for entries of the list.
    pub fn format(&self, answer: &[u8], name: Option<&str>) -> serde_json::Result<Formatted> {
        match self.resource {
            Some(resource) => resource.format(answer, name),
            None => Ok(Formatted::default()),
        }
    }
}

/// A list from the API, formatted for output by a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Formatted {
    /// Number of entries in the formatted list.
    pub count: usize,
    /// The list as JSON with line breaks and indentation.
    pub json: String,
    /// The list as text for human readers.
    pub text: String,
}

/// Resource of the API that is a list, independent of the type of the list's entries.
pub(crate) trait Resource: Sync + std::fmt::Debug {
    /// Returns the summary of the list's API route, for the API description.
    fn summary(&self) -> &'static str;

    /// Returns the name of the schema of an entry, and adds the schema and all schemas that it refers to.
    fn schemas(&self, schemas: &mut Vec<(String, RefOr<Schema>)>) -> String;

    /// Reads the list from the data plane and writes it as JSON.
    fn write(
        &self,
        lists: &dyn Lists,
        query: &Query,
        to: &mut dyn Write,
    ) -> Result<serde_json::Result<()>, PlaneError>;

    /// Formats a list that the API has returned as JSON. If `name` is given, only the object with this name is
    /// formatted.
    fn format(&self, answer: &[u8], name: Option<&str>) -> serde_json::Result<Formatted>;
}

/// Resource whose entries have the type `T`.
struct Entries<T> {
    /// Summary of the list's API route, for the API description.
    summary: &'static str,
    /// Function that reads the entries from the data plane.
    read: fn(&dyn Lists, &Query) -> Result<Vec<T>, PlaneError>,
    /// Returns the name of an entry, for [`Arguments::Name`].
    name: Option<fn(&T) -> &str>,
}

impl<T> std::fmt::Debug for Entries<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries").field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl<T: Listed + Serialize + DeserializeOwned + ToSchema> Resource for Entries<T> {
    fn summary(&self) -> &'static str {
        self.summary
    }

    fn schemas(&self, schemas: &mut Vec<(String, RefOr<Schema>)>) -> String {
        let name = T::name().into_owned();
        schemas.push((name.clone(), T::schema()));
        T::schemas(schemas);
        name
    }

    fn write(
        &self,
        lists: &dyn Lists,
        query: &Query,
        to: &mut dyn Write,
    ) -> Result<serde_json::Result<()>, PlaneError> {
        Ok(serde_json::to_writer(to, &(self.read)(lists, query)?))
    }

    fn format(&self, answer: &[u8], name: Option<&str>) -> serde_json::Result<Formatted> {
        let mut all: Vec<T> = serde_json::from_slice(answer)?;
        if let Some(name_of) = self.name {
            all.sort_by(|one, other| by_number(name_of(one), name_of(other)));
            all.retain(|one| name.is_none_or(|name| name == name_of(one)));
        }
        Ok(Formatted { count: all.len(), json: serde_json::to_string_pretty(&all)?, text: T::text(&all) })
    }
}

/// Maximum number of connections in a list.
const CONNECTIONS: usize = 100_000;

/// All lists, in the order of the help text of `trivium show`.
pub const LISTS: &[List] = &[
    List::new(
        "ports",
        "Ports: kind, device, mode, state and traffic",
        Arguments::Name("port", "PORT"),
        &Entries {
            summary: "Returns the states of all ports.",
            read: |lists, query| Ok(owners::ports(lists.ports(), &query.merged())),
            name: Some(|port| &port.name),
        },
    ),
    List::new(
        "bridges",
        "Bridges and their members",
        Arguments::Name("bridge", "BRIDGE"),
        &Entries {
            summary: "Returns the states of all bridges.",
            read: |lists, query| Ok(owners::bridges(lists.bridges(), &query.merged())),
            name: Some(|bridge| &bridge.name),
        },
    ),
    List::own("fdb", "MAC tables of bridges"),
    List::new(
        "workers",
        "Workers: cores, load, sleep",
        Arguments::None,
        &Entries {
            summary: "Returns the states of all workers.",
            read: |lists, _| Ok(lists.workers()),
            name: None,
        },
    ),
    List::new(
        "filters",
        "Filters: packets of each rule",
        Arguments::Name("filter", "FILTER"),
        &Entries {
            summary: "Returns all filters with the counters of each rule.",
            read: |lists, query| Ok(owners::filters(lists.filters(), &query.merged())),
            name: Some(|filter| &filter.name),
        },
    ),
    List {
        alias: Some("steers"),
        operation: "policies",
        ..List::new(
            "steering",
            "Steering policies: packets by target",
            Arguments::Name("steering", "STEERING"),
            &Entries {
                summary: "Returns all steering policies with the number of packets for each target.",
                read: |lists, query| Ok(owners::steering(lists.steering(), &query.merged())),
                name: Some(|steering| &steering.name),
            },
        )
    },
    List::own("flows", "OpenFlow rules of bridges, with their counters"),
    List::new(
        "groups",
        "OpenFlow groups, with the counters of each bucket",
        Arguments::Bridge,
        &Entries {
            summary: "Returns OpenFlow groups, sorted by bridge and group number.",
            read: |lists, query| lists.groups(&query.flows),
            name: None,
        },
    ),
    List::new(
        "meters",
        "OpenFlow meters, with the packets above the rate of each band",
        Arguments::Bridge,
        &Entries {
            summary: "Returns OpenFlow meters, sorted by bridge and meter number.",
            read: |lists, query| lists.meters(&query.flows),
            name: None,
        },
    ),
    List::new(
        "megaflows",
        "Megaflows that workers have cached, with the rules of each",
        Arguments::Bridge,
        &Entries {
            summary: "Returns the megaflows in the caches of the workers.",
            read: |lists, query| lists.megaflows(&query.flows),
            name: None,
        },
    ),
    List::new(
        "connections",
        "Connections that the action `ct` of OpenFlow rules has committed, at most 100,000",
        Arguments::None,
        &Entries {
            summary: "Returns tracked connections, at most 100,000.",
            read: |lists, _| Ok(lists.connections(&ConnectionQuery { zone: None, limit: CONNECTIONS })),
            name: None,
        },
    ),
    List::own("caches", "Caches of the workers: hits by tier, work of the slow path, and memory by use"),
    List::new(
        "drops",
        "Drops: packets by port and reason",
        Arguments::Own,
        &Entries {
            summary: "Returns the number of dropped packets for each port and drop reason.",
            read: |lists, _| Ok(lists.drops()),
            name: None,
        },
    ),
    List::new(
        "stages",
        "Stages: time and packets of each",
        Arguments::None,
        &Entries {
            summary: "Returns the processing cost of each stage of the data path.",
            read: |lists, _| Ok(lists.stages()),
            name: None,
        },
    ),
    List::own("config", "Running configuration, with the owner of each object"),
    List::new(
        "routers",
        "Virtual routers: size of their tables, and how far they follow the kernel",
        Arguments::Name("router", "ROUTER"),
        &Entries {
            summary: "Returns the states of all virtual routers.",
            read: |lists, query| Ok(owners::routers(lists.routers(), &query.merged())),
            name: Some(|router| &router.name),
        },
    ),
    List::own("routes", "Routes of a router"),
    List::own("why", "Path of packets to an address or a prefix through a router, with the reason"),
    List::new(
        "neighbours",
        "Neighbours of a router",
        Arguments::Router,
        &Entries {
            summary: "Returns the neighbours of a router.",
            read: |lists, query| lists.neighbours(&query.router, query.limit),
            name: None,
        },
    ),
    List {
        operation: "next_hops",
        ..List::new(
            "nexthops",
            "Next-hop objects of a router",
            Arguments::Router,
            &Entries {
                summary: "Returns the next-hop objects of a router.",
                read: |lists, query| lists.next_hops(&query.router, query.limit),
                name: None,
            },
        )
    },
    List::own("interfaces", "Interfaces of routers"),
    List::own("drift", "Differences between a router and the kernel's state. The daemon repairs them"),
    List::own("punts", "Packets that workers have punted to the kernel for routers, by class"),
];
