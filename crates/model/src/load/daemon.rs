//! Reads `[daemon]`, `[engine]`, `[memory]` and `[ovsdb]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::fields::{Fields, Findings, named_in, number_in, table_of};
use super::tree::{Node, Value};
use crate::{
    Cause, Daemon, Engine, EngineMode, HugePages, Memory, Ovsdb, PortName, Scope, Tcp, Token, VlogSpec,
};

/// Maximum number of directories in `daemon.files`, and maximum number of tokens of the API.
const LIST_LIMIT: usize = 64;

pub(super) fn read_daemon(node: &Node, findings: &mut Findings) -> Daemon {
    let default = Daemon::default();
    let Some(mut fields) = table_of("daemon", node, findings) else { return default };
    let tcp = fields.get("tcp", findings);
    let daemon = Daemon {
        api: fields.file("api", findings).unwrap_or(default.api),
        group: read_group(&mut fields, findings).unwrap_or(default.group),
        group_scope: fields.word("group_scope", Scope::WORDS, &Scope::ALL, findings).unwrap_or_default(),
        files: read_directories(&mut fields, findings).unwrap_or(default.files),
        tcp: tcp.and_then(|entry| read_tcp(&entry.node, findings)),
        state_dir: fields.file("state_dir", findings).unwrap_or(default.state_dir),
        restore: fields.flag("restore", findings).unwrap_or(default.restore),
        unixctl: fields.file("unixctl", findings),
        pidfile: fields.file("pidfile", findings),
        log_file: fields.file("log_file", findings),
        log_levels: read_log_levels(&mut fields, findings),
    };
    fields.finish(findings);
    daemon
}

fn read_group(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<String> {
    let group = fields.text("group", findings)?;
    let sound = !group.is_empty()
        && group.len() <= 32
        && group.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if sound {
        return Some(group.to_owned());
    }
    let cause = Cause::BadText { text: group.to_owned(), what: "a group's name", example: "\"trivium\"" };
    findings.add(fields.place_of("group"), fields.path("group"), cause);
    None
}

/// Reads a list of absolute directory paths.
fn read_directories(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Vec<PathBuf>> {
    let items = fields.items("files", findings)?;
    fields.limit("files", "directories", items.len(), LIST_LIMIT, findings);
    let mut directories = Vec::new();
    for (object, node) in items {
        match &node.value {
            Value::Text(text) if text.starts_with('/') && !text.contains('\0') => {
                directories.push(text.into())
            }
            Value::Text(text) => findings.add(node.place, object, Cause::RelativePath { text: text.clone() }),
            other => {
                let cause = Cause::WrongType { expected: "a text in quotes", found: other.found() };
                findings.add(node.place, object, cause);
            }
        }
    }
    Some(directories)
}

fn read_log_levels(fields: &mut Fields<'_>, findings: &mut Findings) -> Vec<String> {
    let mut levels = Vec::new();
    for (object, node) in fields.items("log_levels", findings).unwrap_or_default() {
        match &node.value {
            Value::Text(text) if text.parse::<VlogSpec>().is_ok() => levels.push(text.clone()),
            Value::Text(text) => {
                let (text, what) = (text.clone(), "what `ovs-appctl vlog/set` takes");
                findings.add(node.place, object, Cause::BadText { text, what, example: "\"file:info\"" });
            }
            other => {
                let cause = Cause::WrongType { expected: "a text in quotes", found: other.found() };
                findings.add(node.place, object, cause);
            }
        }
    }
    levels
}

fn read_tcp(node: &Node, findings: &mut Findings) -> Option<Tcp> {
    let mut fields = table_of("daemon.tcp", node, findings)?;
    let bad =
        |text, _| Cause::BadText { text, what: "an address with a port", example: "\"127.0.0.1:8443\"" };
    let listen = fields.parsed("listen", bad, findings);
    let cert = fields.file("cert", findings);
    let key = fields.file("key", findings);
    let token_file = fields.file("token_file", findings);
    let tokens = read_tokens(&mut fields, findings);
    if !fields.has("listen") {
        fields.missing("listen", "listen = \"127.0.0.1:8443\"", findings);
    }
    for missing in ["cert", "key", "token_file"] {
        let named = missing == "token_file" && fields.has("token");
        if !named && !fields.has(missing) {
            findings.add(fields.place, fields.object.clone(), Cause::TcpUnprotected { missing });
        }
    }
    fields.finish(findings);
    Some(Tcp { listen: listen?, cert: cert?, key: key?, token_file, tokens })
}

/// Reads `[daemon.tcp.token.NAME]`. The default scope is `read`. A token with more rights therefore requires
/// an explicit scope.
fn read_tokens(fields: &mut Fields<'_>, findings: &mut Findings) -> BTreeMap<String, Token> {
    let Some(entry) = fields.get("token", findings) else { return BTreeMap::new() };
    let table = fields.path("token");
    let read: BTreeMap<PortName, Option<Token>> =
        named_in(&table, "token", &entry.node, findings, |mut fields, findings| {
            let file = fields.file("file", findings);
            if !fields.has("file") {
                fields.missing("file", "file = \"/etc/trivium/token\"", findings);
            }
            let scope = fields.word("scope", Scope::WORDS, &Scope::ALL, findings).unwrap_or(Scope::Read);
            fields.finish(findings);
            Some(Token { file: file?, scope })
        });
    fields.limit("token", "tokens", read.len(), LIST_LIMIT, findings);
    read.into_iter().filter_map(|(name, token)| Some((name.to_string(), token?))).collect()
}

pub(super) fn read_engine(node: &Node, findings: &mut Findings) -> Engine {
    let default = Engine::default();
    let Some(mut fields) = table_of("engine", node, findings) else { return default };
    let modes = [EngineMode::Adaptive, EngineMode::Busy];
    let workers = fields.numbers("workers", (0, 4095), "core", findings);
    if let Some(count) = workers.as_ref().map(Vec::len).filter(|count| *count > 64) {
        let place = fields.place_of("workers");
        findings.add(place, "engine.workers", Cause::TooMany { what: "workers", count, limit: 64 });
    }
    let engine = Engine {
        workers: workers.unwrap_or_default(),
        mode: fields.word("mode", &["adaptive", "busy"], &modes, findings).unwrap_or(default.mode),
        spin_us: fields.number("spin_us", (0, 1_000_000), " us", findings).unwrap_or(default.spin_us),
    };
    fields.finish(findings);
    engine
}

pub(super) fn read_memory(node: &Node, findings: &mut Findings) -> Memory {
    let default = Memory::default();
    let Some(mut fields) = table_of("memory", node, findings) else { return default };
    let pages = [HugePages::Try, HugePages::Require, HugePages::Off];
    let memory = Memory {
        frames: fields.number("frames", (512, 1 << 24), "", findings).unwrap_or(default.frames),
        frame_size: read_frame_size(&mut fields, findings).unwrap_or(default.frame_size),
        huge_pages: fields
            .word("huge_pages", &["try", "require", "off"], &pages, findings)
            .unwrap_or(default.huge_pages),
    };
    fields.finish(findings);
    memory
}

pub(super) fn read_ovsdb(node: &Node, findings: &mut Findings) -> Ovsdb {
    let default = Ovsdb::default();
    let Some(mut fields) = table_of("ovsdb", node, findings) else { return default };
    let bad = |text, source| Cause::BadTarget { text, source };
    let ovsdb = Ovsdb {
        database: fields.parsed("database", bad, findings),
        ring_size: fields.power_of_two("ring_size", (64, 32_768), findings).unwrap_or(default.ring_size),
    };
    if !fields.has("database") {
        fields.missing("database", "database = \"unix:/run/openvswitch/db.sock\"", findings);
    }
    fields.finish(findings);
    ovsdb
}

fn read_frame_size(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<u32> {
    const CHOICES: &[i64] = &[2048, 4096];
    let entry = fields.get("frame_size", findings)?;
    let size =
        number_in::<u32>("memory.frame_size", &entry.node, (0, i64::from(u32::MAX)), " bytes", findings)?;
    let value = i64::from(size);
    if CHOICES.contains(&value) {
        return Some(size);
    }
    findings.add(entry.node.place, "memory.frame_size", Cause::NotOneOfNumbers { value, choices: CHOICES });
    None
}
