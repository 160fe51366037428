//! Ports of kind `pcap`: capture files.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::settings::KindSettings;
use crate::Cause;
use crate::load::fields::{Fields, Findings};

/// Settings of a port that reads or writes capture files. At least one of the fields `read` and `write` is
/// set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Pcap {
    /// Path of the file from which packets are received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<PathBuf>,
    /// Path of the file to which transmitted packets are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<PathBuf>,
    /// Whether reading restarts at the end of the file (`loop`).
    // Without a file to read, `loop` and `timing` must not be written, because loading would reject them.
    #[serde(rename = "loop", skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
    /// Timing of the packets that are received from the file.
    #[serde(skip_serializing_if = "PcapTiming::is_default")]
    pub timing: PcapTiming,
}

/// Timing of packets that are received from a capture file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PcapTiming {
    /// Receives the packets at the intervals that the timestamps in the file specify.
    File,
    /// Receives the packets as fast as they are processed.
    FlatOut,
}

impl PcapTiming {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_default(&self) -> bool {
        *self == PcapTiming::File
    }
}

impl Pcap {
    /// Keys of `[port.NAME]` that are specific to this kind of port.
    pub(super) const KEYS: &[&str] = &["read", "write", "loop", "timing"];

    pub(super) fn read(fields: &mut Fields<'_>, findings: &mut Findings) -> Self {
        let pcap = Pcap {
            read: fields.file("read", findings),
            write: fields.file("write", findings),
            repeat: fields.flag("loop", findings).unwrap_or(false),
            timing: fields
                .word("timing", &["file", "flat-out"], &[PcapTiming::File, PcapTiming::FlatOut], findings)
                .unwrap_or(PcapTiming::File),
        };
        if !fields.has("read") && !fields.has("write") {
            findings.add(fields.place, fields.object.clone(), Cause::NothingToDo);
        }
        for key in ["loop", "timing"] {
            if fields.has(key) && !fields.has("read") {
                findings.add(
                    fields.place_of(key),
                    fields.path(key),
                    Cause::NeedsOther { key, needs: "read" },
                );
            }
        }
        pcap
    }
}

impl KindSettings for Pcap {
    fn files(&self) -> Vec<(&'static str, &Path)> {
        let files = [("read", &self.read), ("write", &self.write)];
        files.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?))).collect()
    }

    fn is_limited_to_a_frame(&self) -> bool {
        true
    }
}
