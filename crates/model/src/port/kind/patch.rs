//! Ports of kind `patch`: two ports of the daemon that a virtual wire connects.

use serde::Serialize;

use super::settings::{KindSettings, OtherPort, Surroundings};
use crate::load::fields::{Fields, Findings};
use crate::{Cause, PortName};

/// Settings of a patch port: one of two ports of the daemon that a virtual wire connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Patch {
    /// Name of the patch port at the other side of the wire. This port is down while the peer does
    /// not exist.
    pub peer: PortName,
}

impl Patch {
    /// Keys of `[port.NAME]` that are specific to this kind of port.
    pub(super) const KEYS: &[&str] = &["peer"];

    pub(super) fn read(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Self> {
        if !fields.has("peer") {
            fields.missing("peer", "peer = \"patch1\"", findings);
        }
        let bad = |text, source| Cause::BadName { text, what: "port", source };
        Some(Patch { peer: fields.parsed("peer", bad, findings)? })
    }

    /// Returns the reason why the port cannot be connected to its peer. A missing peer is not a
    /// problem, because the peer can be added later.
    fn peer_cause(&self, port: &Surroundings<'_>) -> Option<Cause> {
        if self.peer == *port.name {
            return Some(Cause::PatchToItself);
        }
        let peer = self.peer.to_string();
        match (port.other)(&self.peer)? {
            OtherPort { patch_peer: Some(other), .. } if other == port.name => None,
            OtherPort { patch_peer: Some(other), .. } => {
                Some(Cause::PeerTaken { peer, other: other.to_string() })
            }
            OtherPort { kind, .. } => Some(Cause::PeerNoPatch { peer, kind }),
        }
    }
}

impl KindSettings for Patch {
    fn patch_peer(&self) -> Option<&PortName> {
        Some(&self.peer)
    }

    fn changes_live(&self, key: &str) -> bool {
        key == "peer"
    }

    fn check(&self, port: &Surroundings<'_>) -> Vec<(&'static str, Cause)> {
        let mut causes = Vec::new();
        causes.extend(self.peer_cause(port).map(|cause| ("peer", cause)));
        if port.software_rss {
            causes.push(("software_rss", Cause::PatchSoftwareRss));
        }
        causes
    }
}
