//! Optional stages of a port's program: their maps and constants in the BPF object, and the
//! replacement of a stage.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::bridge::{BridgeMaps, BridgeStage, KnownStations};
use crate::build::Build;
use crate::dump::{Dump, DumpMaps};
use crate::fib::{FibMaps, FibStage};
use crate::filter::{Filter, FilterMaps};
use crate::flows::{FlowMaps, FlowStage};
use crate::object::{
    BRIDGE_CONF, DUMP_CONF, FIB_CONF, FILTER_CONF, FLOWS_CONF, Opened, ROUTE_CONF, ROUTE_LINKS, ROUTE_VLANS,
    STEER_CONF,
};
use crate::route::{AnswerMaps, PuntMaps, RouteMaps, RouteStage};
use crate::steer::{SteerMaps, Steering};
use crate::{Error, Mode, needs};

/// A change of one stage of a port's program: the new stage, or `None` to remove the stage.
///
/// A port has one function. A bridge stage, a stage of cached flows and a virtual router stage therefore exclude each
/// other, as do a kernel routing stage and a virtual router stage. A new stage removes the stages that it excludes.
#[derive(Clone, Copy, Debug)]
pub enum StageChange<'a> {
    /// Stage that drops, samples and counts frames according to the rules of a filter.
    Filter(Option<&'a Filter>),
    /// Bridge stage, which forwards frames to known MAC addresses. Without it, the worker forwards these frames.
    Bridge(Option<&'a BridgeStage>),
    /// Stage that forwards packets according to cached OpenFlow flows. Without it, the worker forwards the frames of
    /// these flows.
    Flows(Option<&'a FlowStage>),
    /// Stage that forwards packets according to the kernel's routes. Without it, the kernel's network stack forwards
    /// these packets. With it, no frame is redirected to an AF_XDP socket.
    Fib(Option<&'a FibStage>),
    /// Virtual router stage.
    ///
    /// - With the stage, the port belongs to a virtual router and has the MAC address in the stage's configuration.
    ///   Packets that are not for the kernel are routed by the stage or sent to the worker. The port's type is
    ///   [`crate::Owner::Routed`].
    /// - Without the stage, the port is a plain routed port, where the kernel receives the packets for this host.
    Route(Option<&'a RouteStage>),
    /// Flow steering, which selects the worker, the kernel or another CPU as the target of a frame.
    Steering(Option<&'a Steering>),
    /// Packet capture around all other stages.
    Dump(Option<&'a Dump>),
}

/// Optional stages of a port's program, with their maps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stages {
    pub filter: Option<Arc<FilterMaps>>,
    pub bridge: Option<Arc<BridgeMaps>>,
    pub flows: Option<Arc<FlowMaps>>,
    pub fib: Option<Arc<FibMaps>>,
    pub route: Option<Arc<RouteMaps>>,
    /// Maps of the steering policy, for the program's build (with or without multi-buffer support) and XDP mode. `None`
    /// if the program has no flow steering.
    pub steer: Option<Arc<SteerMaps>>,
    /// Maps of the packet capture around all other stages. `None` without a capture.
    pub dump: Option<Arc<DumpMaps>>,
}

/// The part of the BPF object that belongs to one stage.
trait StageMaps {
    /// Returns the sections of the object that contain the stage's constants, with the constants.
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)>;

    /// Returns the kernel maps that the stage's program uses, with their names in the object.
    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)>;
}

impl Stages {
    /// Returns the stages after the change `change`. `build` states whether the program supports multi-buffer frames,
    /// and `mode` is the XDP mode of the program.
    pub(crate) fn with(&self, change: StageChange<'_>, build: Build, mode: Mode) -> Result<Stages, Error> {
        let mut stages = self.clone();
        match change {
            StageChange::Filter(filter) => stages.filter = filter.map(|filter| Arc::clone(filter.maps())),
            StageChange::Bridge(bridge) => stages.bridge = bridge.map(|bridge| Arc::clone(bridge.maps())),
            StageChange::Flows(flows) => stages.flows = flows.map(|flows| Arc::clone(flows.maps())),
            StageChange::Fib(fib) => stages.fib = fib.map(|fib| Arc::clone(fib.maps())),
            StageChange::Route(route) => stages.route = route.map(|route| Arc::clone(route.maps())),
            StageChange::Steering(steering) => {
                stages.steer = steering.map(|steering| steering.maps(build, mode)).transpose()?;
            }
            StageChange::Dump(dump) => stages.dump = dump.map(|dump| Arc::clone(dump.maps())),
        }
        match change {
            StageChange::Bridge(Some(_)) => (stages.flows, stages.route) = (None, None),
            StageChange::Flows(Some(_)) => (stages.bridge, stages.route) = (None, None),
            StageChange::Fib(Some(_)) => stages.route = None,
            StageChange::Route(Some(_)) => {
                (stages.bridge, stages.flows, stages.fib) = (None, None, None);
            }
            _ => {}
        }
        Ok(stages)
    }

    /// Returns the stages that are present.
    fn present(&self) -> Vec<&dyn StageMaps> {
        fn stage<M: StageMaps>(maps: Option<&M>) -> Option<&dyn StageMaps> {
            maps.map(|maps| maps as &dyn StageMaps)
        }
        let route = self.route.as_deref();
        let all = [
            stage(self.filter.as_deref()),
            stage(self.bridge.as_deref()),
            stage(self.flows.as_deref()),
            stage(self.fib.as_deref()),
            stage(route),
            stage(route.and_then(RouteMaps::answers)),
            stage(route.and_then(RouteMaps::punts)),
            stage(self.steer.as_deref()),
            stage(self.dump.as_deref()),
        ];
        all.into_iter().flatten().collect()
    }

    /// Sets the constants and the maps of the stages that are present. Excludes the maps of the other stages
    /// from loading.
    pub(crate) fn set(&self, opened: &mut Opened) -> Result<(), Error> {
        let mut absent: BTreeSet<&'static str> = optional_maps().collect();
        for stage in self.present() {
            for (section, bytes) in stage.sections() {
                opened.set_section(section, &bytes)?;
            }
            for (name, map) in stage.maps() {
                absent.remove(name);
                opened.reuse(name, map)?;
            }
        }
        absent.into_iter().try_for_each(|name| opened.leave_out(name))
    }

    /// Returns the names of the stages that are present, as [`needs`] uses them.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let there = [
            (true, needs::SOCKETS),
            (self.filter.is_some(), needs::FILTER),
            (self.bridge.is_some() || self.flows.is_some(), needs::BRIDGE),
            (self.flows.is_some(), needs::FLOWS),
            (self.fib.is_some(), needs::FIB),
            (self.route.is_some(), needs::ROUTE),
            (self.route.as_ref().is_some_and(|route| route.answers().is_some()), needs::ANSWERS),
            (self.steer.is_some(), needs::STEERING),
            (self.dump.is_some(), needs::DUMP),
        ];
        there.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect()
    }
}

/// Returns the names of the maps that a program has only if one of its stages uses them. The maps
/// for packet captures and SYN cookies are not included, because programs with these maps are
/// loaded from other BPF objects.
fn optional_maps() -> impl Iterator<Item = &'static str> {
    FilterMaps::names()
        .chain([KnownStations::NAME])
        .chain(BridgeMaps::SHARED)
        .chain(FlowMaps::NAMES)
        .chain(FibMaps::NAMES)
        .chain(RouteMaps::NAMES)
        .chain(AnswerMaps::NAMES)
        .chain(PuntMaps::NAMES)
        .chain(SteerMaps::NAMES)
}

/// Returns the bytes of 32-bit words in the byte order of the machine.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl StageMaps for FilterMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(FILTER_CONF, bytes(&self.conf))]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().collect()
    }
}

impl StageMaps for BridgeMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(BRIDGE_CONF, bytes(&self.known.conf))]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().collect()
    }
}

impl StageMaps for FlowMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        let known = self.known.as_ref().map(|known| (BRIDGE_CONF, bytes(&known.conf)));
        [(FLOWS_CONF, bytes(&self.conf))].into_iter().chain(known).collect()
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().collect()
    }
}

impl StageMaps for FibMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(FIB_CONF, bytes(&self.conf))]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().into()
    }
}

impl StageMaps for RouteMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(ROUTE_CONF, bytes(&self.conf)), (ROUTE_VLANS, self.vlans.bytes())]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        let orders = self.orders().into_iter().flat_map(|orders| orders.maps());
        self.list().into_iter().chain(orders).collect()
    }
}

impl StageMaps for AnswerMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(ROUTE_LINKS, self.secrets().iter().flat_map(|number| number.to_ne_bytes()).collect())]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().collect()
    }
}

impl StageMaps for PuntMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        Vec::new()
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().collect()
    }
}

impl StageMaps for SteerMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(STEER_CONF, bytes(&self.conf))]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().into()
    }
}

impl StageMaps for DumpMaps {
    fn sections(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![(DUMP_CONF, self.constants.to_vec())]
    }

    fn maps(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        self.list().into()
    }
}
