//! Ports of kind `ring`: packet rings in memory.

use serde::Serialize;

use super::settings::KindSettings;
use crate::load::fields::{Fields, Findings, RING_BOUNDS};

/// Settings of a packet ring in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ring {
    /// Number of entries in the ring: a power of two, 64..=32768.
    pub size: u32,
}

impl Ring {
    /// Keys of `[port.NAME]` that are specific to this kind of port.
    pub(super) const KEYS: &[&str] = &["size"];

    pub(super) fn read(fields: &mut Fields<'_>, findings: &mut Findings) -> Self {
        Ring { size: fields.power_of_two("size", RING_BOUNDS, findings).unwrap_or(1024) }
    }
}

impl KindSettings for Ring {
    fn is_limited_to_a_frame(&self) -> bool {
        true
    }
}
