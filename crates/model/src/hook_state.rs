//! State of ports' hooks: which program stands on a device, what it is made of, and what it has counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A port's hook as it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookState {
    /// The port.
    pub port: String,
    /// Its device in the kernel.
    pub device: String,
    /// The device's namespace; absent: the daemon's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The device's number in its namespace.
    pub ifindex: u32,
    /// The number by which the kernel knows the namespace (its inode); 0 when the namespace has gone.
    pub netns: u64,
    /// The device's driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// What the driver can do with XDP, in the kernel's words; absent where it does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// Where the program runs: `native`, `generic` or `offload`.
    pub mode: String,
    /// What was refused before this mode was found, with the driver's reasons.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// Whether it takes frames in several buffers.
    pub multi_buffer: bool,
    /// Who owns what the port receives: `bridged` or `routed`.
    pub owner: String,
    /// The stages that are in the program, in the order in which a frame meets them.
    pub stages: Vec<String>,
    /// The filter that it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// What says where frames go besides the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steer: Option<String>,
    /// What becomes of a frame that no socket wants: `pass` or `drop`.
    pub when_down: String,
    /// Where it is pinned; absent: it goes with the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<String>,
    /// The kernel's id of the link that holds it.
    pub link: u32,
    /// A user's own program in front of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_program: Option<UserProgram>,
    /// Its program; absent when the device has gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<HookProgram>,
    /// The maps that the program uses.
    #[serde(default)]
    pub maps: Vec<HookMap>,
    /// Frames by their way out of the program, since the port's maps were made.
    pub counters: BTreeMap<String, u64>,
    /// What was measured for this answer, if that was asked for: of both programs together where a user's is in front.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<HookRuns>,
}

/// The program of a hook.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookProgram {
    /// The kernel's id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Hash of its instructions, as `bpftool` prints it.
    pub tag: String,
    /// Instructions that stay after the verifier has removed what is never reached.
    pub instructions: u32,
    /// Instructions that the verifier walked: what its budget of a million counts.
    pub verified_instructions: u32,
    /// Bytes of machine code; 0: it is interpreted.
    pub jited_bytes: u32,
    /// Runs while somebody had the kernel count them.
    pub runs: u64,
    /// Nanoseconds of these.
    pub run_time_ns: u64,
}

/// Longest object that a user's program can be in, in bytes.
pub const OBJECT_LIMIT: usize = 4 << 20;

/// A user's own program in front of a port's: its verdict is final unless it goes on with the port's.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserProgram {
    /// What the kernel made of it.
    pub program: HookProgram,
    /// Whether it refers to `trivium_next`; if not, no frame reaches the port's own program.
    pub goes_on: bool,
    /// Where its maps are pinned; absent: nowhere, it goes with the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<String>,
    /// The maps that it uses.
    #[serde(default)]
    pub maps: Vec<HookMap>,
}

/// What stands in front of a port's program after a change, and what stood there before.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgramChange {
    /// The port.
    pub port: String,
    /// What stands there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<UserProgram>,
    /// Name of what stood there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// A map of a hook's program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookMap {
    /// The kernel's id.
    pub id: u32,
    /// Its name, up to 15 characters.
    pub name: String,
    /// Its type, as `bpftool` names it.
    pub kind: String,
    /// Elements that it has room for; bytes of a ring buffer.
    pub max_entries: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Bytes of the kernel's memory, where it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Runs of a program within a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookRuns {
    /// Nanoseconds that were looked at.
    pub elapsed_ns: u64,
    /// Runs in that time.
    pub runs: u64,
    /// Nanoseconds that they took.
    pub run_time_ns: u64,
}

impl HookRuns {
    /// Runs per second.
    pub fn per_second(&self) -> u64 {
        scaled(self.runs, 1_000_000_000, self.elapsed_ns)
    }

    /// Mean nanoseconds of a run; `None` without one.
    pub fn ns_per_run(&self) -> Option<u64> {
        (self.runs > 0).then(|| self.run_time_ns / self.runs)
    }
}

fn scaled(count: u64, by: u64, over: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(by) / u128::from(over.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_per_second() {
        let runs = HookRuns { elapsed_ns: 500_000_000, runs: 1000, run_time_ns: 45_500 };
        assert_eq!((runs.per_second(), runs.ns_per_run()), (2000, Some(45)));
        assert_eq!(HookRuns::default().ns_per_run(), None);
        assert_eq!(HookRuns { runs: u64::MAX, ..runs }.per_second(), u64::MAX);
    }
}
