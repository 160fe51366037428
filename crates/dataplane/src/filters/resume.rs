//! Installs filters in the hooks of ports that a hand-over resumes or opens again.

use control::PlaneError;
use model::{FilterName, PortName};
use xdp::filter::Filter;
use xdp::{Attached, StageChange};

use super::{Filters, Ports, failed, named};
use crate::open::{Opened, PortSpec};

impl Filters {
    /// Installs a filter in the hook of a port that a hand-over has opened again, before a packet passes the
    /// hook. The filter is taken from the first of these sources that has it: the running filters of this
    /// process, the predecessor's filter in the hook of a `resumed` port (with its counters), or a new
    /// filter. The hooks of resumed ports are not changed.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the filter.
    pub fn equip_anew(
        &mut self,
        port: &PortName,
        wanted: &PortSpec,
        opened: &mut Opened,
        resumed: &Ports,
    ) -> Result<(), PlaneError> {
        let Some(hook) = &mut opened.hook else { return Ok(()) };
        self.share(port, wanted.filter(), hook, resumed)?;
        opened.unlock(port, wanted)
    }

    /// Installs a filter in a hook. If a resumed port already has the filter in its hook, both hooks share
    /// the kernel objects and counters of the filter.
    fn share(
        &mut self,
        port: &PortName,
        wanted: Option<&FilterName>,
        hook: &mut Attached,
        resumed: &Ports,
    ) -> Result<(), PlaneError> {
        let runs = |name| self.running.get(name).is_some_and(|running| running.kernel.is_some());
        if let Some(name) = wanted.filter(|name| !runs(*name)) {
            let having = resumed.values().filter(|other| named(other) == Some(name));
            for other in having.filter_map(|other| other.hook.as_ref()) {
                let shared = Filter::of(other).map_err(|error| failed(name, &error))?;
                if let Some(filter) = shared {
                    return hook
                        .set_stage(StageChange::Filter(Some(&filter)))
                        .map_err(|error| failed(name, &error));
                }
            }
        }
        self.put(port, wanted, hook)
    }

    /// Like [`Filters::ensure`], but also makes hooks that drop all frames pass frames, and continues with the next
    /// port after an error. Returns the errors of all ports whose filter could not be installed.
    pub fn ensure_each(&mut self, ports: &mut Ports) -> Vec<PlaneError> {
        let hooks = ports.iter_mut().filter_map(|(port, running)| self.ensure_hook(port, running).err());
        let mut refused: Vec<PlaneError> = hooks.collect();
        refused.extend(ports.iter().filter_map(|(port, running)| self.serve(port, &running.wanted).err()));
        refused
    }
}
