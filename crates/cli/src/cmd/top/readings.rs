//! Counters and states that `trivium top` has read from the daemon: one table ([`Sheet`]) for each page, and the
//! states for the details of ports.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Counters, PortCounters, PortState, WorkerState};

use super::feed::State;
use super::pages::{self, Page};
use super::sheet::Sheet;

/// Tables and states that `trivium top` has read from the daemon.
#[derive(Clone, Debug)]
pub struct Readings {
    sheets: [Sheet; Page::ALL.len()],
    caches: Sheet,
    counters: Counters,
    ports: BTreeMap<String, PortState>,
}

impl Default for Readings {
    fn default() -> Self {
        Readings {
            sheets: Page::ALL.map(|page| Sheet::new(page.columns())),
            caches: Sheet::new(pages::CACHES),
            counters: Counters::default(),
            ports: BTreeMap::new(),
        }
    }
}

impl Readings {
    /// Returns the table of a page, with the values that were read last.
    pub fn sheet(&self, page: Page) -> &Sheet {
        &self.sheets[page.index()]
    }

    fn sheet_mut(&mut self, page: Page) -> &mut Sheet {
        &mut self.sheets[page.index()]
    }

    /// Returns the table of the flow caches, which has at most one row.
    pub fn caches(&self) -> &Sheet {
        &self.caches
    }

    /// Returns the state of a port, or `None` if the state has not been read yet.
    pub fn port(&self, name: &str) -> Option<&PortState> {
        self.ports.get(name)
    }

    /// Returns the counters of a port in the last set of counters.
    pub fn port_counters(&self, name: &str) -> Option<&PortCounters> {
        self.counters.ports.get(name)
    }

    /// Returns the states of the workers in the last set of counters.
    pub fn workers(&self) -> &[WorkerState] {
        &self.counters.workers
    }

    /// Adds a set of counters that the daemon has sent.
    pub fn add_counters(&mut self, counters: Counters) {
        let at = Duration::from_nanos(counters.at_ns);
        let rows = pages::ports(&counters, &self.ports);
        self.sheet_mut(Page::Ports).update(at, rows);
        self.sheet_mut(Page::Workers).update(at, pages::workers(&counters.workers));
        self.counters = counters;
    }

    /// Adds a state that the daemon returned at the time `at`.
    pub fn add_state(&mut self, at: Duration, state: State) {
        let (page, rows) = match state {
            State::Ports(ports) => {
                self.ports = ports.into_iter().map(|port| (port.name.clone(), port)).collect();
                let rows = pages::ports(&self.counters, &self.ports);
                self.sheet_mut(Page::Ports).amend(rows);
                return;
            }
            State::Caches(caches) => {
                self.caches.update(at, vec![pages::caches(&caches)]);
                return;
            }
            State::Drops(drops) => (Page::Drops, pages::drops(&drops)),
            State::Bridges(bridges) => (Page::Bridges, pages::bridges(&bridges, self.sheet(Page::Ports))),
            State::Flows(rules) => (Page::Flows, pages::flows(&rules)),
            State::Routers(routers) => (Page::Routers, pages::routers(&routers, self.sheet(Page::Ports))),
            State::Filters(filters) => (Page::Filters, pages::filters(&filters)),
        };
        self.sheet_mut(page).update(at, rows);
    }
}
