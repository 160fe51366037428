//! Finds the filter rule that sampled or dropped a packet, and the ports that may have received the packet. The rule
//! numbers in samples are interpreted according to the rules that the filter has when the samples are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::{FailureKind, PlaneError};
use model::FilterAction;
use xdp::filter::{Filter, Sample, Samples};

use super::{Filters, Ports, Running, failed, named, object};

/// Access of a client to the packet samples of one filter. Only one client at a time reads the samples of a filter.
pub struct Followed {
    /// BPF ring buffer into which the kernel writes the filter's samples.
    pub samples: Samples,
    id: u32,
    place: Arc<AtomicBool>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.place.store(false, Ordering::Release);
    }
}

/// Filter rule that has sampled a packet, and ports that may have received the packet.
pub struct Taken {
    /// Name of the rule that has sampled the packet. Empty if the rule has been removed.
    pub rule: String,
    /// Names of the ports that may have received the sampled packet. There are several names only if ports
    /// with this filter have equal ifindexes in different namespaces.
    pub ports: Vec<String>,
}

impl Filters {
    /// Reserves the samples of a filter for one client, which reads them through the returned value.
    ///
    /// # Errors
    /// Returns an error if there is no such filter, if none of its rules samples packets, if the filter is in no hook,
    /// or if another client already reads the filter's samples.
    pub fn follow(&self, name: &str) -> Result<Followed, PlaneError> {
        let missing = || {
            let fix = "see the names with `trivium show filters`";
            PlaneError::not_found(format!("filter.{name}"), "there is no such filter", fix)
        };
        let (name, running) = self.running.get_key_value(name).ok_or_else(missing)?;
        let refused = |kind, cause: &str, fix: &str| PlaneError {
            kind,
            object: object(name),
            cause: cause.to_owned(),
            fix: fix.to_owned(),
        };
        let rules = &running.definition.wanted.rules;
        if !rules.iter().any(|rule| matches!(rule.action, FilterAction::Sample(_))) {
            let (cause, fix) =
                ("none of its rules samples", "give it a rule with `action = \"sample\"` and `one_in`");
            return Err(refused(FailureKind::Invalid, cause, fix));
        }
        let Some(kernel) = &running.kernel else {
            return Err(refused(
                FailureKind::Invalid,
                "no port's hook has it",
                "name it in a port's `filter`",
            ));
        };
        let id = kernel.filter.id().map_err(|error| failed(name, &error))?;
        if kernel.followed.swap(true, Ordering::AcqRel) {
            let (cause, fix) = ("another client reads its samples", "wait until that client has ended");
            return Err(refused(FailureKind::Busy, cause, fix));
        }
        Ok(Followed { samples: kernel.filter.samples(), id, place: Arc::clone(&kernel.followed) })
    }

    /// Returns the rule that has sampled a packet, and the ports that may have received the packet. Returns `None` if
    /// the filter has been replaced or removed.
    pub fn taken(&self, name: &str, followed: &Followed, sample: &Sample, ports: &Ports) -> Option<Taken> {
        let (name, running) = self.running.get_key_value(name)?;
        let filter =
            &running.kernel.as_ref().filter(|kernel| kernel.filter.id().ok() == Some(followed.id))?.filter;
        let here = ports.iter().filter(|(_, running)| {
            named(running) == Some(name)
                && running.hook.as_ref().is_some_and(|hook| hook.ifindex() == sample.ifindex)
        });
        Some(Taken {
            rule: filter.rule_at(sample.slot).unwrap_or_default().to_owned(),
            ports: here.map(|(port, _)| port.to_string()).collect(),
        })
    }

    /// Returns the filter that is installed in a port's hook. Returns `None` if the hook has no filter.
    pub fn in_hook(&self, port: &Running) -> Option<&Filter> {
        Some(&self.running.get(named(port)?)?.kernel.as_ref()?.filter)
    }

    /// Returns whether the filter with this name is still the filter whose samples the client
    /// reads.
    pub fn still(&self, name: &str, followed: &Followed) -> bool {
        let kernel = self.running.get(name).and_then(|running| running.kernel.as_ref());
        kernel.is_some_and(|kernel| kernel.filter.id().ok() == Some(followed.id))
    }
}
