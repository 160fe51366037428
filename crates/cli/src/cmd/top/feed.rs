//! Requests to the daemon by `trivium top`: the stream of counters, and the other states that the
//! shown page needs.
//!
//! The task that sends the requests (the reader) requests a state at most once a second, and only
//! while the shown page needs the state. When the daemon ends the stream, the reader tries to
//! connect again until an attempt succeeds.

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

/// Minimum interval between two requests for the same state. Requests are sent when a set of
/// counters arrives, once a second. The interval is somewhat shorter than a second, so that a set
/// of counters that arrives early also leads to a request.
const INTERVAL: Duration = Duration::from_millis(900);
/// Time between two attempts to connect to the daemon again.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum number of OpenFlow rules that the reader requests.
pub const RULES: usize = 1000;

/// A state of the daemon that a page needs in addition to the counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Resource {
    /// States of the ports, for the page of ports.
    Ports,
    /// Numbers of dropped packets by port and reason.
    Drops,
    /// States of the bridges.
    Bridges,
    /// OpenFlow rules of the bridges.
    Flows,
    /// States of the flow caches.
    Caches,
    /// States of the routers.
    Routers,
    /// States of the filters.
    Filters,
}

/// A state of the daemon, as the API has returned it.
#[derive(Clone, PartialEq, Debug)]
pub enum State {
    /// States of the ports.
    Ports(Vec<PortState>),
    /// Numbers of dropped packets by port and reason.
    Drops(Vec<DropState>),
    /// States of the bridges.
    Bridges(Vec<BridgeState>),
    /// OpenFlow rules of the bridges, at most [`RULES`].
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

/// Message from the task that reads the daemon to the task that draws the screen.
#[derive(Clone, PartialEq, Debug)]
pub enum Update {
    /// A new set of counters from the daemon.
    Counters(Counters),
    /// A new state from the daemon. The first value is the time of the request, measured from the start of the reader.
    State(Duration, State),
    /// The daemon has refused the request for this state. The text is the reason.
    Refused(Resource, String),
    /// The connection to the daemon was lost, for the reason in the text. The reader tries to connect again.
    Lost(String),
    /// The connection to the daemon is established again.
    Connected,
}

/// Reads counters and states from the daemon until the receiver of the updates is closed. `needed` contains the
/// states that the shown page needs.
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

/// Tries to connect to the daemon until an attempt succeeds. Returns `None` if the receiver of the
/// updates is closed.
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

/// Requests the needed states whose last request is at least [`INTERVAL`] ago.
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
