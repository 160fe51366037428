//! State of the hooks of ports. A hook is the XDP program that the daemon attaches to a port's device, with its stages,
//! maps and counters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// State of the hook (XDP program) of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookState {
    /// Name of the port to which the hook belongs.
    pub port: String,
    /// Name of the kernel device to which the hook is attached.
    pub device: String,
    /// Namespace of the device. Absent: the daemon's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Interface index of the device in its namespace.
    pub ifindex: u32,
    /// Inode number by which the kernel identifies the network namespace. 0 if the namespace no longer
    /// exists.
    pub netns: u64,
    /// Name of the kernel driver of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// XDP features of the driver, with the kernel's names. Absent if the driver does not report features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<Vec<String>>,
    /// Attachment mode of the program: `native`, `generic` or `offload`.
    pub mode: String,
    /// Attachment modes that the driver refused before the current mode was used, each with the reason of the
    /// driver.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// Whether the program accepts frames that span several buffers (XDP multi-buffer).
    pub multi_buffer: bool,
    /// Whether a bridge or a router of the daemon processes the packets of the port: `bridged` or `routed`. A port is
    /// `closed` while its hook drops all frames, because its filter is not in place yet.
    pub owner: String,
    /// Stages of the XDP program, in the order of their execution.
    pub stages: Vec<String>,
    /// Name of the filter that the hook applies to received packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Name of the steering policy that the hook applies.
    #[serde(alias = "steer", default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<String>,
    /// Handling of frames that no AF_XDP socket accepts: `pass` or `drop`.
    pub when_down: String,
    /// BPF file system path where the hook is pinned. Absent if the hook is not pinned and is removed when the daemon
    /// ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<String>,
    /// Kernel ID of the BPF link that attaches the hook's program to the device.
    pub link: u32,
    /// Custom program that runs in front of the hook's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_program: Option<UserProgram>,
    /// Program of the hook. Absent if the device no longer exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<HookProgram>,
    /// BPF maps that the hook's program uses.
    #[serde(default)]
    pub maps: Vec<HookMap>,
    /// Frame counters by name, which count since the BPF maps of the port were created. Each possible result of the
    /// hook's program has one counter.
    pub counters: BTreeMap<String, u64>,
    /// Run-time measurement of the hook. Absent if the client did not request it. If a custom program is attached, the
    /// measurement covers both the custom program and the hook's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<HookRuns>,
}

/// Properties of a BPF program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookProgram {
    /// Kernel ID of the BPF program.
    pub id: u32,
    /// Name of the BPF program.
    pub name: String,
    /// Hash of the program's instructions, in the form that `bpftool` prints.
    pub tag: String,
    /// Number of instructions of the program after the verifier has removed unreachable
    /// instructions.
    pub instructions: u32,
    /// Number of instructions that the verifier processed. The limit of the kernel is one million.
    pub verified_instructions: u32,
    /// Size of the JIT-compiled machine code in bytes. 0 if the program is interpreted.
    pub jited_bytes: u32,
    /// Number of runs while run-time statistics of the kernel were enabled.
    pub runs: u64,
    /// Total duration of the runs that `runs` counts, in nanoseconds.
    pub run_time_ns: u64,
}

/// Maximum size of the object file of a custom program, in bytes.
pub const OBJECT_LIMIT: usize = 4 << 20;

/// A custom XDP program that runs in front of the program of a port. The verdict of the custom program is final unless
/// the custom program calls the program of the port by a tail call.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserProgram {
    /// Properties of the custom program in the kernel.
    pub program: HookProgram,
    /// Whether the custom program refers to `trivium_next`, through which it calls the program of the port. If not, no
    /// frame reaches the program of the port.
    pub goes_on: bool,
    /// BPF file system path where the maps of the custom program are pinned. Absent if the maps are removed
    /// when the daemon ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<String>,
    /// BPF maps that the custom program uses.
    #[serde(default)]
    pub maps: Vec<HookMap>,
}

/// Result of a change of the custom XDP program of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ProgramChange {
    /// Name of the port.
    pub port: String,
    /// Custom program after the change. Absent if the port has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<UserProgram>,
    /// Name of the custom program before the change. Absent if the port had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// Properties of a BPF map of a hook's program.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookMap {
    /// Kernel ID of the BPF map.
    pub id: u32,
    /// Name of the BPF map, up to 15 characters.
    pub name: String,
    /// Type of the BPF map, as named by `bpftool`.
    pub kind: String,
    /// Maximum number of elements. For a ring buffer, its size in bytes.
    pub max_entries: u32,
    /// Size of one key of the BPF map in bytes.
    pub key_size: u32,
    /// Size of one value of the BPF map in bytes.
    pub value_size: u32,
    /// Kernel memory of the map in bytes. Absent if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Number and duration of the runs of a program within a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HookRuns {
    /// Length of the measurement period in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of runs of the program in the period.
    pub runs: u64,
    /// Total duration of the runs in the period, in nanoseconds.
    pub run_time_ns: u64,
}

impl HookRuns {
    /// Returns the number of runs of the program per second.
    pub fn per_second(&self) -> u64 {
        scaled(self.runs, 1_000_000_000, self.elapsed_ns)
    }

    /// Returns the mean duration of a run in nanoseconds. Returns `None` if there were no runs.
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
