//! Attribution of samples and drops to rules and ports. Rule slots refer to the filter as it is when the
//! samples are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use control::{FailureKind, PlaneError};
use model::FilterAction;
use xdp::filter::{Filter, Sample, Samples};

use super::{Filters, Ports, Running, failed, named, object};

/// Samples of one filter, claimed by one client.
pub struct Followed {
    /// Ring of the filter's samples.
    pub samples: Samples,
    id: u32,
    place: Arc<AtomicBool>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.place.store(false, Ordering::Release);
    }
}

/// Origin of a sample.
pub struct Taken {
    /// Name of the rule. Empty if the rule is gone.
    pub rule: String,
    /// Ports that may have received the sample. Several only if the filter has ports with equal ifindex in
    /// different namespaces.
    pub ports: Vec<String>,
}

impl Filters {
    /// Claims the samples of a filter.
    ///
    /// # Errors
    /// If there is no such filter, none of its rules samples, no hook has it, or another client follows it.
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

    /// Returns the origin of a sample. Returns `None` if the filter has been replaced or is gone.
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

    /// Returns the filter in a port's hook.
    pub fn in_hook(&self, port: &Running) -> Option<&Filter> {
        Some(&self.running.get(named(port)?)?.kernel.as_ref()?.filter)
    }

    /// Returns whether the filter is still the one that is followed.
    pub fn still(&self, name: &str, followed: &Followed) -> bool {
        let kernel = self.running.get(name).and_then(|running| running.kernel.as_ref());
        kernel.is_some_and(|kernel| kernel.filter.id().ok() == Some(followed.id))
    }
}
