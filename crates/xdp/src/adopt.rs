//! Takes over XDP programs that are attached to ports. The descriptors of the BPF link and of the maps come from a
//! predecessor process, or from files that this process pinned in the BPF file system. The state of a port is restored
//! from its BPF link.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::attach;
use crate::attached::{Attached, link_info};
use crate::bridge::{BRIDGE_WORDS, BridgeMaps, KnownStations};
use crate::build::Build;
use crate::config::CONF_SIZE;
use crate::fib::{FIB_WORDS, FibMaps};
use crate::filter::{CONF_WORDS, FilterMaps};
use crate::flows::{FLOWS_WORDS, FlowMaps};
use crate::object::{
    BRIDGE_CONF, CONF, FIB_CONF, FILTER_CONF, FLOWS_CONF, ROUTE_CONF, ROUTE_LINKS, ROUTE_VLANS, STEER_CONF,
};
use crate::program::{MAP_NAMES, Maps};
use crate::route::{LINK_SECRETS, ROUTE_WORDS, RouteMaps, VLAN_WORDS, Vlans, link_secrets};
use crate::stages::Stages;
use crate::steer::{STEER_WORDS, SteerMaps};
use crate::user::UserProgram;
use crate::{Constants, Error, PinPath, sys};

impl Attached {
    /// Restores the state of an attached port program from its BPF link. The maps are found through the link's program.
    /// The program's constants are read from one of these maps.
    pub(crate) fn from_link(
        link: OwnedFd,
        maps: Option<Maps>,
        pin: Option<PinPath>,
    ) -> Result<Attached, Error> {
        let object = || match &pin {
            Some(pin) => pin.directory().display().to_string(),
            None => "descriptor of a link".to_owned(),
        };
        let is_link = sys::is_link(link.as_fd())
            .map_err(|source| Error::Query { what: "the kind of a descriptor (in /proc)", source })?;
        let info = link_info(link.as_fd())?;
        if !is_link || !info.is_xdp {
            return Err(Error::NotOurs { object: object(), found: "no XDP link".to_owned() });
        }
        let (mode, device) = attach::mode_of(&info)?;
        let query = |source| Error::Query { what: "the program of a link", source };
        let on_link = sys::program_by_id(info.program).map_err(query)?;
        let named = pin.as_ref().map_or_else(Vec::new, PinPath::user_maps);
        let user = UserProgram::adopt(&on_link, &named)?;
        let own = match &user {
            None => on_link,
            Some(user) => user.leads_to()?.ok_or_else(|| Error::Alone { object: object() })?,
        };
        let program = sys::program_info(own.as_fd()).map_err(query)?;
        let name = program.name.as_str();
        let known = |build: &Build| [build.program(), build.dumping(), build.placeholder()].contains(&name);
        let build = [Build::Frags, Build::Linear].into_iter().find(known);
        let mut found = MapsOfProgram::open(&program.maps)?;
        let ours = build.zip(found.constants()?);
        let is_placeholder = ours.is_some_and(|(build, _)| name == build.placeholder());
        let Some((build, constants)) = ours else {
            return Err(Error::NotOurs { object: object(), found: format!("program \"{}\"", program.name) });
        };
        let filter = found.filter()?.map(Arc::new);
        let (bridge, for_flows) = match found.stations()? {
            Some(known) if known.is_stage() => (Some(Arc::new(found.bridge(known)?)), None),
            known => (None, known),
        };
        let flows = found.flows(for_flows)?.map(Arc::new);
        // The reader of a packet capture ended with the predecessor process. Therefore the capture is not adopted.
        let (fib, steer) = (found.fib()?.map(Arc::new), found.steer()?.map(Arc::new));
        let route = found.route()?.map(Arc::new);
        let stages = Stages { filter, bridge, flows, fib, route, steer, dump: None };
        let maps = match (maps, &pin) {
            (Some(maps), _) => maps,
            // A placeholder does not refer to the maps of its port.
            (None, Some(pin)) if is_placeholder => pinned_maps(pin)?,
            (None, _) => found.into_maps()?,
        };
        let user = user.map(|user| user.with_buffers(build == Build::Frags));
        if let Some(pin) = &pin {
            pin.repair_user(user.as_ref())?;
        }
        Ok(Attached {
            link,
            link_id: info.id,
            maps,
            constants,
            build,
            ifindex: info.ifindex,
            device,
            mode,
            fallbacks: Vec::new(),
            pin,
            stages,
            user,
            is_placeholder,
        })
    }
}

/// Takes over the XDP program of a port from the pin directory that a former process has left in the BPF file system.
/// The calling thread must be in the device's network namespace.
///
/// Returns `None` if nothing is pinned at the path. Also returns `None` in two other cases, in which the function
/// removes the remaining pins: if the device no longer exists, or if the link runs a custom program whose tail call
/// finds no port program any more.
///
/// # Errors
/// Returns [`Error::NotOurs`], [`Error::WrongNamespace`], [`Error::Pin`] or [`Error::Query`]. The function
/// needs CAP_SYS_ADMIN.
pub fn adopt(pin: &PinPath) -> Result<Option<Attached>, Error> {
    let Some(link) = pin.open_link()? else { return Ok(None) };
    match Attached::from_link(link, None, Some(pin.clone())) {
        Err(Error::DeviceGone { .. }) => {
            pin.remove()?;
            Ok(None)
        }
        // The pin of the port's program was removed by hand, so the custom program cannot pass frames on.
        Err(Error::Alone { .. }) => {
            let link = pin.open_link()?;
            let detached = link.map_or(Ok(()), |link| sys::link_detach(link.as_fd()));
            detached.map_err(|source| Error::Query { what: "detaching a link", source })?;
            pin.remove()?;
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// Opens the maps that are pinned in the pin directory of a port.
fn pinned_maps(pin: &PinPath) -> Result<Maps, Error> {
    let [xsks, local4, local6, counters] = MAP_NAMES;
    Ok(Maps {
        xsks: pin.open_map(xsks)?,
        local4: pin.open_map(local4)?,
        local6: pin.open_map(local6)?,
        counters: pin.open_map(counters)?,
    })
}

/// Maps that a loaded program uses, each with its name.
struct MapsOfProgram(Vec<(String, OwnedFd)>);

impl MapsOfProgram {
    fn open(ids: &[u32]) -> Result<MapsOfProgram, Error> {
        let failed = |source| Error::Query { what: "the maps of a program", source };
        let mut maps = Vec::with_capacity(ids.len());
        for id in ids {
            let map = sys::map_by_id(*id).map_err(failed)?;
            maps.push((sys::map_info(map.as_fd()).map_err(failed)?.name, map));
        }
        Ok(MapsOfProgram(maps))
    }

    fn constants(&self) -> Result<Option<Constants>, Error> {
        let Some((_, map)) = self.0.iter().find(|(name, _)| name == CONF) else { return Ok(None) };
        match sys::map_lookup::<CONF_SIZE>(map.as_fd(), 0) {
            Ok(bytes) => Ok(Constants::from_bytes(&bytes)),
            // If the map has another size, it belongs to a foreign program or to another version of this program.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Err(source) => Err(Error::Map { map: CONF, operation: "read", source }),
        }
    }

    /// Returns the constants of one program stage as an array of words. Returns `None` if the program does not have the
    /// stage.
    fn stage<const BYTES: usize, const WORDS: usize>(
        &self,
        section: &'static str,
    ) -> Result<Option<[u32; WORDS]>, Error> {
        let conf = self.words::<BYTES, WORDS>(section)?;
        Ok(conf.filter(|conf| conf.first().is_some_and(|present| *present > 0)))
    }

    /// Returns the contents of a read-only data section of the program (constants set before loading) as an array of
    /// words. Returns `None` if the program does not read the section.
    fn words<const BYTES: usize, const WORDS: usize>(
        &self,
        section: &'static str,
    ) -> Result<Option<[u32; WORDS]>, Error> {
        let Some((_, map)) = self.0.iter().find(|(name, _)| name == section) else { return Ok(None) };
        let failed = |source| Error::Map { map: section, operation: "read", source };
        let bytes = sys::map_lookup::<BYTES>(map.as_fd(), 0).map_err(failed)?;
        let mut conf = [0; WORDS];
        for (word, bytes) in conf.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        Ok(Some(conf))
    }

    /// Removes the maps of the program's filter stage from this list and returns them. Returns
    /// `None` if the program has no filter.
    fn filter(&mut self) -> Result<Option<FilterMaps>, Error> {
        let conf = self.stage::<{ 4 * CONF_WORDS }, CONF_WORDS>(FILTER_CONF)?;
        conf.map(|conf| FilterMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    /// Removes the map of the station table (MAC table) from this list and returns the table.
    /// Returns `None` if the program reads no station table.
    fn stations(&mut self) -> Result<Option<KnownStations>, Error> {
        let conf = self.stage::<{ 4 * BRIDGE_WORDS }, BRIDGE_WORDS>(BRIDGE_CONF)?;
        conf.map(|conf| KnownStations::adopt(conf, |name| self.take(name))).transpose()
    }

    /// Removes the maps of the program's bridge stage from this list and returns them.
    fn bridge(&mut self, known: KnownStations) -> Result<BridgeMaps, Error> {
        BridgeMaps::adopt(known, |name| self.take(name))
    }

    /// Removes the maps of the stage for cached OpenFlow flows from this list and returns them.
    /// Returns `None` if the program does not have this stage.
    fn flows(&mut self, known: Option<KnownStations>) -> Result<Option<FlowMaps>, Error> {
        let conf = self.stage::<{ 4 * FLOWS_WORDS }, FLOWS_WORDS>(FLOWS_CONF)?;
        conf.map(|conf| FlowMaps::adopt(conf, known, |name| self.take(name))).transpose()
    }

    /// Removes the maps of the program's kernel routing stage from this list and returns them.
    /// Returns `None` if the program does not have this stage.
    fn fib(&mut self) -> Result<Option<FibMaps>, Error> {
        let conf = self.stage::<{ 4 * FIB_WORDS }, FIB_WORDS>(FIB_CONF)?;
        conf.map(|conf| FibMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    /// Removes the maps of the program's virtual router stage from this list and returns them.
    /// Returns `None` if the program does not have this stage.
    fn route(&mut self) -> Result<Option<RouteMaps>, Error> {
        let Some(conf) = self.stage::<{ 4 * ROUTE_WORDS }, ROUTE_WORDS>(ROUTE_CONF)? else { return Ok(None) };
        // A program without VLANs does not refer to this section.
        let vlans = self.words::<{ 4 * VLAN_WORDS }, VLAN_WORDS>(ROUTE_VLANS)?;
        let vlans = vlans.map_or_else(Vlans::none, |words| Vlans::read(&words));
        // A program that does not look up on-link neighbours does not refer to this section.
        let secrets = self.words::<{ 8 * LINK_SECRETS }, { 2 * LINK_SECRETS }>(ROUTE_LINKS)?;
        let secrets = secrets.map_or([0; LINK_SECRETS], |words| link_secrets(&words));
        RouteMaps::adopt(conf, vlans, secrets, |name| self.take(name)).map(Some)
    }

    /// Removes the maps of the program's flow steering from this list and returns them. Returns
    /// `None` if the program has no flow steering.
    fn steer(&mut self) -> Result<Option<SteerMaps>, Error> {
        let conf = self.stage::<{ 4 * STEER_WORDS }, STEER_WORDS>(STEER_CONF)?;
        conf.map(|conf| SteerMaps::adopt(conf, |name| self.take(name))).transpose()
    }

    fn take(&mut self, what: &'static str) -> Result<OwnedFd, Error> {
        let at = self.0.iter().position(|(name, _)| name == what);
        at.map(|at| self.0.swap_remove(at).1).ok_or(Error::Object { object: "trivium", what })
    }

    fn into_maps(mut self) -> Result<Maps, Error> {
        let [xsks, local4, local6, counters] = MAP_NAMES;
        Ok(Maps {
            xsks: self.take(xsks)?,
            local4: self.take(local4)?,
            local6: self.take(local6)?,
            counters: self.take(counters)?,
        })
    }
}
