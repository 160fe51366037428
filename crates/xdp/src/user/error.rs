//! Reasons why a custom program cannot run in front of a port's program. The error message shows the cause,
//! and [`UserError::advice`] returns the next step.

use std::io;

/// Reason why a custom program cannot run in front of a port's program.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// libbpf cannot read the BPF object of the custom program.
    #[error("the file is no BPF object that can be loaded: {said}")]
    Object {
        /// Error message of libbpf for the BPF object.
        said: String,
    },
    /// The BPF object has no XDP program.
    #[error("the object has no XDP program{}", there_is(others))]
    NoXdp {
        /// Names of the other programs in the object, each with its section.
        others: Vec<(String, String)>,
    },
    /// The BPF object has no program of the requested name.
    #[error("the object has no program \"{wanted}\"{}", there_is(others))]
    Unknown {
        /// Name of the program that was requested.
        wanted: String,
        /// Names of the programs in the object, each with its section.
        others: Vec<(String, String)>,
    },
    /// The BPF object has several XDP programs, and no program name was given.
    #[error("the object has several XDP programs: {}", names.join(", "))]
    Several {
        /// Names of the XDP programs in the object.
        names: Vec<String>,
    },
    /// The requested program is in a section of the object that does not hold XDP programs for devices.
    #[error("program {program} is in section \"{section}\": it is not for a device's driver hook")]
    Section {
        /// Name of the program that was requested.
        program: String,
        /// Name of the section that contains the program.
        section: String,
    },
    /// The custom program and the port's program differ in multi-buffer support, so a tail call between them
    /// is not possible.
    #[error(
        "program {program} takes frames {}, and the program of the port frames {}: it could not go on there",
        buffers(*multi_buffer),
        buffers(!*multi_buffer)
    )]
    Buffers {
        /// Name of the custom program.
        program: String,
        /// Whether the custom program supports multi-buffer frames.
        multi_buffer: bool,
    },
    /// The BPF object declares the map `trivium_next` with a type other than program array, or with more than one slot.
    #[error("the map trivium_next is declared as something else than an array of one program")]
    Next,
    /// The kernel refused the program or one of its maps.
    #[error("the kernel refused program {program}: {source}{}", shown(log))]
    Refused {
        /// Name of the custom program.
        program: String,
        /// Error that the kernel returned for the load.
        source: io::Error,
        /// Last lines of the messages of the verifier and libbpf.
        log: String,
    },
}

impl UserError {
    /// Returns advice on how to correct the error.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            UserError::Object { .. } => {
                "compile it with `clang -O2 -g -target bpf -c`, for a machine of this byte order".to_owned()
            }
            UserError::NoXdp { .. } | UserError::Section { .. } => {
                "put a program for this port into SEC(\"xdp.frags\") or SEC(\"xdp\")".to_owned()
            }
            UserError::Unknown { .. } => "name one that it has with --program".to_owned(),
            UserError::Several { .. } => "say which one with --program".to_owned(),
            UserError::Buffers { multi_buffer: true, .. } => {
                "build it with SEC(\"xdp\"): this port's driver takes frames in one buffer only".to_owned()
            }
            UserError::Buffers { multi_buffer: false, .. } => "build it with SEC(\"xdp.frags\")".to_owned(),
            UserError::Next => "include examples/xdp/trivium.h, which declares it".to_owned(),
            UserError::Refused { source, .. } => match source.raw_os_error() {
                Some(libc::EPERM) => "run the daemon as root, or with CAP_BPF and CAP_NET_ADMIN".to_owned(),
                Some(libc::ENOMEM) => "give it smaller maps, or free memory".to_owned(),
                _ => "correct what the last lines of the log name".to_owned(),
            },
        }
    }
}

fn buffers(several: bool) -> &'static str {
    if several { "in several buffers (SEC(\"xdp.frags\"))" } else { "in one buffer only (SEC(\"xdp\"))" }
}

fn there_is(programs: &[(String, String)]) -> String {
    let list: Vec<String> =
        programs.iter().map(|(name, section)| format!("{name} in section \"{section}\"")).collect();
    if list.is_empty() { String::new() } else { format!("; it has {}", list.join(", ")) }
}

fn shown(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}\n") }
}
