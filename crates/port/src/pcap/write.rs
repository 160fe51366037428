//! Writer of capture files with nanosecond time stamps. The writer creates either pcapng files with several
//! interfaces and comments, or classic pcap files.

use std::io::{self, Write};

use super::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_SECTION, BYTE_ORDER, LINKTYPE_ETHERNET, MAGIC_NANO, MAX_PACKET,
    OPT_COMMENT, OPT_DROP_COUNT, OPT_FLAGS, OPT_IF_NAME, OPT_TSRESOL,
};

/// Maximum length of a packet comment in bytes.
const MAX_COMMENT: usize = 1024;

/// An interface of a capture file, which `Writer::interface` has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface(u32);

/// Additional information about a packet, which pcapng files can store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes<'a> {
    /// Comment of the packet, or `None` for no comment.
    pub comment: Option<&'a str>,
    /// Whether the interface received (true) or transmitted (false) the packet. `None` if this is not known.
    pub received: Option<bool>,
    /// Number of packets that were lost between the previous packet in the file and this packet.
    pub missed: u64,
}

/// A writer of one capture file or stream. Each call writes complete records to the output. The writer does
/// not buffer records.
pub struct Writer<W> {
    output: W,
    classic: bool,
    interfaces: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Creates a writer and begins a pcapng file.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn pcapng(output: W) -> io::Result<Self> {
        let mut writer = Self { output, classic: false, interfaces: 0, block: Vec::new() };
        writer.block.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        // Version 1.0; the section's length is not known.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.option(4, b"trivium");
        writer.finish(BLOCK_SECTION)?;
        Ok(writer)
    }

    /// Creates a writer and begins a classic pcap file with nanosecond time stamps.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn classic(mut output: W) -> io::Result<Self> {
        let mut header = Vec::from(MAGIC_NANO.to_le_bytes());
        header.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        header.extend_from_slice(&MAX_PACKET.to_le_bytes());
        header.extend_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        output.write_all(&header)?;
        Ok(Self { output, classic: true, interfaces: 0, block: Vec::new() })
    }

    /// Adds an interface to the file. Packets can then be written for this interface, which usually represents a port.
    /// A classic pcap file has only one interface.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        let interface = Interface(self.interfaces);
        if !self.classic {
            self.block.extend_from_slice(&[1, 0, 0, 0]);
            self.block.extend_from_slice(&MAX_PACKET.to_le_bytes());
            self.option(OPT_IF_NAME, &name.as_bytes()[..name.len().min(255)]);
            self.option(OPT_TSRESOL, &[9]);
            self.finish(BLOCK_INTERFACE)?;
        }
        self.interfaces += 1;
        Ok(interface)
    }

    /// Writes a packet, which is the concatenation of `parts`. `timestamp` is the time in nanoseconds since 1970, and
    /// `original_len` is the length on the wire in bytes. A classic pcap file cannot store `comment`, which is ignored
    /// in this case.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn packet<'a>(
        &mut self,
        interface: Interface,
        timestamp: u64,
        original_len: u32,
        parts: impl IntoIterator<Item = &'a [u8]>,
        comment: Option<&str>,
    ) -> io::Result<()> {
        self.annotated(interface, timestamp, original_len, parts, &Notes { comment, ..Notes::default() })
    }

    /// Writes a packet like [`Writer::packet`], with all additional information in `notes`. A classic pcap file cannot
    /// store this information, which is ignored in this case.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn annotated<'a>(
        &mut self,
        interface: Interface,
        timestamp: u64,
        original_len: u32,
        parts: impl IntoIterator<Item = &'a [u8]>,
        notes: &Notes<'_>,
    ) -> io::Result<()> {
        let header = if self.classic { 16 } else { 20 };
        self.block.clear();
        self.block.resize(header, 0);
        for part in parts {
            let room = (MAX_PACKET as usize + header).saturating_sub(self.block.len());
            self.block.extend_from_slice(&part[..part.len().min(room)]);
        }
        let len = u32::try_from(self.block.len() - header).unwrap_or(MAX_PACKET);
        let mut put = |at: usize, value: u64| {
            let low = u32::try_from(value & 0xffff_ffff).unwrap_or(0);
            self.block[at..at + 4].copy_from_slice(&low.to_le_bytes());
        };
        if self.classic {
            put(0, timestamp / 1_000_000_000);
            put(4, timestamp % 1_000_000_000);
            put(8, len.into());
            put(12, original_len.into());
            let written = self.output.write_all(&self.block);
            self.block.clear();
            return written;
        }
        put(0, interface.0.into());
        put(4, timestamp >> 32);
        put(8, timestamp);
        put(12, len.into());
        put(16, original_len.into());
        self.block.resize(self.block.len().next_multiple_of(4), 0);
        self.notes(notes);
        self.finish(BLOCK_PACKET)
    }

    fn notes(&mut self, notes: &Notes<'_>) {
        if let Some(received) = notes.received {
            let flags: u32 = if received { 1 } else { 2 };
            self.option(OPT_FLAGS, &flags.to_le_bytes());
        }
        if notes.missed > 0 {
            self.option(OPT_DROP_COUNT, &notes.missed.to_le_bytes());
        }
        if let Some(comment) = notes.comment {
            let end = (0..=comment.len().min(MAX_COMMENT))
                .rev()
                .find(|i| comment.is_char_boundary(*i))
                .unwrap_or(0);
            self.option(OPT_COMMENT, &comment.as_bytes()[..end]);
        }
    }

    /// Flushes the output and returns the output.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    /// Flushes records that the output has buffered to the operating system.
    ///
    /// # Errors
    /// The error that the output returned.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn option(&mut self, kind: u16, value: &[u8]) {
        self.block.extend_from_slice(&kind.to_le_bytes());
        self.block.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
        self.block.extend_from_slice(value);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self, kind: u32) -> io::Result<()> {
        let len = u32::try_from(self.block.len() + 12).unwrap_or(u32::MAX).to_le_bytes();
        let written = self
            .output
            .write_all(&kind.to_le_bytes())
            .and_then(|()| self.output.write_all(&len))
            .and_then(|()| self.output.write_all(&self.block))
            .and_then(|()| self.output.write_all(&len));
        self.block.clear();
        written
    }
}
