//! Ports of kind `null`, which have no settings of their own.

use super::settings::KindSettings;

/// Settings of a port that receives no packets and discards all packets that are sent to it.
pub struct Null;

impl KindSettings for Null {
    fn is_limited_to_a_frame(&self) -> bool {
        true
    }
}
