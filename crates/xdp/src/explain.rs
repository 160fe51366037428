//! Explains how a port's XDP program processes a frame, with a test run (`BPF_PROG_TEST_RUN`). The test run uses a
//! second instance of the program and copies of all maps to which the program writes. The test run does not change the
//! port's counters, tables, frame sequence numbers or rate limits, and no frame is transmitted.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use packet::net::FiveTuple;

use crate::build::Build;
use crate::fib::FibStage;
use crate::stages::Stages;
use crate::steer::SteerTo;
use crate::{Attached, Constants, Counter, Error, Loaded, Verdict};

/// Result of a test run (`BPF_PROG_TEST_RUN`) of a port's XDP program: how the program processes a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookSays {
    /// Packet counter that the program incremented for the frame. The counter shows the frame's outcome.
    pub counter: Counter,
    /// Verdict of the program. A test run has no AF_XDP socket, so a frame for the worker gets the verdict that the
    /// port's [`crate::WhenDown`] states.
    pub verdict: Verdict,
    /// Bytes of the frame after the program had processed it.
    pub frame: Vec<u8>,
    /// Names of the filter rules that match the frame, in the order in which the filter tries the rules. The Boolean
    /// states whether the rule acted on the frame (dropped, passed, sampled or limited it).
    pub rules: Vec<(String, bool)>,
    /// Number of the port to which the bridge, flow or virtual router stage redirects the frame. `None` if the frame is
    /// not redirected to a port.
    pub to: Option<u16>,
    /// Index, in the virtual router's neighbour table, of the next hop to which the frame is forwarded. `None` if no
    /// route of a virtual router forwards the frame.
    pub neighbour: Option<u32>,
    /// Index of the output device that the kernel's routes select, in the port's network namespace. `None` if
    /// the kernel routing stage does not forward the frame.
    pub device: Option<u32>,
    /// Exact flow of the steering policy that matches the frame. `None` if no exact flow matches.
    pub flow: Option<FiveTuple>,
    /// Target that the steering policy selects for the frame, by an exact flow or by the hash table. `None` if the
    /// policy selects no target.
    pub steered: Option<SteerTo>,
    /// Name of the custom program in front of the port's program, and whether it can continue with the port's
    /// program. `None` without a custom program. The custom program does not run in the test run, because it
    /// has maps of its own.
    pub user: Option<(String, bool)>,
}

/// The stages, constants and maps of a port's program, for a test run. The value holds copies of the references in an
/// [`Attached`] value. A caller can therefore release a lock on the [`Attached`] value before the test run.
#[derive(Debug)]
pub struct Explainer {
    constants: Constants,
    build: Build,
    ifindex: u32,
    stages: Stages,
    locals: [OwnedFd; 2],
    user: Option<(String, bool)>,
}

impl Attached {
    /// Returns the stages, constants and maps of the port's program, for a test run. The call loads no program, and
    /// copies no contents of maps.
    ///
    /// # Errors
    /// Returns [`Error::Map`] if a map cannot be duplicated.
    pub fn explainer(&self) -> Result<Explainer, Error> {
        Ok(Explainer {
            constants: self.constants(),
            build: self.build(),
            ifindex: self.ifindex(),
            stages: self.stages().clone(),
            locals: self.maps().duplicate_locals()?,
            user: self.user().map(|user| (user.name().to_owned(), user.goes_on())),
        })
    }
}

impl Explainer {
    /// Makes a test run of the port's own program with a frame of at least 14 bytes, and returns
    /// the result. The test run treats the frame as received on the first queue, and assumes that
    /// no worker holds an earlier frame of the flow. The calling thread must be in the device's
    /// network namespace.
    ///
    /// # Errors
    /// Returns [`Error::Map`], [`Error::Load`] or [`Error::TestRun`].
    pub fn explain(&self, frame: &[u8]) -> Result<HookSays, Error> {
        let Stages { filter, bridge, flows, fib, route, steer, dump: _ } = &self.stages;
        let scratch = Stages {
            filter: filter.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            bridge: bridge.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            flows: flows.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            fib: fib.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            route: route.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            steer: steer.as_ref().map(|maps| maps.scratch().map(Arc::new)).transpose()?,
            dump: None,
        };
        let loaded = Loaded::new(self.constants, None, self.build, None, scratch.clone())?;
        loaded.maps.copy_locals(&self.locals)?;
        let run = loaded.test_run_from(frame, Some((self.ifindex, 0)), 1)?;
        let counters = loaded.counters()?;
        let counter =
            Counter::ALL.into_iter().find(|counter| counters.get(*counter) > 0).unwrap_or(Counter::Aborted);
        let rules = scratch.filter.as_ref().map_or(Ok(Vec::new()), |maps| maps.matched())?;
        let to = scratch.bridge.as_ref().filter(|_| counter == Counter::Bridged).map(|maps| maps.sent_to());
        let by_rules = scratch.flows.as_ref().filter(|_| counter == Counter::FlowForwarded);
        let by_rules = by_rules.map(|maps| maps.sent_to()).transpose()?.flatten();
        let answered = scratch.route.as_ref().filter(|_| counter == Counter::RouteForwarded);
        let answered =
            answered.and_then(|maps| maps.answers()).map(|maps| maps.sent_to()).transpose()?.flatten();
        let routed = scratch.fib.as_ref().filter(|_| counter == Counter::FibForwarded);
        let sent = routed.map(|maps| FibStage::over(Arc::clone(maps)).counts()).transpose()?;
        let device = sent.and_then(|sent| sent.into_iter().find(|(_, count)| count.packets > 0));
        let steered = scratch.steer.as_ref().map(|maps| maps.steered()).transpose()?;
        Ok(HookSays {
            counter,
            verdict: run.verdict,
            frame: run.frame,
            rules,
            to: to.transpose()?.flatten().or(by_rules).or(answered.map(|(port, _)| port)),
            neighbour: answered.map(|(_, neighbour)| neighbour),
            device: device.map(|(ifindex, _)| ifindex),
            flow: steered.and_then(|steered| steered.flow),
            steered: steered.and_then(|steered| steered.to),
            user: self.user.clone(),
        })
    }
}
