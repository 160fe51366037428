//! Implementation of [`control::Lists`]: the lists of state that the control plane requests.

use control::{Lists, PlaneError};
use model::{
    BridgeState, CachesState, ConnectionQuery, ConnectionState, DropState, FdbEntry, FdbFilter, FilterState,
    FlowQuery, FlowRuleState, GroupState, MegaflowState, MeterState, NeighbourEntry, NextHopEntry, PortState,
    RouteEntry, RouteQuery, RouterState, StageState, SteeringState, WorkerState,
};
use netlink::Mirror;

use super::data_plane::DataPlane;
use super::lock::locked;
use super::{routers, routes, view};

impl Lists for DataPlane {
    fn ports(&self) -> Vec<PortState> {
        self.with_engine(|engine| view::ports(&locked(&self.running_state), engine)).unwrap_or_default()
    }

    fn filters(&self) -> Vec<FilterState> {
        let running_state = locked(&self.running_state);
        running_state.filters.states(&running_state.ports)
    }

    fn steering(&self) -> Vec<SteeringState> {
        let running_state = locked(&self.running_state);
        running_state.steering.states(&running_state.ports)
    }

    fn bridges(&self) -> Vec<BridgeState> {
        view::bridges(&locked(&self.running_state))
    }

    fn fdb(&self, filter: &FdbFilter) -> Vec<FdbEntry> {
        let (bridges, names) = {
            let running_state = locked(&self.running_state);
            (view::fdb_bridges(&running_state, filter), running_state.names.clone())
        };
        view::fdb(&bridges, &names, filter)
    }

    fn routers(&self) -> Vec<RouterState> {
        let running_state = locked(&self.running_state);
        let states = running_state.routers.states(&running_state.config, &running_state.ports);
        drop(running_state);
        states.into_iter().map(|state| state()).collect()
    }

    fn routes(&self, router: &str, query: &RouteQuery) -> Result<Vec<RouteEntry>, PlaneError> {
        let follower = locked(&self.running_state).routers.follower(router)?;
        let (query, mut all, mut from) = (*query, Vec::new(), Some(routes::Place::START));
        while let Some(start) = from.filter(|_| all.len() < query.limit) {
            let look = move |mirror: &Mirror| routes::routes(mirror, query, start);
            let (found, next) = routers::ask(router, &follower, look)?;
            all.extend(found);
            from = next;
        }
        all.truncate(query.limit);
        Ok(all)
    }

    fn neighbours(&self, router: &str, limit: usize) -> Result<Vec<NeighbourEntry>, PlaneError> {
        let sent = locked(&self.running_state).routers.sent(router)?;
        self.ask_router(router, move |mirror| routes::neighbours(mirror, limit, &sent))
    }

    fn next_hops(&self, router: &str, limit: usize) -> Result<Vec<NextHopEntry>, PlaneError> {
        let sent = locked(&self.running_state).routers.sent(router)?;
        self.ask_router(router, move |mirror| routes::next_hops(mirror, limit, &sent))
    }

    fn flow_rules(&self, query: &FlowQuery) -> Result<Vec<FlowRuleState>, PlaneError> {
        self.shown_flows().rules(query)
    }

    fn groups(&self, query: &FlowQuery) -> Result<Vec<GroupState>, PlaneError> {
        self.shown_flows().groups(query)
    }

    fn meters(&self, query: &FlowQuery) -> Result<Vec<MeterState>, PlaneError> {
        self.shown_flows().meters(query)
    }

    fn megaflows(&self, query: &FlowQuery) -> Result<Vec<MegaflowState>, PlaneError> {
        self.shown_flows().megaflows(query)
    }

    fn connections(&self, query: &ConnectionQuery) -> Vec<ConnectionState> {
        self.shown_flows().connections(query)
    }

    fn caches(&self) -> CachesState {
        let shown = self.shown_flows();
        // A hand-over waits for the lock of the engine, which is therefore not held while tables are read.
        let tables = shown.memory();
        self.with_engine(|engine| shown.caches(engine, &self.memory, tables)).unwrap_or_default()
    }

    fn workers(&self) -> Vec<WorkerState> {
        let loads = locked(&self.loads).clone();
        self.with_engine(|engine| view::workers(&locked(&self.running_state), engine, &loads))
            .unwrap_or_default()
    }

    fn stages(&self) -> Vec<StageState> {
        self.with_engine(view::stages).unwrap_or_default()
    }

    fn drops(&self) -> Vec<DropState> {
        self.with_engine(|engine| view::drops(&locked(&self.running_state), engine)).unwrap_or_default()
    }
}
