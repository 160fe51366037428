//! `trivium capture PORT`: captures packets or dropped packets, to a pcapng file or as lines.
//!
//! The daemon filters the packets and sends pcapng. An event loop passes the stream to a reader on another
//! thread, which counts the packets and prints or rewrites them. In a pcapng file, each port of Trivium is an
//! interface. Each packet has its direction, its drop reason and the number of packets that were lost before
//! it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use dataplane::describe_packet;
use hyper::body::Bytes;
use packet::filter::Filter;
use packet::{FlowKey, PortId};
use port::pcap::{Interface, Notes, Reader, Record, Writer};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Capture;
use crate::client::{Client, Stream, quoted};
use crate::cmd::trace::FILTER_EXAMPLE;
use crate::failure::Failure;

/// Maximum number of chunks of the pcapng stream that wait for the thread that reads them.
const QUEUE: usize = 256;

/// Captures packets until a limit is reached, or SIGINT or SIGTERM arrives.
///
/// # Errors
/// Returns an error if the port does not exist, the filter expression is invalid, the file cannot
/// be written, or the daemon ends the stream.
pub async fn capture(client: &Client, args: &Capture) -> Result<(), Failure> {
    let filter = args.filter.join(",");
    // The expression is also parsed here, so that errors are reported without a daemon.
    Filter::parse(&filter).map_err(|error| Failure::new("filter", error, FILTER_EXAMPLE))?;
    let path = format!("/v1/capture/{}?drops={}&filter={}", quoted(&args.port), args.drops, quoted(&filter));
    receive(client, &path, args, "narrow the filter to lose none").await
}

/// Prints or writes the pcapng stream of the API resource at `path`. `remedy` is printed as advice if packets
/// were lost.
///
/// # Errors
/// Returns an error if the daemon refuses the capture or ends the stream, or the file cannot be
/// written. A file always ends with a complete packet.
pub async fn receive(
    client: &Client,
    path: &str,
    args: &Capture,
    remedy: &'static str,
) -> Result<(), Failure> {
    let stream = client.stream(path).await?;
    if let Some(file) = &args.write {
        eprintln!("capturing to {}; Ctrl-C ends", file.display());
    }
    let (to, from) = sync_channel(QUEUE);
    let ended = {
        let longest = args.seconds.map(Duration::from_secs);
        let args = args.clone();
        let reader = tokio::task::spawn_blocking(move || read(from, &args, remedy));
        let ended = feed(stream, to, longest).await?;
        reader.await.map_err(|error| Failure::new("capture", error, ""))??;
        ended
    };
    match ended {
        Ended::AsAsked => Ok(()),
        Ended::ByDaemon => {
            let cause = "the daemon has ended the stream; what came before is complete";
            Err(Failure::new("capture", cause, "the daemon was stopped, upgraded or killed: capture again"))
        }
    }
}

/// Reason why the command reads no more data of the pcapng stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// A limit of the command line (packets, time) was reached, or a signal arrived.
    AsAsked,
    /// The daemon closed the pcapng stream.
    ByDaemon,
}

/// Passes the pcapng stream to the reader thread until the stream ends, the reader stops, the time is over,
/// or SIGINT or SIGTERM arrives.
///
/// # Errors
/// Returns an error if signal handlers cannot be installed.
async fn feed(
    mut stream: Stream,
    to: SyncSender<Bytes>,
    longest: Option<Duration>,
) -> Result<Ended, Failure> {
    let signals = |error| Failure::new("capture", error, "");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(signals)?;
    let deadline = longest.map(|longest| tokio::time::Instant::now() + longest);
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    };
    let mut over = std::pin::pin!(over);
    loop {
        let mut patience = tokio::time::interval(std::time::Duration::from_millis(100));
        patience.tick().await;
        let chunk = tokio::select! {
            chunk = stream.chunk() => chunk,
            _ = patience.tick() => Some(Bytes::new()),
            _ = interrupt.recv() => return Ok(Ended::AsAsked),
            _ = terminate.recv() => return Ok(Ended::AsAsked),
            () = &mut over => return Ok(Ended::AsAsked),
        };
        let Some(chunk) = chunk else { return Ok(Ended::ByDaemon) };
        // An empty chunk only checks whether the reader still runs. Sending may block. The daemon then drops
        // packets, and not this process.
        let sent = to.send(chunk);
        if sent.is_err() {
            return Ok(Ended::AsAsked);
        }
    }
}

/// Input of the pcapng reader. The input joins the chunks of a queue into one byte stream.
struct Chunks {
    from: Receiver<Bytes>,
    rest: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.is_empty() {
            match self.from.recv() {
                Ok(chunk) => self.rest = chunk,
                Err(_) => return Ok(0),
            }
        }
        let length = self.rest.len().min(to.len());
        to[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}

/// Destination to which captured packets are written.
enum Sink {
    Lines,
    /// A pcapng file. The map contains the interfaces that the file describes so far, by their numbers in the
    /// daemon's stream.
    File(Box<Writer<Box<dyn Write + Send>>>, BTreeMap<u32, Interface>),
}

fn read(from: Receiver<Bytes>, args: &Capture, remedy: &str) -> Result<(), Failure> {
    let mut sink = open(args)?;
    let mut reader = match Reader::new(Chunks { from, rest: Bytes::new() }) {
        Ok(reader) => reader,
        // The stream ended before the first byte.
        Err(_) => return Ok(()),
    };
    let (mut seen, mut missed) = (0, 0_u64);
    while args.number.is_none_or(|number| seen < number) {
        // The stream may end in the middle of a block.
        let Ok(Some(record)) = reader.next_record() else { break };
        seen += 1;
        missed = missed.saturating_add(record.missed);
        let port = reader.interface_name(record.interface).unwrap_or(&args.port);
        sink.write(&record, port).map_err(|error| unwritable(args, &error))?;
    }
    if let Sink::File(mut writer, _) = sink {
        writer.flush().map_err(|error| unwritable(args, &error))?;
        eprintln!("{seen} packets");
    }
    if missed > 0 {
        eprintln!("{missed} more matched and were left out: queues were full; {remedy}");
    }
    Ok(())
}

fn unwritable(args: &Capture, error: &std::io::Error) -> Failure {
    let object = args.write.as_deref().unwrap_or(Path::new("standard output")).display().to_string();
    let fix = match error.kind() {
        std::io::ErrorKind::StorageFull => "make room on its disk; what was written so far can be read",
        std::io::ErrorKind::PermissionDenied => "choose a directory that you may write",
        std::io::ErrorKind::BrokenPipe => "the reader has ended",
        _ => "check the path",
    };
    Failure::new(object, error, fix)
}

fn open(args: &Capture) -> Result<Sink, Failure> {
    let Some(path) = &args.write else { return Ok(Sink::Lines) };
    let make = || {
        let output: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(std::io::stdout()),
            false => Box::new(BufWriter::new(File::create(path)?)),
        };
        let mut writer = Writer::pcapng(output)?;
        writer.flush()?;
        Ok(Sink::File(Box::new(writer), BTreeMap::new()))
    };
    make().map_err(|error| unwritable(args, &error))
}

impl Sink {
    fn write(&mut self, record: &Record, port: &str) -> std::io::Result<()> {
        match self {
            Sink::Lines => writeln!(std::io::stdout(), "{}", line(record, port)),
            Sink::File(writer, interfaces) => {
                let interface = match interfaces.get(&record.interface) {
                    Some(interface) => *interface,
                    None => *interfaces.entry(record.interface).or_insert(writer.interface(port)?),
                };
                let notes = Notes {
                    comment: record.comment.as_deref(),
                    received: record.received,
                    missed: record.missed,
                };
                let (time, length) = (record.timestamp, record.original_len);
                writer.annotated(interface, time, length, [record.data.as_slice()], &notes)
            }
        }
    }
}

/// Formats a number of nanoseconds since 1970-01-01 as time of day in UTC.
pub fn clock(at_ns: u64) -> String {
    let time = at_ns % 86_400_000_000_000;
    let (seconds, micros) = (time / 1_000_000_000, time / 1_000 % 1_000_000);
    format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Formats a packet as one line: time, port, direction, description, and reason of the drop.
fn line(record: &Record, port: &str) -> String {
    let clock = clock(record.timestamp);
    let way = if record.received == Some(false) { "out" } else { "in " };
    let mut key = FlowKey::default();
    let whole = usize::try_from(record.original_len).unwrap_or(usize::MAX);
    let what = match FlowKey::extract(&record.data, whole, PortId(0), &mut key) {
        Ok(_) => describe_packet(&key, record.original_len),
        Err(_) => format!("{} bytes that are no Ethernet frame", record.original_len),
    };
    let comment = record.comment.as_ref().map_or_else(String::new, |comment| format!(" [{comment}]"));
    format!("{clock} {port} {way} {what}{comment}")
}

#[cfg(test)]
mod tests {
    use packet::spec;

    use super::*;

    #[test]
    fn lines_say_port_direction_and_reason() {
        let mut data = spec::parse("vlan=10,ip_dst=10.0.0.2,udp,dst_port=53,len=1000").unwrap();
        // A packet that is truncated by a snap length is still described correctly.
        data.truncate(64);
        let mut record = Record {
            timestamp: 3_661_000_002_000,
            original_len: 1000,
            data,
            received: Some(false),
            ..Record::default()
        };
        let text = line(&record, "web1");
        assert!(text.starts_with("01:01:01.000002 web1 out vlan 10, "), "{text}");
        assert!(text.ends_with("UDP 10.0.0.1:49152 > 10.0.0.2:53, 1000 bytes"), "{text}");
        record.received = Some(true);
        record.comment = Some("dropped: no-member".to_owned());
        let text = line(&record, "web2");
        assert!(text.contains(" web2 in  vlan 10") && text.ends_with(" [dropped: no-member]"), "{text}");
        record.data.truncate(9);
        assert!(line(&record, "web2").contains("1000 bytes that are no Ethernet frame"));
    }
}
