//! Filter in the workers' ingress stage, for ports without a hook. The filter runs after the headers are parsed
//! and before the port's function. On ports with a hook, the hook applies the filter instead, before a worker
//! receives the packet.

use std::sync::Arc;

use control::PlaneError;
use engine::IngressStage;
use model::PortName;
use xdp::filter::{Blocklist, FilterError, ListView, WorkerFilter};

use super::worker_stage::Stage;
use super::{Filtering, Filters, failed, no_such_filter};
use crate::open::PortSpec;
use crate::ports::{Ports, Running};

impl Filters {
    /// Returns the name of the rule that would drop a frame received by a port whose workers apply its
    /// filter. Returns `None` if no rule would drop the frame.
    pub fn ends_at(&self, wanted: &PortSpec, frame: &[u8]) -> Option<String> {
        let stage = self.running.get(wanted.workers_filter()?)?.stage.as_ref()?;
        stage.ends_at(frame).map(str::to_owned)
    }

    /// Returns the current ingress stage of a port whose workers apply its filter. Returns `None` for other
    /// ports.
    pub(super) fn serve(
        &mut self,
        port: &PortName,
        wanted: &PortSpec,
    ) -> Result<Option<Arc<dyn IngressStage>>, PlaneError> {
        let Some(name) = wanted.workers_filter() else { return Ok(None) };
        let running = self.running.get_mut(name).ok_or_else(|| no_such_filter(port, name))?;
        let stage = running.serve().map_err(|error| failed(name, &error))?;
        Ok(Some(stage as Arc<dyn IngressStage>))
    }

    /// Updates the ingress stages of filters that have changed, and assigns them to the ports. Returns true if
    /// a stage was replaced and a new snapshot must be published. This function is called after every change of
    /// filters.
    pub fn renewed(&mut self, ports: &mut Ports) -> bool {
        let mut any = false;
        for (name, running) in &mut self.running {
            any |= running.renew().unwrap_or_else(|error| {
                tracing::error!(filter = %name, %error, "workers go on by the rules that they had");
                false
            });
        }
        // A new port may have caused the creation of a stage that other ports do not have yet.
        let is_current = |running: &Running| {
            let stage = self.running.get(running.wanted.workers_filter()?)?.stage.as_ref()?;
            Some(std::ptr::addr_eq(Arc::as_ptr(stage), Arc::as_ptr(running.own.as_ref()?)))
        };
        any |= ports.values().any(|running| is_current(running) == Some(false));
        if any && let Err(error) = self.ensure_workers(ports) {
            tracing::error!(%error, "workers go on by the rules that they had");
        }
        any
    }
}

impl Filtering {
    /// Returns the ingress stage of the filter. Creates or updates it if necessary.
    fn serve(&mut self) -> Result<Arc<Stage>, xdp::Error> {
        self.renew()?;
        if let Some(stage) = &self.stage {
            return Ok(Arc::clone(stage));
        }
        if self.list.is_none() {
            self.list = self.new_list()?;
        }
        self.make_stage()
    }

    /// Creates the ingress stage again, with its current counters. Does nothing if the filter has no ingress stage.
    pub(super) fn remake_stage(&mut self) -> Result<(), xdp::Error> {
        if self.stage.is_some() {
            self.make_stage()?;
        }
        Ok(())
    }

    /// Creates the ingress stage again if the rules or the table of the block list have changed. Returns whether a new
    /// stage was created.
    fn renew(&mut self) -> Result<bool, xdp::Error> {
        let Some(stage) = &self.stage else { return Ok(false) };
        let same_list = match (stage.0.list(), &self.list) {
            (Some(view), Some(list)) => view.is_of(list),
            (None, None) => true,
            _ => false,
        };
        let has_rules = self.definition.compiled.as_ref().is_some_and(|compiled| stage.0.is_of(compiled));
        if same_list && has_rules {
            return Ok(false);
        }
        self.make_stage().map(|_| true)
    }

    fn make_stage(&mut self) -> Result<Arc<Stage>, xdp::Error> {
        let list: Option<ListView> = self.list.as_ref().map(Blocklist::view);
        let made: Result<WorkerFilter, FilterError> =
            WorkerFilter::new(&self.definition.compile()?, &mut self.tally, list);
        let stage = Arc::new(Stage(made?));
        self.stage = Some(Arc::clone(&stage));
        Ok(stage)
    }
}
