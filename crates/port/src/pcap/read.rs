//! Reader of a capture file, which returns the packets of the file one by one.

use std::io::{self, Read};

use super::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_SECTION, BLOCK_SIMPLE, BYTE_ORDER, LINKTYPE_ETHERNET, MAGIC_MICRO,
    MAGIC_NANO, MAX_PACKET, OPT_COMMENT, OPT_DROP_COUNT, OPT_FLAGS, OPT_IF_NAME, OPT_TSRESOL, PcapError,
};

/// Maximum length of a pcapng block in bytes. A block of this length has space for a packet of [`MAX_PACKET`] bytes and
/// for as many bytes of options.
const MAX_BLOCK: u32 = 2 * MAX_PACKET + 64;
const MAX_INTERFACES: usize = 4096;

/// A packet that was read from a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Time stamp of the packet in nanoseconds since 1970.
    pub timestamp: u64,
    /// Number of the interface on which the packet was captured, within the section of the file that contains the
    /// packet. The number is 0 in classic pcap files.
    pub interface: u32,
    /// Length of the packet on the wire in bytes. The length is greater than the length of `data`
    /// if the packet was truncated.
    pub original_len: u32,
    /// Bytes of the packet that the file contains.
    pub data: Vec<u8>,
    /// Comment of the packet, which only pcapng files contain.
    pub comment: Option<String>,
    /// Whether the interface received (true) or transmitted (false) the packet. `None` if the file
    /// does not contain this information. Only pcapng files can contain the information.
    pub received: Option<bool>,
    /// Number of packets that were lost between the previous packet in the file and this packet. Only pcapng files
    /// contain this number.
    pub missed: u64,
}

/// Resolution of the time stamps of an interface.
#[derive(Clone, Copy, Debug)]
struct Resolution {
    /// Number of time stamp units per second.
    per_second: u64,
}

impl Resolution {
    const MICRO: Self = Self { per_second: 1_000_000 };

    /// Parses the value of the option `if_tsresol`, the resolution of the time stamps. If the highest bit is clear, a
    /// unit is 10^-n seconds, otherwise 2^-n seconds, where n is the number in the other bits. Returns `None` if the
    /// resolution is not supported.
    fn from_option(octet: u8) -> Option<Self> {
        let per_second = if octet & 0x80 == 0 {
            10_u64.checked_pow(u32::from(octet))?
        } else {
            1_u64.checked_shl(u32::from(octet & 0x7f)).filter(|ticks| *ticks != 0)?
        };
        Some(Self { per_second })
    }

    fn nanoseconds(self, ticks: u64) -> u64 {
        let wide = u128::from(ticks) * 1_000_000_000 / u128::from(self.per_second);
        u64::try_from(wide).unwrap_or(u64::MAX)
    }
}

/// Properties of an interface from its Interface Description Block in a pcapng file.
struct Described {
    resolution: Resolution,
    name: Option<String>,
}

enum Format {
    Classic { nano: bool },
    NextGeneration { interfaces: Vec<Described> },
}

/// A reader of one capture file or stream.
pub struct Reader<R> {
    input: R,
    at: u64,
    big_endian: bool,
    format: Format,
    block: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Creates a reader and reads the header of the file.
    ///
    /// # Errors
    /// [`PcapError`] if the input is not a capture file of Ethernet frames.
    pub fn new(mut input: R) -> Result<Self, PcapError> {
        let mut magic = [0; 4];
        input.read_exact(&mut magic)?;
        let format = Format::NextGeneration { interfaces: Vec::new() };
        let mut reader = Self { input, at: 4, big_endian: false, format, block: Vec::new() };
        let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
        if little == BLOCK_SECTION {
            reader.section()?;
            return Ok(reader);
        }
        let nano = match (little, big) {
            (MAGIC_MICRO, _) | (_, MAGIC_MICRO) => false,
            (MAGIC_NANO, _) | (_, MAGIC_NANO) => true,
            _ => return Err(PcapError::Magic),
        };
        reader.big_endian = big == MAGIC_MICRO || big == MAGIC_NANO;
        reader.format = Format::Classic { nano };
        let mut rest = [0; 20];
        reader.fill(&mut rest)?;
        // The upper bits of the link type word contain the length of the frame check sequence, if any.
        let link_type = reader.u32(&rest, 16) & 0xffff;
        if link_type != LINKTYPE_ETHERNET { Err(PcapError::LinkType(link_type)) } else { Ok(reader) }
    }

    /// Reads the next packet. Returns `None` at the end of the file.
    ///
    /// # Errors
    /// [`PcapError`] if the file is malformed or cannot be read.
    pub fn next_record(&mut self) -> Result<Option<Record>, PcapError> {
        match &self.format {
            Format::Classic { nano } => {
                let nano = *nano;
                self.classic(nano)
            }
            Format::NextGeneration { .. } => self.next_generation(),
        }
    }

    /// Returns the name of an interface in the current section. Returns `None` if the interface's description
    /// has not been read or contains no name.
    #[must_use]
    pub fn interface_name(&self, interface: u32) -> Option<&str> {
        let Format::NextGeneration { interfaces } = &self.format else { return None };
        interfaces.get(interface as usize)?.name.as_deref()
    }

    fn broken<T>(&self, what: &'static str) -> Result<T, PcapError> {
        Err(PcapError::Broken { at: self.at, what })
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]);
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn u16(&self, bytes: &[u8], at: usize) -> u16 {
        let word = bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).unwrap_or([0; 2]);
        if self.big_endian { u16::from_be_bytes(word) } else { u16::from_le_bytes(word) }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), PcapError> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.broken("the file ends in the middle of a record")
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Fills `bytes` from the file. Returns false if the file ends before the first byte.
    fn fill_or_end(&mut self, bytes: &mut [u8]) -> Result<bool, PcapError> {
        let (first, rest) = bytes.split_at_mut(1);
        loop {
            match self.input.read(first) {
                Ok(0) => return Ok(false),
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.at += 1;
        self.fill(rest)?;
        Ok(true)
    }

    fn classic(&mut self, nano: bool) -> Result<Option<Record>, PcapError> {
        let mut header = [0; 16];
        if !self.fill_or_end(&mut header)? {
            return Ok(None);
        }
        let (seconds, fraction) = (self.u32(&header, 0), self.u32(&header, 4));
        let (len, original_len) = (self.u32(&header, 8), self.u32(&header, 12));
        if len > MAX_PACKET {
            return self.broken("a packet longer than 262144 bytes");
        }
        let mut data = vec![0; len as usize];
        self.fill(&mut data)?;
        let fraction = u64::from(fraction) * if nano { 1 } else { 1000 };
        let timestamp = u64::from(seconds) * 1_000_000_000 + fraction;
        Ok(Some(Record { timestamp, original_len, data, ..Record::default() }))
    }

    fn next_generation(&mut self) -> Result<Option<Record>, PcapError> {
        loop {
            let mut kind = [0; 4];
            if !self.fill_or_end(&mut kind)? {
                return Ok(None);
            }
            // A section header has the same type in both byte orders, and sets the byte order of the section.
            if u32::from_le_bytes(kind) == BLOCK_SECTION {
                self.section()?;
                continue;
            }
            let kind = self.u32(&kind, 0);
            self.read_block()?;
            match kind {
                BLOCK_INTERFACE => self.interface()?,
                BLOCK_PACKET => return self.packet().map(Some),
                BLOCK_SIMPLE => return self.simple().map(Some),
                _ => {}
            }
        }
    }

    /// Reads the rest of a block, which consists of the length, the body and the trailing length. Stores the
    /// body in `self.block`.
    fn read_block(&mut self) -> Result<(), PcapError> {
        let mut len = [0; 4];
        self.fill(&mut len)?;
        let len = self.u32(&len, 0);
        self.read_body(len, 12)
    }

    /// Reads the rest of a block, whose total length is `len` bytes. `known` is the number of bytes of the block that
    /// have already been read, plus the length of the trailing length field. The other bytes of the block are the body.
    fn read_body(&mut self, len: u32, known: u32) -> Result<(), PcapError> {
        if !len.is_multiple_of(4) || len < known || len > MAX_BLOCK {
            return self.broken("a block of impossible length");
        }
        let mut body = std::mem::take(&mut self.block);
        body.resize((len - known + 4) as usize, 0);
        self.fill(&mut body)?;
        let trailer = self.u32(&body, body.len() - 4);
        body.truncate(body.len() - 4);
        self.block = body;
        if trailer == len { Ok(()) } else { self.broken("a block whose two lengths differ") }
    }

    fn section(&mut self) -> Result<(), PcapError> {
        let mut start = [0; 8];
        self.fill(&mut start)?;
        self.big_endian = match u32::from_le_bytes([start[4], start[5], start[6], start[7]]) {
            BYTE_ORDER => false,
            other if other.swap_bytes() == BYTE_ORDER => true,
            _ => return self.broken("a section without byte order"),
        };
        let len = self.u32(&start, 0);
        self.read_body(len, 16)?;
        self.format = Format::NextGeneration { interfaces: Vec::new() };
        Ok(())
    }

    fn interface(&mut self) -> Result<(), PcapError> {
        if self.block.len() < 8 {
            return self.broken("an interface block that is too short");
        }
        let link_type = u32::from(self.u16(&self.block, 0));
        if link_type != LINKTYPE_ETHERNET {
            return Err(PcapError::LinkType(link_type));
        }
        let mut resolution = Resolution::MICRO;
        if let Some(value) = self.option(8, OPT_TSRESOL) {
            match value.first().copied().and_then(Resolution::from_option) {
                Some(found) => resolution = found,
                None => return self.broken("a time resolution that cannot be"),
            }
        }
        let name = self.option(8, OPT_IF_NAME).map(|name| String::from_utf8_lossy(name).into_owned());
        match &mut self.format {
            Format::NextGeneration { interfaces } if interfaces.len() < MAX_INTERFACES => {
                interfaces.push(Described { resolution, name })
            }
            _ => return self.broken("too many interfaces"),
        }
        Ok(())
    }

    /// Returns the value of the first option of type `kind` in the block. The options begin at position `at`.
    /// Returns `None` if there is no such option.
    fn option(&self, mut at: usize, kind: u16) -> Option<&[u8]> {
        while at + 4 <= self.block.len() {
            let (found, len) = (self.u16(&self.block, at), usize::from(self.u16(&self.block, at + 2)));
            if found == 0 {
                return None;
            }
            let value = self.block.get(at + 4..at + 4 + len)?;
            if found == kind {
                return Some(value);
            }
            at += 4 + len.next_multiple_of(4);
        }
        None
    }

    fn resolution(&self, interface: u32) -> Result<Resolution, PcapError> {
        let Format::NextGeneration { interfaces } = &self.format else { return Ok(Resolution::MICRO) };
        match interfaces.get(interface as usize) {
            Some(described) => Ok(described.resolution),
            None => self.broken("a packet of an interface that was not described"),
        }
    }

    fn packet(&mut self) -> Result<Record, PcapError> {
        let block = &self.block;
        let (interface, len, original_len) = (self.u32(block, 0), self.u32(block, 12), self.u32(block, 16));
        let ticks = u64::from(self.u32(block, 4)) << 32 | u64::from(self.u32(block, 8));
        let Some(data) = block.get(20..).and_then(|data| data.get(..len as usize)).map(<[u8]>::to_vec) else {
            return self.broken("a packet longer than its block");
        };
        let timestamp = self.resolution(interface)?.nanoseconds(ticks);
        let option = |kind| self.option(20 + data.len().next_multiple_of(4), kind);
        let comment = option(OPT_COMMENT).map(|text| String::from_utf8_lossy(text).into_owned());
        let received = option(OPT_FLAGS).and_then(|flags| match self.u32(flags, 0) & 3 {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        });
        let missed = option(OPT_DROP_COUNT).and_then(|count| count.try_into().ok()).map_or(0, |count| {
            if self.big_endian { u64::from_be_bytes(count) } else { u64::from_le_bytes(count) }
        });
        Ok(Record { timestamp, interface, original_len, data, comment, received, missed })
    }

    fn simple(&mut self) -> Result<Record, PcapError> {
        let original_len = self.u32(&self.block, 0);
        self.resolution(0)?;
        let Some(held) = self.block.len().checked_sub(4) else {
            return self.broken("a packet block that is too short");
        };
        let len = held.min(original_len as usize);
        let data = self.block[4..4 + len].to_vec();
        Ok(Record { original_len, data, ..Record::default() })
    }
}
