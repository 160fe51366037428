//! A port that replays and records capture files. The port receives the packets of one file and records
//! transmitted packets into another file.
//!
//! The whole file to replay is held in memory, so reception makes no disk access. Recorded packets
//! are collected in a buffer, which is written to the file when the buffer is full. The caller
//! provides the clock, which is read once per call and never per packet.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::{Interface, PcapError, Reader, Writer};
use crate::pool::FramePool;
use crate::queue::{Batch, Capabilities, Exported, Queue, QueueCounters, QueueStatus};

/// Maximum total size of the packets of a replayed file in bytes.
const MAX_BYTES: usize = 1 << 30;
const BUFFER: usize = 256 * 1024;

/// A clock that returns the time in nanoseconds since 1970.
pub type Clock = Box<dyn FnMut() -> u64 + Send>;

/// Timing with which the packets of a file are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Timing {
    /// Packets arrive at the intervals that their time stamps in the file specify. The first packet arrives with the
    /// first call of `receive`.
    Original,
    /// Packets arrive as fast as the worker takes them.
    #[default]
    FlatOut,
}

/// Configuration of a pcap port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapConfig {
    /// Name of the port. The recording uses this name as the name of the capture interface.
    pub name: String,
    /// Path of the capture file to replay, or `None` if the port receives nothing.
    pub read: Option<PathBuf>,
    /// Path of the pcapng file to record into, or `None` if transmitted packets are not recorded.
    pub write: Option<PathBuf>,
    /// Timing with which packets are replayed.
    pub timing: Timing,
    /// Number of times that the file is replayed, or `None` to replay the file without end.
    pub rounds: Option<u64>,
}

/// Packets of a capture file, held in memory.
#[derive(Default)]
struct Replay {
    bytes: Vec<u8>,
    /// For each packet, the time since the first packet in nanoseconds, and the index in `bytes` at which the
    /// packet starts.
    packets: Vec<(u64, usize)>,
    /// Time in nanoseconds between the starts of two successive rounds. One round replays the file once.
    period: u64,
}

impl Replay {
    fn load(file: File) -> Result<Self, PcapError> {
        let mut reader = Reader::new(BufReader::new(file))?;
        let (mut replay, mut start, mut last) = (Self::default(), None, 0);
        while let Some(record) = reader.next_record()? {
            if record.data.is_empty() {
                continue;
            }
            if replay.bytes.len() + record.data.len() > MAX_BYTES {
                return Err(PcapError::TooLarge(MAX_BYTES));
            }
            let start = *start.get_or_insert(record.timestamp);
            // Captures of several queues may contain small steps back in time. A packet with an earlier time
            // stamp is due at once.
            last = record.timestamp.saturating_sub(start).max(last);
            replay.packets.push((last, replay.bytes.len()));
            replay.bytes.extend_from_slice(&record.data);
        }
        let gap = last / (replay.packets.len().saturating_sub(1).max(1) as u64);
        replay.period = last + gap.max(1);
        Ok(replay)
    }

    fn packet(&self, i: usize) -> &[u8] {
        let end = self.packets.get(i + 1).map_or(self.bytes.len(), |(_, start)| *start);
        &self.bytes[self.packets[i].1..end]
    }
}

/// A queue that replays and records capture files. See the module documentation.
pub struct PcapQueue {
    replay: Replay,
    next: usize,
    rounds_left: Option<u64>,
    timing: Timing,
    /// Time of the clock at the start of the current replay round, in nanoseconds since 1970.
    round_start: Option<u64>,
    clock: Clock,
    /// Timer that wakes a sleeping worker when the next packet is due.
    timer: Option<OwnedFd>,
    recording: Option<(Writer<BufWriter<File>>, Interface)>,
    /// Whether the writer's buffer contains packets that have not been written to the file.
    buffered: bool,
    failed: Option<String>,
    counters: QueueCounters,
}

impl PcapQueue {
    /// Loads the file to replay into memory, and creates the file to record into.
    ///
    /// # Errors
    /// [`PcapError`] if a file cannot be opened, or if the file to replay is malformed.
    pub fn open(config: &PcapConfig, clock: Clock) -> Result<Self, PcapError> {
        let opened = |path: &Path, file: std::io::Result<File>| {
            file.map_err(|source| PcapError::Open { path: path.to_owned(), source })
        };
        let read = config.read.as_deref().map(|path| opened(path, File::open(path))).transpose()?;
        let write = config.write.as_deref().map(|path| opened(path, File::create(path))).transpose()?;
        Self::over(config, read, write, clock)
    }

    /// Creates a queue like [`PcapQueue::open`], but with files that the caller has already opened. The paths in
    /// `config` are not used.
    ///
    /// # Errors
    /// [`PcapError`] if the file to replay is malformed, or if the file to record into cannot be written.
    pub fn over(
        config: &PcapConfig,
        read: Option<File>,
        write: Option<File>,
        clock: Clock,
    ) -> Result<Self, PcapError> {
        let replay = read.map(Replay::load).transpose()?.unwrap_or_default();
        let recording = write.map(|file| Self::record(file, &config.name)).transpose()?;
        let waits = config.timing == Timing::Original && !replay.packets.is_empty();
        let timer = waits.then(|| {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
        });
        let timer = timer.transpose().map_err(std::io::Error::from)?;
        Ok(Self {
            timer,
            replay,
            next: 0,
            rounds_left: config.rounds,
            timing: config.timing,
            round_start: None,
            clock,
            recording,
            buffered: false,
            failed: None,
            counters: QueueCounters::default(),
        })
    }

    fn record(file: File, name: &str) -> Result<(Writer<BufWriter<File>>, Interface), PcapError> {
        let mut writer = Writer::pcapng(BufWriter::with_capacity(BUFFER, file))?;
        let interface = writer.interface(name)?;
        Ok((writer, interface))
    }

    /// Returns whether all rounds of the replay have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.replay.packets.is_empty() || self.rounds_left == Some(0)
    }

    /// Returns whether the packet with index `self.next` is due at time `now`.
    fn is_due(&mut self, now: u64) -> bool {
        if self.is_finished() {
            return false;
        }
        let start = *self.round_start.get_or_insert(now);
        self.timing == Timing::FlatOut || now >= start.saturating_add(self.replay.packets[self.next].0)
    }

    /// Sets the timer to the time at which the next packet is due. Stops the timer if there is no next
    /// packet.
    fn arm(&self, now: u64) {
        let Some(timer) = &self.timer else { return };
        let due = self
            .round_start
            .filter(|_| !self.is_finished())
            .map(|start| start + self.replay.packets[self.next].0);
        // A time of 0 would stop the timer.
        let delay = Duration::from_nanos(due.map_or(0, |due| due.saturating_sub(now).max(1)));
        let value = rustix::time::Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: delay.subsec_nanos().into(),
            },
        };
        // The call cannot fail with a valid time. After a failure, the worker would find the packet when its
        // sleep times out.
        let _ = rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &value);
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.replay.packets.len() {
            self.next = 0;
            self.round_start = self.round_start.map(|start| start + self.replay.period);
            self.rounds_left = self.rounds_left.map(|rounds| rounds.saturating_sub(1));
        }
    }

    /// Ends the recording permanently after an error. The status of the queue then reports the error.
    fn stop_recording(&mut self, error: &dyn std::fmt::Display) {
        self.failed = Some(format!("recording stopped: {error}; free space on the disk and reopen the port"));
        self.recording = None;
    }

    /// Writes the buffered packets to the file, so that other programs can read them. The packets stay in the
    /// file even if the process is killed afterwards.
    fn flush(&mut self) {
        if !std::mem::take(&mut self.buffered) {
            return;
        }
        if let Some((writer, _)) = &mut self.recording
            && let Err(error) = writer.flush()
        {
            self.stop_recording(&error);
        }
    }

    fn now(&mut self) -> u64 {
        if self.timing == Timing::Original { (self.clock)() } else { 0 }
    }
}

impl Queue for PcapQueue {
    fn receive(&mut self, pool: &mut FramePool, out: &mut Batch) -> usize {
        let (before, now) = (out.len(), self.now());
        while !out.is_full() && self.is_due(now) {
            match pool.alloc_copy(self.replay.packet(self.next)) {
                Ok(packet) => out.push(packet),
                // The packet stays due, so a replay loses no packets for lack of frames.
                Err(_) => break,
            }
            self.advance();
        }
        out.len() - before
    }

    fn transmit(&mut self, pool: &mut FramePool, batch: &mut Batch) -> usize {
        let taken = batch.len();
        let now = if self.recording.is_some() && taken > 0 { (self.clock)() } else { 0 };
        self.buffered |= taken > 0;
        for packet in batch.drain(..) {
            if let Some((writer, interface)) = &mut self.recording {
                let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
                if let Err(error) = writer.packet(*interface, now, len, packet.parts(pool.memory()), None) {
                    self.stop_recording(&error);
                    self.counters.tx_invalid += 1;
                }
            } else if self.failed.is_some() {
                self.counters.tx_invalid += 1;
            }
            pool.free(packet);
        }
        taken
    }

    fn kick(&mut self, _pool: &mut FramePool) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.timer.as_ref().map(AsFd::as_fd)
    }

    /// Returns whether a packet to replay is due. The worker calls this function before it sleeps. Therefore the
    /// function also writes the buffered packets to the recorded file.
    fn has_pending(&mut self) -> bool {
        self.flush();
        let now = self.now();
        let due = self.is_due(now);
        if !due {
            self.arm(now);
        }
        due
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_segments: u16::MAX, max_frame: super::MAX_PACKET, ..Capabilities::default() }
    }

    fn counters(&self) -> QueueCounters {
        self.counters
    }

    fn status(&self) -> QueueStatus {
        QueueStatus {
            kind: "pcap",
            reasons: self.failed.clone().into_iter().collect(),
            ..QueueStatus::default()
        }
    }

    fn close(mut self: Box<Self>, _pool: &mut FramePool) {
        if let Some((mut writer, _)) = self.recording.take() {
            // An error cannot be reported any more. The records written before are complete.
            let _ = writer.flush();
        }
    }

    fn export(self: Box<Self>, pool: &mut FramePool) -> Exported {
        self.close(pool);
        Exported::Closed
    }
}
