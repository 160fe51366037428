//! Custom program in front of a port's program. The custom program receives each frame first. The verdict of the custom
//! program is final, unless the custom program continues with the port's program by a tail call through the program
//! array `trivium_next`. The only slot of the array holds the port's program.
//!
//! ```text
//!   link --> custom program --verdict--> (final)
//!                  | bpf_tail_call(ctx, &trivium_next, 0)
//!                  v
//!            slot 0 --> the port's program: filter, function, steer
//! ```
//!
//! [`crate::Attached::set_user`] and [`crate::Attached::take_user`] replace the program of the link. While a
//! custom program is present, [`crate::Attached::swap`] replaces the program in the slot of the array. Each
//! replacement is atomic, so a frame is processed by either the old program or the new one.
//!
//! A tail call requires that both programs support multi-buffer frames, or that neither does. The kernel
//! empties the array when user space no longer refers to it. This module therefore keeps the array open, and
//! pins it on ports whose program outlives the process. A tail call into an empty slot has no effect, and the
//! custom program continues with its next statement.

mod error;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;
use libbpf_rs::{MapCore, MapType, ObjectBuilder, OpenObject, ProgramType};

pub use error::UserError;

use crate::object::errno_of;
use crate::sys::{self, MapKind, MapSpec};
use crate::{Error, ProgramInfo, TestRun, Verdict, log};

/// Name of the program array through which a custom program calls the port's program. A process that takes over a port
/// recognises a custom program by a map with this name.
pub(crate) const NEXT: &str = "trivium_next";
/// Name of the program array that is bound to a custom program whose code does not refer to `trivium_next`. Such a
/// program never calls the port's program.
const UNUSED: &str = "trivium_unused";
/// Maximum number of lines of the verifier's log that an error contains. The last lines are kept, because
/// they show the cause.
const LOG_LINES: usize = 40;
/// Maximum number of bytes of the verifier's log that an error contains.
const LOG_BYTES: usize = 8 << 10;
/// Maximum length of a map's pin name in bytes.
const PIN_NAME_MAX: usize = 64;

/// A custom program that is loaded into the kernel, with its maps.
#[derive(Debug)]
pub struct UserProgram {
    pub(crate) program: OwnedFd,
    pub(crate) id: u32,
    pub(crate) next: OwnedFd,
    /// Maps of the program, each with its pin name.
    pub(crate) maps: Vec<(String, OwnedFd)>,
    name: String,
    goes_on: bool,
    multi_buffer: bool,
}

impl UserProgram {
    /// Loads a custom program from a compiled BPF object, with maps of its own. `wanted` is the name of the program.
    /// With `None`, loads the only XDP program of the object. `multi_buffer` states whether the port's program supports
    /// multi-buffer frames. The program is not attached yet.
    ///
    /// # Errors
    /// Returns [`Error::User`], with the verifier's log if the kernel refuses the program, or [`Error::Map`].
    pub fn load(object: &[u8], wanted: Option<&str>, multi_buffer: bool) -> Result<UserProgram, Error> {
        let mut open = opened(object)?;
        let (name, takes_several) = choose(&mut open, wanted)?;
        if takes_several != multi_buffer {
            return Err(UserError::Buffers { program: name, multi_buffer: takes_several }.into());
        }
        let next = array(NEXT)?;
        for mut map in open.maps_mut() {
            // Pin paths of the object are ignored, because this crate chooses the pins and removes them.
            sys::forget_pin_path(&mut map).map_err(failed("unpin"))?;
            if map.name() == NEXT {
                let fits = map.map_type() == MapType::ProgArray
                    && (map.key_size(), map.value_size(), map.max_entries()) == (4, 4, 1);
                let reused =
                    if fits { map.reuse_fd(next.as_fd()) } else { return Err(UserError::Next.into()) };
                reused.map_err(|error| failed("reuse")(io::Error::from_raw_os_error(errno_of(&error))))?;
            }
        }
        let (loaded, said) = log::captured(|| open.load());
        let loaded = loaded.map_err(|error| UserError::Refused {
            program: name.clone(),
            source: io::Error::from_raw_os_error(refusal(&error, &said)),
            log: end_of(&said),
        })?;
        let lacking = Error::Object { object: "user", what: "the chosen program" };
        let program = loaded.progs().find(|program| program.name() == name.as_str()).ok_or(lacking)?;
        let program = program.as_fd().try_clone_to_owned().map_err(failed("duplicate"))?;
        let named = loaded.maps().map(|map| {
            let id = sys::map_info(map.as_fd()).map_err(failed("query"))?.id;
            Ok((id, map.name().to_string_lossy().into_owned()))
        });
        let named = named.collect::<Result<Vec<_>, Error>>()?;
        if let Some(user) = UserProgram::found(&program, multi_buffer, &named)? {
            return Ok(user);
        }
        // This program never continues with the port's program. An unused program array is bound to it nevertheless, so
        // that the port's program can be found from the custom program. The array stays open until `found` opens it,
        // because the kernel empties an array without users.
        let unused = array(UNUSED)?;
        sys::bind_map(program.as_fd(), unused.as_fd()).map_err(failed("bind"))?;
        let lacking = Error::Object { object: "user", what: UNUSED };
        UserProgram::found(&program, multi_buffer, &named)?.ok_or(lacking)
    }

    /// Returns `program` as a custom program with its maps. Returns `None` if the program is not a custom program.
    /// `named` holds the ids and full names of pinned maps, because the kernel truncates long names.
    fn found(
        program: &OwnedFd,
        multi_buffer: bool,
        named: &[(u32, String)],
    ) -> Result<Option<UserProgram>, Error> {
        let query = |source| Error::Query { what: "information about a user's program", source };
        let program = program.try_clone().map_err(failed("duplicate"))?;
        let info = sys::program_info(program.as_fd()).map_err(query)?;
        let mut found = None;
        let (mut maps, mut taken) = (Vec::new(), BTreeSet::new());
        for id in &info.maps {
            let map = sys::map_by_id(*id).map_err(query)?;
            let details = sys::map_details(map.as_fd()).map_err(query)?;
            if details.kind == ffi::BPF_MAP_TYPE_PROG_ARRAY && [NEXT, UNUSED].contains(&details.name.as_str())
            {
                found = Some((details.name == NEXT, map));
                continue;
            }
            let better = named.iter().find(|(named, _)| named == id).map(|(_, name)| name.as_str());
            maps.push((pin_name(better.unwrap_or(&details.name), &mut taken), map));
        }
        Ok(found.map(|(goes_on, next)| UserProgram {
            id: info.id,
            name: info.name,
            program,
            next,
            maps,
            goes_on,
            multi_buffer,
        }))
    }

    /// Takes over the custom program that a link runs. Returns `None` if the link's program is not a custom
    /// program.
    pub(crate) fn adopt(program: &OwnedFd, named: &[(u32, String)]) -> Result<Option<UserProgram>, Error> {
        // The caller then replaces this multi-buffer flag with the flag of the port's program.
        UserProgram::found(program, true, named)
    }

    pub(crate) fn with_buffers(self, multi_buffer: bool) -> UserProgram {
        UserProgram { multi_buffer, ..self }
    }

    /// Returns the name of the program in the kernel, which has up to 15 characters.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the program can continue with the port's program, because it refers to `trivium_next`. If the
    /// custom program cannot continue, no frame reaches the port's program.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Returns the kernel's information about the custom program, such as its id and number of instructions.
    ///
    /// # Errors
    /// Returns [`Error::Query`] if a query of the kernel fails.
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }

    /// Puts `program` into the tail call slot of the custom program. The custom program then continues with `program`.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        sys::map_update(self.next.as_fd(), &0_u32.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes())
    }

    /// Empties the tail call slot of the custom program. The caller must have detached the custom program before.
    pub(crate) fn lead_nowhere(&self) {
        // A slot that cannot be cleared is released with the array.
        let _ = sys::map_delete(self.next.as_fd(), &0_u32.to_ne_bytes());
    }

    /// Returns the program in the tail call slot of the custom program. Returns `None` if the slot is empty.
    pub(crate) fn leads_to(&self) -> Result<Option<OwnedFd>, Error> {
        let id = match sys::map_lookup::<4>(self.next.as_fd(), 0) {
            Ok(id) => u32::from_ne_bytes(id),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(source) => return Err(failed("read")(source)),
        };
        let query = |source| Error::Query { what: "the port's program behind a user's", source };
        sys::program_by_id(id).map(Some).map_err(query)
    }

    pub(crate) fn fits(&self, multi_buffer: bool) -> Result<(), Error> {
        if self.multi_buffer == multi_buffer {
            return Ok(());
        }
        Err(UserError::Buffers { program: self.name.clone(), multi_buffer: self.multi_buffer }.into())
    }

    /// Runs the custom program, and the program that it continues with, once on a frame. The frame is treated as
    /// received on queue 0 of a device without a name. No frame is transmitted, but the program may write to its maps.
    ///
    /// # Errors
    /// Returns [`Error::TestRun`] if the kernel refuses the test run.
    pub fn test_run(&self, frame: &[u8]) -> Result<TestRun, Error> {
        let request = sys::RunRequest { frame, ingress: None, repeat: 1, live_batch: None };
        let result = sys::run(self.program.as_fd(), request).map_err(|source| Error::TestRun {
            program: "of a user",
            length: frame.len(),
            source,
        })?;
        let verdict = Verdict::from_code(result.verdict);
        Ok(TestRun { verdict, frame: result.frame, nanoseconds: result.nanoseconds })
    }
}

fn failed(operation: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Map { map: NEXT, operation, source }
}

fn array(name: &'static str) -> Result<OwnedFd, Error> {
    let spec = MapSpec { name, kind: MapKind::Programs, key: 4, value: 4, entries: 1 };
    sys::map_create(spec, None).map_err(failed("create"))
}

fn opened(object: &[u8]) -> Result<OpenObject, Error> {
    // The copy has the alignment that ELF readers need.
    let object = object.to_vec();
    let open = || {
        let mut builder = ObjectBuilder::default();
        builder.name("user")?;
        builder.open_memory(&object)
    };
    let (opened, said) = log::captured(open);
    opened.map_err(|error| {
        let said = end_of(&said);
        UserError::Object { said: if said.is_empty() { error.to_string() } else { said } }.into()
    })
}

/// Selects the program `wanted` of the BPF object, or the object's only XDP program if `wanted` is `None`. Only the
/// selected program will be loaded. Returns the name of the program, and whether the program supports multi-buffer
/// frames.
fn choose(open: &mut OpenObject, wanted: Option<&str>) -> Result<(String, bool), Error> {
    struct Candidate {
        name: String,
        section: String,
        is_xdp: bool,
    }
    let candidates: Vec<Candidate> = open
        .progs()
        .map(|program| {
            let section = program.section().to_string_lossy().into_owned();
            let is_xdp =
                program.prog_type() == ProgramType::Xdp && ["xdp", "xdp.frags"].contains(&section.as_str());
            Candidate { name: program.name().to_string_lossy().into_owned(), section, is_xdp }
        })
        .collect();
    let others = || candidates.iter().map(|other| (other.name.clone(), other.section.clone())).collect();
    let of_xdp: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.is_xdp).collect();
    let chosen = match (wanted, of_xdp.as_slice()) {
        (Some(wanted), _) => candidates
            .iter()
            .find(|candidate| candidate.name == wanted)
            .ok_or_else(|| UserError::Unknown { wanted: wanted.to_owned(), others: others() })?,
        (None, []) => return Err(UserError::NoXdp { others: others() }.into()),
        (None, [only]) => only,
        (None, several) => {
            let names = several.iter().map(|candidate| candidate.name.clone()).collect();
            return Err(UserError::Several { names }.into());
        }
    };
    if !chosen.is_xdp {
        let (program, section) = (chosen.name.clone(), chosen.section.clone());
        return Err(UserError::Section { program, section }.into());
    }
    let chosen = (chosen.name.clone(), chosen.section == "xdp.frags");
    for mut program in open.progs_mut() {
        let is_it = program.name() == chosen.0.as_str();
        program.set_autoload(is_it);
    }
    Ok(chosen)
}

/// Returns the error number (errno) for a program that was not loaded. libbpf-rs does not distinguish a refusal by the
/// verifier from a missing privilege, so the messages of libbpf are examined.
fn refusal(error: &libbpf_rs::Error, said: &str) -> i32 {
    match errno_of(error) {
        libc::EPERM if !said.contains("-EPERM") => libc::EACCES,
        other => other,
    }
}

/// Returns the last lines of libbpf's messages, without the lines that mark the beginning and the end of the
/// verifier's log.
fn end_of(said: &str) -> String {
    let lines: Vec<&str> = said
        .lines()
        .map(|line| line.strip_prefix("libbpf: ").unwrap_or(line).trim_end())
        .filter(|line| {
            !line.is_empty() && !line.contains("-- BEGIN PROG LOAD") && !line.contains("-- END PROG LOAD")
        })
        .collect();
    let mut kept = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
    while kept.len() > 1 && kept.iter().map(|line| line.len() + 1).sum::<usize>() > LOG_BYTES {
        kept = &kept[1..];
    }
    let text = kept.join("\n");
    match text.char_indices().rev().nth(LOG_BYTES) {
        Some((at, _)) => text[at..].to_owned(),
        None => text,
    }
}

/// Returns a file name for the pin of a map. The BPF file system accepts no dots, but a map name in the object
/// may contain any character. `taken` holds the file names in use.
fn pin_name(map: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let name: String = map.chars().map(plain).take(PIN_NAME_MAX).collect();
    let name = if name.is_empty() { "map".to_owned() } else { name };
    let mut free = name.clone();
    let mut number = 2;
    while !taken.insert(free.clone()) {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_have_plain_names_that_differ() {
        let mut taken = BTreeSet::new();
        let mut name = |map: &str| pin_name(map, &mut taken);
        assert_eq!(name("packets"), "packets");
        assert_eq!(name("user.bss"), "user_bss");
        assert_eq!(name("user/bss"), "user_bss-2");
        assert_eq!(name(".."), "__");
        assert_eq!(name(""), "map");
        assert_eq!(name(&"x".repeat(300)).len(), PIN_NAME_MAX);
    }

    #[test]
    fn the_end_of_a_log_is_kept() {
        let said: String = (0..10_000).map(|line| format!("libbpf: line {line}\n")).collect();
        let end = end_of(&format!("{said}-- END PROG LOAD LOG --\n"));
        assert_eq!(end.lines().count(), LOG_LINES);
        assert!(end.ends_with("line 9999"), "{end}");
        assert!(end_of(&"ü".repeat(1 << 20)).chars().count() <= LOG_BYTES + 1);
        assert!(end_of(&format!("{}\nlast", "x".repeat(1 << 20))).ends_with("last"));
        assert_eq!(end_of(""), "");
    }
}
