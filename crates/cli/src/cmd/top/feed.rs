//! Reader of the daemon for `trivium top`: the stream of counters, and the states that a page needs besides.
//!
//! The reader requests a state at most once a second, and only while the shown page needs the state. When the
//! daemon ends the stream, the reader connects again until it succeeds.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{
    BridgeState, CachesState, Counters, DropState, FilterState, FlowRuleState, PortState, RouterState,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::client::Client;
use crate::failure::Failure;
use crate::live::CounterEvents;

/// Minimum interval between two requests for one state. The interval is somewhat shorter than that of the
/// counters, so that each set of counters leads to a request also if the set arrives early.
const INTERVAL: Duration = Duration::from_millis(900);
/// Time between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum number of OpenFlow rules that the reader requests.
pub const RULES: usize = 1000;

/// A state that a page needs besides the counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resource {
    /// States of the ports.
    Ports,
    /// Drops by port and reason.
    Drops,
    /// States of the bridges.
    Bridges,
    /// OpenFlow rules.
    Flows,
    /// States of the flow caches.
    Caches,
    /// States of the routers.
    Routers,
    /// States of the filters.
    Filters,
}

/// A state that the daemon has returned.
#[derive(Clone, PartialEq, Debug)]
pub enum State {
    /// States of the ports.
    Ports(Vec<PortState>),
    /// Drops by port and reason.
    Drops(Vec<DropState>),
    /// States of the bridges.
    Bridges(Vec<BridgeState>),
    /// OpenFlow rules, at most [`RULES`].
    Flows(Vec<FlowRuleState>),
    /// States of the flow caches.
    Caches(CachesState),
    /// States of the routers.
    Routers(Vec<RouterState>),
    /// States of the filters.
    Filters(Vec<FilterState>),
}

impl State {
    /// Returns the resource that the state was read from.
    pub fn resource(&self) -> Resource {
        match self {
            State::Ports(_) => Resource::Ports,
            State::Drops(_) => Resource::Drops,
            State::Bridges(_) => Resource::Bridges,
            State::Flows(_) => Resource::Flows,
            State::Caches(_) => Resource::Caches,
            State::Routers(_) => Resource::Routers,
            State::Filters(_) => Resource::Filters,
        }
    }
}

/// Message of the reader to the view.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    /// A new set of counters.
    Counters(Counters),
    /// A new state, with the time of the reading since the start of the reader.
    State(Duration, State),
    /// The daemon has refused a request for this state, for this reason.
    Refused(Resource, String),
    /// There is no connection to the daemon, for this reason. The reader tries again.
    Lost(String),
    /// The connection to the daemon is established again.
    Connected,
}

/// Reads the daemon until the receiver of the updates is closed. `needed` contains the states that the shown
/// page needs.
pub async fn run(
    client: Client,
    mut events: CounterEvents,
    mut needed: watch::Receiver<Vec<Resource>>,
    updates: mpsc::Sender<Update>,
) {
    let start = Instant::now();
    let mut requested: BTreeMap<Resource, Instant> = BTreeMap::new();
    loop {
        let counters = tokio::select! {
            counters = events.next() => Some(counters),
            changed = needed.changed() => match changed {
                Ok(()) => None,
                Err(_) => return,
            },
        };
        let update = match counters {
            Some(Some(counters)) => Update::Counters(counters),
            Some(None) => {
                let Some(connected) = connect_again(&client, &updates).await else { return };
                events = connected;
                Update::Connected
            }
            None => {
                // The page has changed.
                if request(&client, &needed, &mut requested, start, &updates).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let connected = update == Update::Connected;
        if updates.send(update).await.is_err() {
            return;
        }
        if !connected && request(&client, &needed, &mut requested, start, &updates).await.is_err() {
            return;
        }
    }
}

/// Connects to the daemon again until it succeeds. Returns `None` if the receiver of the updates is closed.
async fn connect_again(client: &Client, updates: &mpsc::Sender<Update>) -> Option<CounterEvents> {
    let mut reason = "the daemon has ended or is being replaced".to_owned();
    loop {
        updates.send(Update::Lost(reason)).await.ok()?;
        tokio::time::sleep(RETRY).await;
        match CounterEvents::open(client).await {
            Ok(events) => return Some(events),
            Err(failure) => reason = failure.cause,
        }
    }
}

/// Requests the needed states that were last requested at least [`INTERVAL`] ago.
async fn request(
    client: &Client,
    needed: &watch::Receiver<Vec<Resource>>,
    requested: &mut BTreeMap<Resource, Instant>,
    start: Instant,
    updates: &mpsc::Sender<Update>,
) -> Result<(), mpsc::error::SendError<Update>> {
    let resources = needed.borrow().clone();
    for resource in resources {
        let now = Instant::now();
        if requested.get(&resource).is_some_and(|last| now - *last < INTERVAL) {
            continue;
        }
        requested.insert(resource, now);
        let update = match read(client, resource).await {
            Ok(state) => Update::State(start.elapsed(), state),
            Err(failure) => Update::Refused(resource, failure.to_string()),
        };
        updates.send(update).await?;
    }
    Ok(())
}

async fn read(client: &Client, resource: Resource) -> Result<State, Failure> {
    Ok(match resource {
        Resource::Ports => State::Ports(client.get("/v1/ports").await?),
        Resource::Drops => State::Drops(client.get("/v1/drops").await?),
        Resource::Bridges => State::Bridges(client.get("/v1/bridges").await?),
        Resource::Flows => State::Flows(client.get(&format!("/v1/flows?limit={RULES}")).await?),
        Resource::Caches => State::Caches(client.get("/v1/caches").await?),
        Resource::Routers => State::Routers(client.get("/v1/routers").await?),
        Resource::Filters => State::Filters(client.get("/v1/filters").await?),
    })
}
