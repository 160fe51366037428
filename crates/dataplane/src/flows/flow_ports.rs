//! Ports of one OpenFlow bridge, as they were last written to the bridge's flow tables.
//!
//! [`FlowPorts::describe`] is called while the data plane's state is locked, and a large change by a controller may
//! keep the flow tables of a bridge locked for long. The function therefore accesses the tables only if a port has
//! changed, and it waits for the tables only if the configuration of a port has changed. If only link states have
//! changed and the tables are locked, a thread writes the link states later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use engine::FlowTables;
use switch::flow::{FlowPort, Pipeline};

use crate::lock::locked;

/// Descriptions of a bridge's ports, indexed by OpenFlow port number.
type Descriptions = BTreeMap<u32, FlowPort>;

/// Ports of one OpenFlow bridge, as they were last written to the bridge's flow tables.
#[derive(Default)]
pub struct FlowPorts {
    /// Descriptions at the last update of the ports. The descriptions are in the flow tables, or in `pending` if they
    /// have not been written yet. `None` before the first update.
    last: Option<Descriptions>,
    /// Descriptions that a thread will write to the flow tables later. Only the newest descriptions are written. The
    /// value is changed only by a thread that holds the lock of the flow tables or of the data plane's state.
    pending: Arc<Mutex<Option<Descriptions>>>,
}

impl FlowPorts {
    /// Writes the descriptions of a bridge's ports to its flow tables. Returns whether this call has added, removed or
    /// changed ports of the flow tables.
    ///
    /// The function waits for locked tables if ports were added or removed, or if the configuration of a port has
    /// changed. If only states of ports have changed and the tables are locked, a thread writes the changes later.
    /// `dress` adds to a port the settings that controllers have made. It is called while the tables are locked.
    pub fn describe(
        &mut self,
        tables: &Arc<FlowTables>,
        ports: Descriptions,
        dress: impl Fn(FlowPort) -> FlowPort + Clone + Send + 'static,
    ) -> bool {
        if self.last.as_ref() == Some(&ports) {
            return false;
        }
        let is_state = self.last.as_ref().is_some_and(|last| have_equal_settings(last, &ports));
        self.last = Some(ports.clone());
        let pending = &self.pending;
        let change = |pipeline: &mut Pipeline| {
            *locked(pending) = None;
            write(pipeline, &ports, &dress)
        };
        if !is_state {
            return tables.change(change);
        }
        if let Some(is_changed) = tables.try_change(change) {
            return is_changed;
        }
        if locked(pending).replace(ports.clone()).is_some() {
            // The thread that waits for the tables writes the newer descriptions.
            return false;
        }
        let (own, later) = (Arc::clone(tables), dress.clone());
        let shared = Arc::clone(pending);
        let wait = move || {
            own.change(|pipeline| {
                let newest = locked(&shared).take();
                newest.is_some_and(|ports| write(pipeline, &ports, &later))
            })
        };
        match std::thread::Builder::new().name("port-states".to_owned()).spawn(wait) {
            Ok(_) => false,
            Err(error) => {
                tracing::warn!(%error, "a change of ports waits for flow tables: no thread is left");
                tables.change(change)
            }
        }
    }
}

/// Returns whether two descriptions of a bridge's ports are equal except for the states of the
/// ports.
fn have_equal_settings(one: &Descriptions, other: &Descriptions) -> bool {
    let settings = |(number, port): (&u32, &FlowPort)| {
        (*number, port.id, port.desc.name.clone(), port.desc.config, port.floods)
    };
    one.iter().map(settings).eq(other.iter().map(settings))
}

/// Writes the descriptions of a bridge's ports to its flow tables. Returns whether the tables have changed.
fn write(pipeline: &mut Pipeline, ports: &Descriptions, dress: impl Fn(FlowPort) -> FlowPort) -> bool {
    let version = pipeline.version();
    let old: Vec<u32> = pipeline.ports().keys().copied().collect();
    for number in old.into_iter().filter(|number| !ports.contains_key(number)) {
        pipeline.set_port(number, None);
    }
    for (number, port) in ports {
        pipeline.set_port(*number, Some(dress(port.clone())));
    }
    pipeline.version() != version
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::{Duration, Instant};

    use engine::idle::Waker;
    use packet::{MacAddr, PortId};
    use switch::flow::PortDesc;

    use super::*;

    fn port(number: u32, live: bool) -> FlowPort {
        let desc = PortDesc {
            number,
            name: format!("p{number}"),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            config: 0,
            state: u32::from(!live),
            speed: 0,
        };
        let id = PortId(u16::try_from(number).unwrap());
        FlowPort { id, desc, floods: true, forwards: true, receives: true, live }
    }

    fn ports(live: bool) -> Descriptions {
        (1..3).map(|number| (number, port(number, live))).collect()
    }

    /// Returns the port unchanged. Tests use this function instead of the function that adds the settings of
    /// controllers.
    fn same(port: FlowPort) -> FlowPort {
        port
    }

    fn tables() -> Arc<FlowTables> {
        Arc::new(FlowTables::new(1, Pipeline::new(), Arc::new(Waker::new().unwrap())))
    }

    /// A link change does not wait for locked flow tables, because the caller holds the lock of the data plane's state.
    /// In this test, a long change by a controller keeps the tables locked while links of the bridge go down and up.
    #[test]
    fn a_changed_link_does_not_wait_for_tables_that_a_controller_keeps_locked() {
        let tables = tables();
        let mut own = FlowPorts::default();
        assert!(own.describe(&tables, ports(true), same));
        let held = tables.lock();
        // Unchanged ports use no tables, changed states wait in a thread, and the last state is the valid one.
        for live in [true, false, true, false] {
            assert!(!own.describe(&tables, ports(live), same));
        }
        assert!(held.ports().values().all(|port| port.live));
        drop(held);
        let deadline = Instant::now() + Duration::from_secs(20);
        while tables.lock().ports().values().any(|port| port.live || port.desc.state != 1) {
            assert!(Instant::now() < deadline, "the states have not followed");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(own.describe(&tables, ports(true), same), "free tables are changed at once");
    }

    /// The thread that waits for the tables must not overwrite the descriptions that a later change of the
    /// configuration has written.
    #[test]
    fn a_changed_configuration_replaces_states_that_wait_for_the_tables() {
        let tables = tables();
        let mut own = FlowPorts::default();
        assert!(own.describe(&tables, ports(true), same));
        let held = tables.lock();
        assert!(!own.describe(&tables, ports(false), same));
        let pending = Arc::clone(&own.pending);
        assert!(locked(&pending).is_some());
        drop(held);
        let fewer = Descriptions::from([(2, port(2, true))]);
        own.describe(&tables, fewer.clone(), same);
        assert!(locked(&pending).is_none());
        assert_eq!(*tables.lock().ports(), fewer);
    }
}
