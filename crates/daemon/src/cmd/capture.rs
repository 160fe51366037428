//! `trivium capture PORT`: packets as they pass or are dropped, to a pcapng file or as lines.
//!
//! The daemon sends pcapng; an event loop on a thread of its own feeds it to a reader here, which filters, counts, and
//! prints or writes again.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use hyper::body::Bytes;
use packet::filter::Filter;
use packet::{FlowKey, PortId};
use port::pcap::{Interface, Reader, Record, Writer};

use crate::cli::Capture;
use crate::client::{Client, Stream};
use crate::cmd::apply::quoted;
use crate::failure::Failure;
use crate::filter::describe;

/// Chunks that wait for the reader.
const QUEUE: usize = 256;

/// Captures until there were enough, or Ctrl-C.
///
/// # Errors
/// If the port does not exist, the filter is not understood, or the file cannot be written.
pub async fn capture(client: &Client, args: &Capture) -> Result<(), Failure> {
    let filter = Filter::parse(&args.filter.join(","))
        .map_err(|error| Failure::new("filter", error, "for example: ip_src=10.0.0.0/8,tcp,dst_port=443"))?;
    let drops = if args.drops { "?drops=true" } else { "" };
    let stream = client.stream(&format!("/v1/capture/{}{drops}", quoted(&args.port))).await?;
    let (to, from) = sync_channel(QUEUE);
    let args = args.clone();
    let reader = tokio::task::spawn_blocking(move || read(from, &filter, &args));
    feed(stream, to).await;
    reader.await.map_err(|error| Failure::new("capture", error, ""))?
}

/// Passes the stream on until it ends, the reader has enough, or Ctrl-C.
async fn feed(mut stream: Stream, to: SyncSender<Bytes>) {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let mut patience = tokio::time::interval(std::time::Duration::from_millis(100));
        patience.tick().await;
        let chunk = tokio::select! {
            chunk = stream.chunk() => chunk,
            _ = patience.tick() => Some(Bytes::new()),
            _ = &mut interrupt => None,
        };
        let Some(chunk) = chunk else { return };
        // An empty chunk only asks whether the reader still listens. Sending may wait: then the daemon drops, not we.
        let sent = to.send(chunk);
        if sent.is_err() {
            return;
        }
    }
}

/// Chunks as one input.
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

/// Where captured packets go.
enum Sink {
    Lines,
    File(Box<Writer<Box<dyn Write + Send>>>, Interface),
}

fn read(from: Receiver<Bytes>, filter: &Filter, args: &Capture) -> Result<(), Failure> {
    let mut sink = open(args)?;
    let mut reader = match Reader::new(Chunks { from, rest: Bytes::new() }) {
        Ok(reader) => reader,
        // Ended before the first byte.
        Err(_) => return Ok(()),
    };
    let mut seen = 0;
    while args.number.is_none_or(|number| seen < number) {
        // The end of the stream may come in the middle of a block.
        let Ok(Some(record)) = reader.next_record() else { break };
        let mut key = FlowKey::default();
        let readable = FlowKey::extract(&record.data, record.data.len(), PortId(0), &mut key).is_ok();
        if !readable || filter.matches(&key) {
            seen += 1;
            write(&mut sink, &record, readable.then_some(&key)).map_err(|error| unwritable(args, &error))?;
        }
    }
    if let Sink::File(mut writer, _) = sink {
        writer.flush().map_err(|error| unwritable(args, &error))?;
        eprintln!("{seen} packets");
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
        let interface = writer.interface(&args.port)?;
        writer.flush()?;
        Ok(Sink::File(Box::new(writer), interface))
    };
    make().map_err(|error| unwritable(args, &error))
}

fn write(sink: &mut Sink, record: &Record, key: Option<&FlowKey>) -> std::io::Result<()> {
    match sink {
        Sink::Lines => {
            let time = record.timestamp % 86_400_000_000_000;
            let (seconds, micros) = (time / 1_000_000_000, time / 1_000 % 1_000_000);
            let clock =
                format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60);
            let what = key.map_or_else(
                || format!("{} bytes that are no Ethernet frame", record.original_len),
                |key| describe(key, record.original_len),
            );
            let comment = record.comment.as_ref().map_or_else(String::new, |comment| format!(" [{comment}]"));
            writeln!(std::io::stdout(), "{clock} {what}{comment}")
        }
        Sink::File(writer, interface) => {
            let (data, comment) = (record.data.as_slice(), record.comment.as_deref());
            writer.packet(*interface, record.timestamp, record.original_len, [data], comment)
        }
    }
}
