//! Rule file: the OpenFlow rules of a bridge on disk. The rules are restored from the file after the daemon was
//! killed. Each bridge has one rule file, which is replaced atomically.
//!
//! ```text
//! "TRIVRULE" | version u32 | CRC-32 of the rest u32 | length of the rest in octets u64
//! bridge | boot id [16] | CLOCK_MONOTONIC u64 | CLOCK_REALTIME u64     time of the write, nanoseconds
//! count u32, (port, number u32)*         | OpenFlow port numbers by name
//! count u32, message*                    | meters
//! count u32, message*                    | groups
//! count u32, (table u8, has u8, down u8, up u8, name)* | controllers' table settings; has: 1 eviction, 2 vacancy
//! count u32, (class u16, type u8, octets u8, field u16)*  | match fields of mapped tunnel options
//! (message, packets u64, octets u64, added u64, used u64, its meter is an instruction u8)* | flow entries
//! ```
//!
//! Numbers are big-endian. Each name and each message is preceded by its length (u32). An incomplete file is refused as
//! a whole. Files of version 3 contain no tunnel options. Files of version 2 contain neither tunnel options nor table
//! settings.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Crc;

use super::records::{Message, OptionRecord, RuleRecord, RulesRecord, TableRecord};

const MAGIC: &[u8; 8] = b"TRIVRULE";
const VERSION: u32 = 4;
/// Oldest version of the rule file's format that this release reads.
const OLDEST: u32 = 2;
/// Size in octets of a rule file's header: magic number, version, checksum and length.
const HEAD: usize = 24;
/// Maximum size in octets of a rule file. Larger files are not read.
const LIMIT: u64 = 4 << 30;
/// Suffix of the names of rule files.
const SUFFIX: &str = ".rules";

/// Reason why a rule file is not used or could not be written.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The rule file cannot be read or written.
    #[error("{}: it cannot be {what}: {source}; {}", path.display(), fix(source))]
    Io {
        /// Path of the rule file.
        path: PathBuf,
        /// Operation on the rule file that failed: `read` or `written`.
        what: &'static str,
        /// Error that the operating system returned for the rule file.
        source: io::Error,
    },
    /// The rules of the bridge change faster than they are copied.
    #[error(
        "they change faster than they are copied; the file keeps an older state until a later copy succeeds"
    )]
    Busy,
    /// The content is not a rule file, or is damaged.
    #[error("{}: {cause}; its bridge begins without these rules, and controllers bring them again", path.display())]
    Content {
        /// Path of the rule file.
        path: PathBuf,
        /// Kind of damage that was found in the file.
        cause: Damage,
    },
}

/// Kind of defect that makes a rule file unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// The file does not begin with the magic number of a rule file, or is shorter than the header.
    #[error("this is no file of rules")]
    Strange,
    /// The rule file has an unsupported format version, because another release wrote it.
    #[error("it is of version {0}, and versions {OLDEST} to {VERSION} are read here")]
    Version(u32),
    /// The rule file is shorter or longer than its header specifies.
    #[error("it is damaged: it does not have the length that it names")]
    Length,
    /// The checksum in the rule file's header does not match the file's content.
    #[error("it is damaged: its checksum is wrong")]
    Checksum,
    /// The checksum of the rule file is correct, but a part of the content cannot be decoded.
    #[error("it is damaged: its parts do not fit")]
    Parts,
    /// The rule file belongs to another bridge, because the file was renamed.
    #[error("it belongs to another bridge")]
    Bridge,
}

fn fix(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its disk: until then a restart finds older rules"
        }
        io::ErrorKind::PermissionDenied => "let the daemon use it, or change daemon.state_dir",
        io::ErrorKind::ReadOnlyFilesystem => "choose a directory that can be written as daemon.state_dir",
        _ => "look at daemon.state_dir",
    }
}

/// Boot ID and times of the monotonic clock and the wall clock, read at one moment. The time between two such readings
/// can be computed even if the machine was rebooted in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    boot: [u8; 16],
    monotonic: u64,
    real: u64,
}

impl Moment {
    pub fn now() -> Moment {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut boot = [0; 16];
        for (octet, pair) in boot.iter_mut().zip(digits.chunks(2)) {
            let text = std::str::from_utf8(pair).unwrap_or_default();
            *octet = u8::from_str_radix(text, 16).unwrap_or_default();
        }
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let real = u64::try_from(real.as_nanos()).unwrap_or(u64::MAX);
        Moment { boot, monotonic: super::now(), real }
    }

    /// Returns the nanoseconds from `earlier` to `self`. Returns 0 if the wall clock was set back in between.
    fn since(&self, earlier: &Moment) -> u64 {
        if self.boot == earlier.boot {
            self.monotonic.saturating_sub(earlier.monotonic)
        } else {
            self.real.saturating_sub(earlier.real)
        }
    }
}

/// Returns the path of a bridge's rule file.
pub(super) fn path_of(directory: &Path, bridge: &str) -> PathBuf {
    directory.join(format!("{bridge}{SUFFIX}"))
}

/// Returns the names of the bridges that have a rule file in `directory`.
pub(super) fn bridges(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let bridge = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned());
    entries.flatten().filter_map(bridge).collect()
}

fn put(to: &mut Vec<u8>, octets: &[u8]) {
    // Names and messages are far shorter than 4 GiB.
    let length = u32::try_from(octets.len()).unwrap_or(u32::MAX);
    to.extend(length.to_be_bytes());
    to.extend(octets);
}

fn count(to: &mut Vec<u8>, of: usize) {
    to.extend(u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes());
}

/// Appends a flow entry to `to`, in the format of the rule file.
pub(super) fn put_rule(to: &mut Vec<u8>, rule: &RuleRecord) {
    let RuleRecord { message, packets, octets, created, used, metered, changed } = rule;
    put(to, &message.0);
    for number in [packets, octets, created, used, changed] {
        to.extend(number.to_be_bytes());
    }
    to.push(u8::from(*metered));
}

/// Returns the first part of a rule file, from the magic number up to the flow entries.
pub(super) fn preface(
    bridge: &str,
    moment: &Moment,
    numbers: &BTreeMap<String, u32>,
    (meters, groups): &(Vec<Message>, Vec<Message>),
    (tables, options): (&[TableRecord], &[OptionRecord]),
) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, bridge.as_bytes());
    body.extend(moment.boot);
    body.extend(moment.monotonic.to_be_bytes());
    body.extend(moment.real.to_be_bytes());
    count(&mut body, numbers.len());
    for (port, number) in numbers {
        put(&mut body, port.as_bytes());
        body.extend(number.to_be_bytes());
    }
    for messages in [meters, groups] {
        count(&mut body, messages.len());
        messages.iter().for_each(|message| put(&mut body, &message.0));
    }
    count(&mut body, tables.len());
    for TableRecord { table, name, evicts, vacancy, miss } in tables {
        let (down, up) = vacancy.unwrap_or_default();
        body.extend([*table, u8::from(*evicts) | u8::from(vacancy.is_some()) << 1 | miss << 2, down, up]);
        put(&mut body, name.as_bytes());
    }
    count(&mut body, options.len());
    for OptionRecord { class, kind, octets, place } in options {
        body.extend(class.to_be_bytes());
        body.extend([*kind, *octets]);
        body.extend(place.to_be_bytes());
    }
    body
}

/// Replaces a bridge's rule file. The new file is on the disk before it replaces the old one.
pub(super) fn write(directory: &Path, bridge: &str, parts: &[&[u8]]) -> Result<(), KeptError> {
    let path = path_of(directory, bridge);
    let temporary = directory.join(format!("{bridge}.new"));
    let write = || {
        fs::create_dir_all(directory)?;
        let mut checksum = Crc::new();
        parts.iter().for_each(|part| checksum.update(part));
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut head = MAGIC.to_vec();
        head.extend(VERSION.to_be_bytes());
        head.extend(checksum.sum().to_be_bytes());
        head.extend((length as u64).to_be_bytes());
        file.write_all(&head)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        KeptError::Io { path, what: "written", source }
    })
}

/// Reads a bridge's rule file, with all times converted to the clock of this boot.
pub(super) fn read(directory: &Path, bridge: &str) -> Result<RulesRecord, KeptError> {
    let path = path_of(directory, bridge);
    let failed = |source| KeptError::Io { path: path.clone(), what: "read", source };
    if fs::metadata(&path).map_err(failed)?.len() > LIMIT {
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 GiB")));
    }
    let octets = fs::read(&path).map_err(failed)?;
    decode(bridge, &octets, &Moment::now()).map_err(|cause| KeptError::Content { path, cause })
}

/// The octets of a rule file that have not been decoded yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Damage::Parts)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Damage::Parts)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, Damage> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Damage> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn octets(&mut self) -> Result<&'a [u8], Damage> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn name(&mut self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.octets()?).map_err(|_| Damage::Parts)
    }

    fn table(&mut self) -> Result<TableRecord, Damage> {
        let [table, has, down, up] = self.array()?;
        if has > 15 || down > up || up > 100 {
            return Err(Damage::Parts);
        }
        let vacancy = (has & 2 != 0).then_some((down, up));
        let (name, evicts, miss) = (self.name()?.to_owned(), has & 1 != 0, has >> 2);
        Ok(TableRecord { table, name, evicts, vacancy, miss })
    }

    fn option(&mut self) -> Result<OptionRecord, Damage> {
        let [class, more, kind, octets, place, rest] = self.array()?;
        let (class, place) = (u16::from_be_bytes([class, more]), u16::from_be_bytes([place, rest]));
        Ok(OptionRecord { class, kind, octets, place })
    }

    fn messages(&mut self) -> Result<Vec<Message>, Damage> {
        // Nothing is allocated in advance for the number of messages, because the number in the file may be wrong.
        (0..self.u32()?).map(|_| Ok(Message(self.octets()?.to_vec()))).collect()
    }
}

fn decode(bridge: &str, octets: &[u8], now: &Moment) -> Result<RulesRecord, Damage> {
    let (head, body) = octets.split_at_checked(HEAD).ok_or(Damage::Strange)?;
    let mut head = Rest(head);
    if head.take(MAGIC.len())? != MAGIC {
        return Err(Damage::Strange);
    }
    let version = head.u32()?;
    if !(OLDEST..=VERSION).contains(&version) {
        return Err(Damage::Version(version));
    }
    let checksum = head.u32()?;
    if head.u64()? != body.len() as u64 {
        return Err(Damage::Length);
    }
    let mut sum = Crc::new();
    sum.update(body);
    if sum.sum() != checksum {
        return Err(Damage::Checksum);
    }
    let mut rest = Rest(body);
    if rest.name()? != bridge {
        return Err(Damage::Bridge);
    }
    let then = Moment { boot: rest.array()?, monotonic: rest.u64()?, real: rest.u64()? };
    let mut record = RulesRecord::default();
    for _ in 0..rest.u32()? {
        let port = rest.name()?.to_owned();
        record.numbers.insert(port, rest.u32()?);
    }
    record.meters = rest.messages()?;
    record.groups = rest.messages()?;
    if version >= 3 {
        record.tables = (0..rest.u32()?).map(|_| rest.table()).collect::<Result<_, _>>()?;
    }
    if version >= 4 {
        record.options = (0..rest.u32()?).map(|_| rest.option()).collect::<Result<_, _>>()?;
    }
    let elapsed = now.since(&then);
    while !rest.0.is_empty() {
        let message = Message(rest.octets()?.to_vec());
        let (packets, octets) = (rest.u64()?, rest.u64()?);
        let (created, used, changed) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let metered = rest.array::<1>()? != [0];
        // The idle time does not grow while no daemon runs. The age and the time since the last change do.
        let age = then.monotonic.saturating_sub(created).saturating_add(elapsed);
        let life = then.monotonic.saturating_sub(changed).saturating_add(elapsed);
        let idle = then.monotonic.saturating_sub(used);
        let ago = |past| now.monotonic.saturating_sub(past);
        let (created, used, changed) = (ago(age), ago(idle), ago(life));
        let rule = RuleRecord { message, packets, octets, created, used, metered, changed };
        record.rules.push(if life > now.monotonic { shortened(rule, life, now) } else { rule });
    }
    Ok(record)
}

/// Adjusts a restored flow entry that was last changed before this boot. The monotonic clock cannot express the time of
/// that change. The time of the last change is therefore set to now, and the hard timeout to the time that remains. A
/// flow entry that cannot be decoded is left unchanged: [`RulesRecord::give`] skips and counts such flow entries.
fn shortened(rule: RuleRecord, life: u64, now: &Moment) -> RuleRecord {
    let Some(mut change) = rule.read().filter(|change| change.hard_timeout != 0) else { return rule };
    let left = u64::from(change.hard_timeout).saturating_sub(life / 1_000_000_000).max(1);
    change.hard_timeout = u16::try_from(left).unwrap_or(u16::MAX);
    RuleRecord { message: RuleRecord::message(&change), changed: now.monotonic, ..rule }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switch::flow::{Action, FlowFilter, FlowMod, Instructions, Match, Mod, Pipeline};

    const SECOND: u64 = 1_000_000_000;

    fn moment(boot: u8, monotonic: u64, real: u64) -> Moment {
        Moment { boot: [boot; 16], monotonic: monotonic * SECOND, real: real * SECOND }
    }

    fn acl() -> TableRecord {
        TableRecord { table: 9, name: "acl".to_owned(), evicts: true, vacancy: Some((20, 80)), miss: 2 }
    }

    /// Returns the content of a rule file with two flow entries, written 100 s after boot.
    fn file() -> Vec<u8> {
        let mut pipeline = Pipeline::new();
        let out = |port| Instructions::apply(vec![Action::Output { port, max_len: 0 }]);
        for (priority, hard) in [(1, 0), (2, 60)] {
            let mut rule = FlowMod::add(0, priority, Match::ANY, out(7));
            (rule.idle_timeout, rule.hard_timeout) = (50, hard);
            pipeline.modify(&[Mod::Flow(Box::new(rule))], 80 * SECOND).unwrap();
            let times = (80 * SECOND, 80 * SECOND, 90 * SECOND);
            pipeline.resume_counts(0, &Match::ANY, priority, (5, 500), times);
        }
        let numbers = BTreeMap::from([("eth1".to_owned(), 7)]);
        let tables = [acl()];
        let options = [OptionRecord { class: 0x0102, kind: 0x80, octets: 4, place: 3 }];
        let mut body =
            preface("br0", &moment(1, 100, 1000), &numbers, &Default::default(), (&tables, &options));
        for stats in pipeline.flows(&FlowFilter::default(), 100 * SECOND) {
            put_rule(&mut body, &RuleRecord::of(stats, 100 * SECOND));
        }
        whole(body)
    }

    fn whole(body: Vec<u8>) -> Vec<u8> {
        let mut checksum = Crc::new();
        checksum.update(&body);
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_be_bytes());
        file.extend(checksum.sum().to_be_bytes());
        file.extend((body.len() as u64).to_be_bytes());
        file.extend(body);
        file
    }

    #[test]
    fn times_go_on_in_this_boot_and_in_the_next() {
        let file = file();
        // Priority, seconds since the rule was added and used, and hard timeout.
        let seen = |now: &Moment| -> Vec<(u16, u64, u64, u16)> {
            let record = decode("br0", &file, now).unwrap();
            assert_eq!(record.numbers["eth1"], 7);
            assert_eq!(record.tables, [acl()]);
            assert_eq!(record.options, [OptionRecord { class: 0x0102, kind: 0x80, octets: 4, place: 3 }]);
            let mut pipeline = Pipeline::new();
            assert_eq!(record.give(&mut pipeline, now.monotonic), 0);
            let flows = pipeline.flows(&FlowFilter::default(), now.monotonic);
            assert!(flows.iter().all(|flow| (flow.packets, flow.bytes, flow.idle_timeout) == (5, 500, 50)));
            flows
                .iter()
                .map(|it| (it.priority, it.age_ns / SECOND, it.idle_ns / SECOND, it.hard_timeout))
                .collect()
        };
        // Ten seconds later, the rules are 30 s old. The idle time excludes the time without a daemon.
        assert_eq!(seen(&moment(1, 110, 0)), [(2, 30, 10, 60), (1, 30, 10, 0)]);
        // After a reboot, times are computed from the wall clock. For a rule that was changed before the boot, the hard
        // timeout is set to the remaining time.
        assert_eq!(seen(&moment(2, 500, 1010)), [(2, 30, 10, 60), (1, 30, 10, 0)]);
        assert_eq!(seen(&moment(2, 20, 1010)), [(2, 20, 10, 30), (1, 20, 10, 0)]);
        // The wall clock was set back.
        assert_eq!(seen(&moment(2, 500, 900)), [(2, 20, 10, 60), (1, 20, 10, 0)]);
    }

    /// Files of two earlier releases can be read: files without tunnel options, and files without tunnel options and
    /// table settings.
    #[test]
    fn an_older_file_is_read() {
        let numbers = BTreeMap::from([("eth1".to_owned(), 7)]);
        let mut body = preface("br0", &moment(1, 100, 1000), &numbers, &Default::default(), (&[], &[]));
        let mut file = Vec::new();
        for version in [3_u32, 2] {
            body.truncate(body.len() - 4);
            file = whole(body.clone());
            file[8..12].copy_from_slice(&version.to_be_bytes());
            let record = decode("br0", &file, &moment(1, 110, 0)).unwrap();
            assert_eq!((record.numbers["eth1"], record.tables.len()), (7, 0));
        }
        file[8..12].copy_from_slice(&1_u32.to_be_bytes());
        assert_eq!(decode("br0", &file, &moment(1, 110, 0)).unwrap_err(), Damage::Version(1));
    }

    /// A restored hard timeout still counts from the flow entry's last change. If the machine was rebooted in between,
    /// the remaining time counts from the restore.
    #[test]
    fn a_rule_that_was_changed_lately_lives_on() {
        let mut pipeline = Pipeline::new();
        let mut rule = FlowMod::add(0, 9, Match::ANY, Instructions::apply(Vec::new()));
        rule.hard_timeout = 60;
        pipeline.modify(&[Mod::Flow(Box::new(rule))], 0).unwrap();
        pipeline.resume_counts(0, &Match::ANY, 9, (0, 0), (10 * SECOND, 990 * SECOND, 990 * SECOND));
        let mut body =
            preface("br0", &moment(1, 1000, 5000), &BTreeMap::new(), &Default::default(), (&[], &[]));
        for stats in pipeline.flows(&FlowFilter::default(), 1000 * SECOND) {
            put_rule(&mut body, &RuleRecord::of(stats, 1000 * SECOND));
        }
        let file = whole(body);
        // Ten seconds later, in this boot and in another, 20 of 60 seconds have passed.
        for now in [moment(1, 1010, 0), moment(2, 5, 5010)] {
            let record = decode("br0", &file, &now).unwrap();
            let lives = |after: u64| {
                let mut pipeline = Pipeline::new();
                assert_eq!(record.give(&mut pipeline, now.monotonic), 0);
                pipeline.expire(now.monotonic + after * SECOND);
                pipeline.flows(&FlowFilter::default(), 0).len() == 1
            };
            assert!(lives(39) && !lives(41));
        }
    }

    /// A flow entry that cannot be decoded is skipped, and the other flow entries of the file are restored, both in
    /// the boot that wrote the file and in a later boot.
    #[test]
    fn a_rule_that_is_not_decoded_is_skipped_and_counted() {
        let broken = |stats| {
            let mut record = RuleRecord::of(stats, 100 * SECOND);
            let octets = record.message.0.len();
            record.message.0.truncate(octets - 4);
            record
        };
        let good = decode("br0", &file(), &moment(1, 100, 0)).unwrap();
        let mut body =
            preface("br0", &moment(1, 100, 1000), &BTreeMap::new(), &Default::default(), (&[], &[]));
        let mut pipeline = Pipeline::new();
        let mut bad = FlowMod::add(0, 7, Match::ANY, Instructions::apply(vec![Action::PopVlan]));
        bad.hard_timeout = 600;
        pipeline.modify(&[Mod::Flow(Box::new(bad))], 50 * SECOND).unwrap();
        let bad = pipeline.flows(&FlowFilter::default(), 100 * SECOND).remove(0);
        put_rule(&mut body, &broken(bad));
        good.rules.iter().for_each(|rule| put_rule(&mut body, rule));
        let file = whole(body);
        for now in [moment(1, 110, 0), moment(2, 5, 1010)] {
            let record = decode("br0", &file, &now).unwrap();
            let mut pipeline = Pipeline::new();
            assert_eq!(record.give(&mut pipeline, now.monotonic), 1);
            let flows = pipeline.flows(&FlowFilter::default(), now.monotonic);
            assert_eq!(flows.iter().map(|flow| flow.priority).collect::<Vec<_>>(), [2, 1]);
        }
    }

    /// Arbitrary octets in a rule file are decoded or refused without a panic, even if they follow a correct header. A
    /// decoded record stays equal when it is serialised as hand-over state and read again. Adding its flow entries to a
    /// bridge does not panic.
    #[test]
    fn any_octets_are_read_or_refused() {
        let now = moment(1, 110, 0);
        let take = |file: &[u8]| {
            let Ok(record) = decode("br0", file, &now) else { return };
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<RulesRecord>(&text).unwrap(), record);
            record.give(&mut Pipeline::new(), now.monotonic);
        };
        testbed::mutated("rules_file", |octets| {
            take(octets);
            let Some((head, body)) = octets.split_at_checked(HEAD) else { return };
            let mut file = whole(body.to_vec());
            // Earlier versions have other parts.
            file[11] = head[11] % 8;
            take(&file);
        });
    }

    #[test]
    fn a_file_that_is_not_whole_is_refused_whole() {
        let (file, now) = (file(), moment(1, 110, 0));
        let damage = |file: &[u8]| decode("br0", file, &now).unwrap_err();
        for length in 0..file.len() {
            let cut = damage(&file[..length]);
            assert_eq!(cut, if length < HEAD { Damage::Strange } else { Damage::Length }, "{length}");
        }
        for at in 0..file.len() {
            let mut other = file.clone();
            other[at] ^= 0x10;
            let expected = match at {
                0..8 => Damage::Strange,
                8..12 => Damage::Version(u32::from_be_bytes([other[8], other[9], other[10], other[11]])),
                16..24 => Damage::Length,
                _ => Damage::Checksum,
            };
            assert_eq!(damage(&other), expected, "{at}");
        }
        assert_eq!(decode("br1", &file, &now).unwrap_err(), Damage::Bridge);
    }
}
