//! Why a user's program is not put in front of a port's. The message is the cause, [`UserError::advice`] the next step.

use std::io;

/// See the module documentation.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// libbpf cannot read it.
    #[error("the file is no BPF object that can be loaded: {said}")]
    Object {
        /// In libbpf's words.
        said: String,
    },
    /// It has other programs, or none.
    #[error("the object has no XDP program{}", there_is(others))]
    NoXdp {
        /// Its programs with their sections.
        others: Vec<(String, String)>,
    },
    /// No program has the name that was asked for.
    #[error("the object has no program \"{wanted}\"{}", there_is(others))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// Its programs with their sections.
        others: Vec<(String, String)>,
    },
    /// It has to be said which one is meant.
    #[error("the object has several XDP programs: {}", names.join(", "))]
    Several {
        /// Their names.
        names: Vec<String>,
    },
    /// The program that was asked for belongs elsewhere.
    #[error("program {program} is in section \"{section}\": it is not for a device's driver hook")]
    Section {
        /// Name of the program.
        program: String,
        /// Its section.
        section: String,
    },
    /// A tail call wants both to be alike.
    #[error(
        "program {program} takes frames {}, and the program of the port frames {}: it could not go on there",
        buffers(*multi_buffer),
        buffers(!*multi_buffer)
    )]
    Buffers {
        /// Name of the program.
        program: String,
        /// Whether it is the one that takes frames in several buffers.
        multi_buffer: bool,
    },
    /// The map by which it goes on is declared otherwise.
    #[error("the map trivium_next is declared as something else than an array of one program")]
    Next,
    /// The kernel refused the program or one of its maps.
    #[error("the kernel refused program {program}: {source}{}", shown(log))]
    Refused {
        /// Name of the program.
        program: String,
        /// What the kernel answered.
        source: io::Error,
        /// The end of what the verifier and libbpf had to say.
        log: String,
    },
}

impl UserError {
    /// What to do about it.
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
