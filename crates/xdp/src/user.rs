//! A user's own program in front of a port's: it meets each frame first, and its verdict is final unless it goes on with
//! ours by a tail call through the program array `trivium_next`, whose only slot holds the port's program.
//!
//! ```text
//!   link --> user's program --verdict--> (final)
//!                  | bpf_tail_call(ctx, &trivium_next, 0)
//!                  v
//!            slot 0 --> the port's program: filter, room, steer
//! ```
//!
//! [`Attached::set_user`] and [`Attached::take_user`] exchange what the link runs; while a user's program is there,
//! [`Attached::swap`] exchanges what the slot holds. Each of both is one step: a frame meets the old program or the new one. A
//! tail call wants both to take frames in several buffers, or neither. The kernel empties the array when nobody in user space
//! refers to it any more, so it is held here and, on ports that outlive the process, pinned. A call into the empty slot falls
//! through to what the user's program then returns.

mod error;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::libbpf_sys as ffi;
use libbpf_rs::{MapCore, MapType, ObjectBuilder, OpenObject, ProgramType};

pub use error::UserError;

use crate::object::errno_of;
use crate::program::TestRun;
use crate::sys::{self, MapKind, MapSpec};
use crate::{Attached, Error, PinPath, ProgramInfo, Verdict, log};

/// The map by which a user's program goes on. The kernel's name of it tells a process that takes over what it finds.
pub(crate) const NEXT: &str = "trivium_next";
/// Its name where the program does not refer to it: no frame ever gets further.
const UNUSED: &str = "trivium_unused";
/// Lines of the verifier's log that are kept: its end says what was wrong.
const LOG_LINES: usize = 40;
/// Bytes of these.
const LOG_BYTES: usize = 8 << 10;
/// Longest name of a map's pin.
const PIN_NAME_MAX: usize = 64;

/// A user's program in the kernel, with its maps.
#[derive(Debug)]
pub struct UserProgram {
    pub(crate) program: OwnedFd,
    pub(crate) id: u32,
    pub(crate) next: OwnedFd,
    /// The maps that it refers to, by the names of their pins.
    pub(crate) maps: Vec<(String, OwnedFd)>,
    name: String,
    goes_on: bool,
    multi_buffer: bool,
}

impl UserProgram {
    /// Takes a program out of a compiled object, with maps of its own: the one of this name, or the only XDP program that there
    /// is. `multi_buffer` says whether the port's program takes frames in several buffers. It stands nowhere yet.
    ///
    /// # Errors
    /// [`Error::User`], with the verifier's log where the kernel refuses it; [`Error::Map`].
    pub fn load(object: &[u8], wanted: Option<&str>, multi_buffer: bool) -> Result<UserProgram, Error> {
        let mut open = opened(object)?;
        let (name, takes_several) = choose(&mut open, wanted)?;
        if takes_several != multi_buffer {
            return Err(UserError::Buffers { program: name, multi_buffer: takes_several }.into());
        }
        let next = array(NEXT)?;
        for mut map in open.maps_mut() {
            // What it is pinned as is ours to say, and goes with it.
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
        // It never goes on. An array that is bound to it leads from it to the port's program all the same.
        // It is held until it is found: the kernel would empty it, later.
        let unused = array(UNUSED)?;
        sys::bind_map(program.as_fd(), unused.as_fd()).map_err(failed("bind"))?;
        let lacking = Error::Object { object: "user", what: UNUSED };
        UserProgram::found(&program, multi_buffer, &named)?.ok_or(lacking)
    }

    /// A program that is in the kernel, if it is a user's. `named` are ids of maps with names that are better than the kernel's.
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

    /// What stands on a link, if that is a user's program.
    pub(crate) fn adopt(program: &OwnedFd, pin: Option<&PinPath>) -> Result<Option<UserProgram>, Error> {
        // Whether it takes frames in several buffers is what the port's program behind it does.
        UserProgram::found(program, true, &pin.map_or_else(Vec::new, PinPath::user_maps))
    }

    pub(crate) fn with_buffers(self, multi_buffer: bool) -> UserProgram {
        UserProgram { multi_buffer, ..self }
    }

    /// Up to 15 characters of its name, as the kernel knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it refers to `trivium_next`; if not, no frame reaches the port's own program.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// What the kernel made of it.
    ///
    /// # Errors
    /// [`Error::Query`].
    pub fn info(&self) -> Result<ProgramInfo, Error> {
        ProgramInfo::read(self.program.as_fd())
    }

    /// Lets its tail call lead to this program.
    pub(crate) fn lead_to(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        sys::map_update(self.next.as_fd(), &0_u32.to_ne_bytes(), &program.as_raw_fd().to_ne_bytes())
    }

    /// Lets go of the port's program; nothing runs the user's any more.
    pub(crate) fn lead_nowhere(&self) {
        // What stays in the slot goes with it.
        let _ = sys::map_delete(self.next.as_fd(), &0_u32.to_ne_bytes());
    }

    /// The program that its tail call leads to; `None`: the slot is empty.
    pub(crate) fn leads_to(&self) -> Result<Option<OwnedFd>, Error> {
        let id = match sys::map_lookup::<4>(self.next.as_fd(), 0) {
            Ok(id) => u32::from_ne_bytes(id),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(source) => return Err(failed("read")(source)),
        };
        let query = |source| Error::Query { what: "the port's program behind a user's", source };
        sys::program_by_id(id).map(Some).map_err(query)
    }

    pub(crate) fn fits(&self, port: &Attached) -> Result<(), Error> {
        if self.multi_buffer == port.multi_buffer() {
            return Ok(());
        }
        Err(UserError::Buffers { program: self.name.clone(), multi_buffer: self.multi_buffer }.into())
    }

    /// Runs it once on a frame, as received on queue 0 of a device without name, and what it goes on with. Nothing is sent, but
    /// its maps are its own.
    ///
    /// # Errors
    /// [`Error::TestRun`].
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
    // A copy of our own is aligned as ELF readers want it.
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

/// Picks the program that alone will be loaded; its name, and whether it takes frames in several buffers.
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

/// The error's number. libbpf-rs does not tell a verifier's refusal from a missing privilege; libbpf's own words do.
fn refusal(error: &libbpf_rs::Error, said: &str) -> i32 {
    match errno_of(error) {
        libc::EPERM if !said.contains("-EPERM") => libc::EACCES,
        other => other,
    }
}

/// The end of what was said, without what says nothing to the reader.
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

/// A file's name for a map's pin: the BPF file system takes no dots, and an object may say anything.
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
