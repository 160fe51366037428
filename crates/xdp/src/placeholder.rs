//! Placeholder programs, which run on ports until the ports get their own XDP programs.
//!
//! A process that opens many ports at the same time attaches one shared placeholder to all of them. The kernel waits
//! for an RCU grace period when it attaches a program that no other device runs, and it verifies each program that is
//! loaded. With a placeholder, the wait and the verification happen once for each port: when the port's own program
//! with all its stages replaces the placeholder. The verdict of a placeholder is `when_down` for all frames.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::object::{Opened, placeholder_object};
use crate::{Constants, Counter, Error};

/// Placeholder programs of a process. Ports with equal constants share one placeholder program.
/// Clones of the value share the programs.
#[derive(Debug, Clone, Default)]
pub struct Placeholders(Arc<Mutex<Vec<Placeholder>>>);

/// A loaded placeholder program.
#[derive(Debug)]
struct Placeholder {
    /// Name of the program in the BPF object.
    name: &'static str,
    constants: Constants,
    program: OwnedFd,
}

impl Placeholders {
    /// Returns the placeholder program with the name `name` and these constants. The program is loaded when it is first
    /// needed.
    pub(crate) fn program(&self, name: &'static str, constants: Constants) -> Result<OwnedFd, Error> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let suits = |known: &&Placeholder| known.name == name && known.constants == constants;
        let known = loaded.iter().find(suits).map(|known| known.program.try_clone());
        let program = match known {
            Some(program) => return program.map_err(not_duplicated),
            None => load(name, constants)?,
        };
        let duplicate = program.try_clone().map_err(not_duplicated)?;
        loaded.push(Placeholder { name, constants, program });
        Ok(duplicate)
    }
}

fn load(name: &'static str, constants: Constants) -> Result<OwnedFd, Error> {
    let counters = u32::try_from(Counter::ALL.len()).unwrap_or(u32::MAX);
    let mut opened = Opened::new(placeholder_object(), name)?;
    opened.set_constants(&constants.to_bytes(counters, false))?;
    opened.load()?.program()
}

fn not_duplicated(source: std::io::Error) -> Error {
    Error::Query { what: "a placeholder program", source }
}
