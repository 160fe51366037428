//! `trivium xdp load` and `unload`: custom XDP programs, which run on a port before the port's own
//! XDP program.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use hyper::Method;
use model::{OBJECT_LIMIT, ProgramChange};

use crate::args::{XdpLoad, XdpUnload};
use crate::client::{Client, quoted};
use crate::failure::Failure;

/// Reads the object file and makes the daemon load its XDP program before the port's own program.
///
/// # Errors
/// Returns an error if the file cannot be read or is too long, the daemon does not answer, or the
/// program is refused.
pub async fn load(client: &Client, args: &XdpLoad) -> Result<(), Failure> {
    let object = read(&args.file)?;
    let program = args.program.as_ref().map(|name| format!("?program={}", quoted(name))).unwrap_or_default();
    let path = format!("/v1/hooks/{}/program{program}", quoted(&args.port));
    let answer = client.request(Method::PUT, &path, "application/octet-stream", object.into()).await?;
    let change: ProgramChange = client.read(&answer.success()?)?;
    print!("{}", told(&change));
    Ok(())
}

/// Removes the custom program that runs before the port's own program.
///
/// # Errors
/// Returns an error if the daemon does not answer, or the port has no custom program.
pub async fn unload(client: &Client, args: &XdpUnload) -> Result<(), Failure> {
    let path = format!("/v1/hooks/{}/program", quoted(&args.port));
    let answer = client.request(Method::DELETE, &path, "", Vec::new().into()).await?;
    let change: ProgramChange = client.read(&answer.success()?)?;
    print!("{}", told(&change));
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |cause: String, fix: &str| Failure::new(path.display().to_string(), cause, fix);
    let unreadable = |error: std::io::Error| failed(error.to_string(), "name an object that clang has made");
    let mut object = Vec::new();
    let limit = u64::try_from(OBJECT_LIMIT).unwrap_or(u64::MAX);
    File::open(path).map_err(unreadable)?.take(limit + 1).read_to_end(&mut object).map_err(unreadable)?;
    if object.len() > OBJECT_LIMIT {
        let cause = format!("it is longer than {OBJECT_LIMIT} bytes");
        return Err(failed(cause, "leave its debug information out (`llvm-strip -g`)"));
    }
    Ok(object)
}

/// Formats the result of loading or unloading a custom program.
fn told(change: &ProgramChange) -> String {
    let before = |word: &str| change.before.as_ref().map_or_else(String::new, |name| format!("{word}{name}"));
    let Some(now) = &change.now else {
        return format!("{}: {}\n", change.port, before("no more in front: "));
    };
    let program = &now.program;
    let mut text = format!(
        "{}: {} {} is in front, {} instructions{}\n",
        change.port,
        program.name,
        program.id,
        program.instructions,
        before("; before: ")
    );
    // Writing to a string cannot fail.
    match &now.pins {
        Some(pins) => drop(writeln!(text, "  its maps are in {pins}; it outlives the daemon")),
        None => text.push_str("  it goes with the daemon, and its maps are pinned nowhere\n"),
    }
    if !now.goes_on {
        text.push_str("  it does not refer to trivium_next: the port receives nothing\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use model::{HookProgram, UserProgram};

    use super::*;

    #[test]
    fn changes_are_told() {
        let program =
            HookProgram { name: "mine".to_owned(), id: 9, instructions: 40, ..HookProgram::default() };
        let now = UserProgram { program, goes_on: true, pins: Some("/pins".to_owned()), maps: Vec::new() };
        let mut change = ProgramChange { port: "red".to_owned(), now: Some(now), before: None };
        let lines =
            "red: mine 9 is in front, 40 instructions\n  its maps are in /pins; it outlives the daemon\n";
        assert_eq!(told(&change), lines);
        change.before = Some("other".to_owned());
        change.now = change.now.map(|now| UserProgram { goes_on: false, pins: None, ..now });
        let text = told(&change);
        assert!(
            text.contains("40 instructions; before: other\n") && text.contains("receives nothing"),
            "{text}"
        );
        assert!(text.contains("goes with the daemon"), "{text}");
        let gone = ProgramChange { now: None, ..change };
        assert_eq!(told(&gone), "red: no more in front: other\n");
    }

    #[test]
    fn files_are_read_within_their_limit() {
        assert!(read(Path::new("/nobody/here")).unwrap_err().to_string().contains("/nobody/here"));
        let endless = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("longer than 4194304 bytes"), "{endless}");
    }
}
