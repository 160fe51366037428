//! Reads packets from capture files (pcap and pcapng) for the command line.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use port::pcap::Reader;

use crate::failure::Failure;

/// Reads the first packet of a capture file (pcap or pcapng).
///
/// # Errors
/// Returns an error if the file cannot be read or has no packet.
pub fn first_packet(path: &Path) -> Result<Vec<u8>, Failure> {
    let object = path.display().to_string();
    let fix = "name a pcap or pcapng file of Ethernet frames";
    let file = File::open(path).map_err(|error| Failure::new(object.clone(), error, fix))?;
    let record = Reader::new(BufReader::new(file)).and_then(|mut reader| reader.next_record());
    match record {
        Ok(Some(record)) => Ok(record.data),
        Ok(None) => Err(Failure::new(object, "it has no packets", fix)),
        Err(error) => Err(Failure::new(object, error, fix)),
    }
}
