//! Functions of program stages that need a port ([`Attached`]). Some functions create a stage that shares maps with the
//! port's current program. Others read a stage from the program of a port that was taken over from another process.

use std::sync::Arc;

use crate::bridge::{BridgeDevices, BridgePort, BridgeStage, StationTable};
use crate::fib::{FibPort, FibStage};
use crate::filter::{Compiled, Filter};
use crate::flows::{FlowPort, FlowStage, FlowTable};
use crate::route::{Own, RouteStage};
use crate::stages::StageChange;
use crate::steer::Steering;
use crate::{Attached, Error, Loaded};

impl BridgeStage {
    /// Creates a bridge stage for the program of `attached`. The stage uses the frame sequence numbers
    /// ([`Orders`](crate::bridge::Orders)) of that program if there are any.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(
        port: &BridgePort,
        attached: &Attached,
        table: &StationTable,
        devices: &BridgeDevices,
    ) -> Result<BridgeStage, Error> {
        BridgeStage::with_orders(port, attached.orders()?, table, devices)
    }

    /// Returns whether a port's program runs exactly this bridge stage.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.stages().bridge.as_ref().is_some_and(|maps| Arc::ptr_eq(maps, self.maps()))
    }
}

impl FlowStage {
    /// Creates a stage of cached flows for the program of `attached`. The stage uses the frame sequence numbers
    /// ([`Orders`](crate::bridge::Orders)) of that program if there are any. `stations` holds the bridge configuration
    /// of the port and the bridge's MAC table, for flows with the action `NORMAL`. With `None`, packets of such flows
    /// go to the worker.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(
        port: &FlowPort,
        attached: &Attached,
        table: &FlowTable,
        devices: &BridgeDevices,
        stations: Option<(&BridgePort, &StationTable)>,
    ) -> Result<FlowStage, Error> {
        FlowStage::with_orders(port, attached.orders()?, table, devices, stations)
    }

    /// Returns whether a port's program runs exactly this stage of cached flows.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.stages().flows.as_ref().is_some_and(|maps| Arc::ptr_eq(maps, self.maps()))
    }
}

impl FibStage {
    /// Creates a kernel routing stage for the program of `attached`. If the program already has a kernel routing stage,
    /// the output devices and counts of that stage are kept.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn new(port: &FibPort, attached: &Attached) -> Result<FibStage, Error> {
        FibStage::sharing(port, attached.fib().as_ref())
    }
}

impl Filter {
    /// Replaces the rules of this filter in the programs of `ports`. Each frame is processed with either the old rules
    /// or the new ones. All replacement programs are loaded before the first one starts to run.
    ///
    /// # Errors
    /// Returns the errors of [`Filter::replace`] and [`Attached::set_stage`]. The rules are unchanged on
    /// failure. The exception is a failed link update ([`Error::Swap`]), after which some ports may have the
    /// new rules and others the old ones.
    pub fn replace_on(&mut self, compiled: &Compiled, ports: &mut [&mut Attached]) -> Result<(), Error> {
        let before = self.rules();
        self.replace(compiled)?;
        let loaded: Result<Vec<Loaded>, Error> =
            ports.iter().map(|port| port.prepare_stage(StageChange::Filter(Some(self)))).collect();
        let loaded = loaded.inspect_err(|_| self.restore(before))?;
        for (port, loaded) in ports.iter_mut().zip(loaded) {
            port.swap(loaded)?;
        }
        Ok(())
    }

    /// Returns the filter of a port that was taken over from another process, with its counters and token buckets.
    /// Returns `None` if the port has no filter.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn of(port: &Attached) -> Result<Option<Filter>, Error> {
        port.stages().filter.as_ref().map(Filter::over).transpose()
    }

    /// Returns whether a port's program runs the current rule set of this filter.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.stages().filter.as_ref().is_some_and(|maps| Arc::ptr_eq(maps, self.maps()))
    }
}

impl Own {
    /// Returns the router's own IP addresses that the program of a port reads. The port was taken over from another
    /// process. The programs of the router's other ports read the same tables (see [`RouteStage::is_for`]). Returns
    /// `None` if the program has no virtual router stage. `router` is the router's name in errors.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn of(port: &Attached, router: &str) -> Result<Option<Own>, Error> {
        port.route().map(|stage| Own::of_stage(&stage, router)).transpose()
    }
}

impl RouteStage {
    /// Returns a copy of the stage that keeps the frame order between XDP program and worker. A frame that the XDP
    /// program forwards never overtakes an earlier frame of its flow that went to a worker. Frames to the worker have
    /// sequence numbers, and [`Orders::finish`](crate::bridge::Orders::finish) reports the number up to which all
    /// frames have left the worker. The stage continues the sequence numbers of the port's program if there are any.
    ///
    /// Frame order cannot be kept on a port in generic mode, because several CPUs may process the frames of
    /// one receive queue.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn in_order(self, port: &Attached) -> Result<RouteStage, Error> {
        Ok(self.with_orders(port.orders()?))
    }
}

impl Steering {
    /// Returns the steering policy of a port that was taken over from another process, with the policy's exact flows,
    /// hash table and counts. Returns `None` if the port has no flow steering. The length of the queues to other CPUs
    /// is not known, and must be set with [`Steering::like`].
    ///
    /// # Errors
    /// Returns [`Error::Map`] if an operation on a kernel map fails.
    pub fn of(port: &Attached) -> Result<Option<Steering>, Error> {
        let steering = |maps| Steering::over_maps(maps, port.build(), port.mode());
        port.stages().steer.as_ref().map(steering).transpose()
    }

    /// Returns whether a port's program applies exactly this steering policy.
    #[must_use]
    pub fn is_on(&self, port: &Attached) -> bool {
        port.stages().steer.as_ref().is_some_and(|maps| self.has_maps(maps))
    }
}
