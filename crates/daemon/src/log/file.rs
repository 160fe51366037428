//! Log file of the daemon and formatting of its lines.

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use model::VlogDestination;
use rustix::fs::OFlags;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::levels;
use super::pattern::{self, Parts};

/// Open vSwitch's default pattern of log lines for syslog.
const SYSLOG: &str = "ovs|%05N|%c%T|%p|%m";
/// Open vSwitch's default pattern of log lines for the console.
const CONSOLE: &str = "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m";
/// Open vSwitch's default pattern of log lines for log files.
const FILE: &str = "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m";

/// Names of the threads whose log lines contain no thread name, like the lines of Open vSwitch's main thread.
const MAIN: [&str; 3] = ["main", "control", "ovs-vswitchd"];

/// The log file. Its path and its open file can be replaced while other threads write messages.
pub struct LogFile {
    state: Mutex<State>,
    messages: AtomicU64,
    started: Instant,
}

struct State {
    path: Option<PathBuf>,
    file: Option<File>,
    /// Pattern of each destination's log lines, in the order of [`VlogDestination`]. Only the
    /// pattern of the log file is used. The other patterns are stored for `vlog/list-pattern`.
    patterns: [String; 3],
}

impl Default for LogFile {
    fn default() -> LogFile {
        let patterns = [SYSLOG, CONSOLE, FILE].map(str::to_owned);
        LogFile {
            state: Mutex::new(State { path: None, file: None, patterns }),
            messages: AtomicU64::new(0),
            started: Instant::now(),
        }
    }
}

/// Opens a file for appending. Returns an error for symbolic links, and for files that are neither regular files
/// nor character devices.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file; choose another path"))
    }
}

impl LogFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the file at `path` as log file for all later lines. Returns `false` if this file is already open as log
    /// file.
    pub fn open(&self, path: &Path) -> io::Result<bool> {
        let file = open(path)?;
        let mut state = self.state();
        let same = state.file.as_ref().is_some_and(|before| is_one(before, &file));
        state.path = Some(path.to_owned());
        if !same {
            state.file = Some(file);
        }
        Ok(!same)
    }

    /// Closes the log file. [`LogFile::path`] still returns its path.
    pub fn close(&self) {
        self.state().file = None;
    }

    /// Returns the path of the log file, even if the file has been closed. Returns `None` if no log file was ever
    /// opened.
    pub fn path(&self) -> Option<PathBuf> {
        self.state().path.clone()
    }

    /// Returns whether messages are written to a file.
    pub fn is_open(&self) -> bool {
        self.state().file.is_some()
    }

    /// Returns whether `path` still names the open log file, which may have been moved away.
    pub fn is_same(&self, path: &Path) -> bool {
        let named = std::fs::symlink_metadata(path).ok();
        let open = self.state().file.as_ref().and_then(|file| file.metadata().ok());
        let place = |data: &std::fs::Metadata| (data.dev(), data.ino());
        named.as_ref().map(place) == open.as_ref().map(place)
    }

    /// Sets the log line pattern of a destination. `None` means all destinations.
    pub fn set_pattern(&self, destination: Option<VlogDestination>, pattern: &str) {
        let mut state = self.state();
        for (known, own) in VlogDestination::ALL.into_iter().zip(&mut state.patterns) {
            if destination.is_none_or(|destination| destination == known) {
                pattern.clone_into(own);
            }
        }
    }

    /// Returns the log line patterns of all destinations in the format of `vlog/list-pattern`.
    pub fn patterns(&self) -> String {
        let [syslog, console, file] = self.state().patterns.clone();
        format!(
            "         prefix                            format\n         ------                            ------\n\
             SYSLOG   <%B> %D{{%h %e %T}} %E %A:          {syslog}\n\
             CONSOLE  none                              {console}\n\
             FILE     none                              {file}\n"
        )
    }
}

fn is_one(one: &File, other: &File) -> bool {
    let place = |file: &File| file.metadata().map(|data| (data.dev(), data.ino())).ok();
    place(one).is_some() && place(one) == place(other)
}

/// Adapter through which the tracing library writes its messages to the log file.
pub struct Output(pub Arc<LogFile>);

impl<'a> MakeWriter<'a> for Output {
    type Writer = Lines<'a>;

    fn make_writer(&'a self) -> Lines<'a> {
        Lines(&self.0)
    }
}

/// Writer that appends complete lines to the log file. Lines are discarded while the file is closed.
pub struct Lines<'a>(&'a LogFile);

impl Write for Lines<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut self.0.state().file {
            Some(file) => file.write_all(line).map(|()| line.len()),
            None => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formatter of the fields of messages and spans for the log file, without colours. The log file
/// needs a separate formatter type, because the tracing library keeps one formatted text of a span
/// for each formatter type.
#[derive(Default)]
pub struct PlainFields(DefaultFields);

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        self.0.format_fields(writer, fields)
    }
}

/// Formatter that writes log lines according to the pattern of the log file.
pub struct FileLines(Arc<LogFile>);

impl FileLines {
    /// Creates a formatter that uses the pattern of this log file.
    pub fn new(file: &Arc<LogFile>) -> FileLines {
        FileLines(Arc::clone(file))
    }
}

/// Returns the text of a log message with escape sequences in place of line breaks and other control characters. Texts
/// from clients and from the database can contain line breaks, and would otherwise add lines to the log.
fn one_line(message: &str) -> Cow<'_, str> {
    if !message.chars().any(char::is_control) {
        return Cow::Borrowed(message);
    }
    let escaped = |letter: char| {
        let is_control = letter.is_control();
        let escape = is_control.then(|| letter.escape_default()).into_iter().flatten();
        escape.chain((!is_control).then_some(letter))
    };
    Cow::Owned(message.chars().flat_map(escaped).collect())
}

impl<S, N> FormatEvent<S, N> for FileLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>()
                && !fields.is_empty()
            {
                message.push_str(fields);
                message.push_str(": ");
            }
        }
        context.field_format().format_fields(Writer::new(&mut message), event)?;
        let thread = std::thread::current();
        let thread = thread.name().filter(|name| !MAIN.contains(name)).unwrap_or_default();
        let level = match *event.metadata().level() {
            Level::ERROR => "ERR",
            Level::WARN => "WARN",
            Level::INFO => "INFO",
            Level::DEBUG | Level::TRACE => "DBG",
        };
        let parts = Parts {
            number: self.0.messages.fetch_add(1, Ordering::Relaxed) + 1,
            module: levels::module(event.metadata().target()),
            level,
            thread,
            message: &one_line(&message),
            time: SystemTime::now(),
            uptime: self.0.started.elapsed(),
        };
        let [_, _, pattern] = self.0.state().patterns.clone();
        writeln!(writer, "{}", pattern::line(&pattern, &parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_log_is_not_followed() {
        let directory = std::env::temp_dir().join(format!("log-file-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (link, target) = (directory.join("x.log"), directory.join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let log = LogFile::default();
        assert!(log.open(&link).is_err() && !target.exists() && !log.is_open());
        std::fs::remove_file(&link).unwrap();
        assert!(log.open(&link).unwrap() && !log.open(&link).unwrap());
        std::fs::rename(&link, &target).unwrap();
        assert!(!log.is_same(&link) && log.open(&link).unwrap() && log.is_same(&link));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_message_with_line_breaks_is_one_line_of_the_log() {
        assert_eq!(one_line("bridge 1: fine, ü"), "bridge 1: fine, ü");
        let forged = "no bridge br0\n2026-01-01T00:00:00.000Z|00001|bridge|ERR|forged\r\u{1b}[2K\u{85}";
        let line = one_line(forged);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.starts_with("no bridge br0\\n2026") && line.ends_with("\\r\\u{1b}[2K\\u{85}"), "{line}");
    }
}
