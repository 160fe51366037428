//! Encoding and decoding of the mapping of tunnel options (TLVs of Geneve headers) to match fields:
//! NXT_TLV_TABLE_MOD, NXT_TLV_TABLE_REQUEST and NXT_TLV_TABLE_REPLY (Open vSwitch's `nicira-ext.h`).

use switch::flow::{OPTION_SPACE, OptionsMod, TUN_METADATA, TunnelOption, TunnelOptions};

use super::error::Error;
use super::ofp::nx;
use super::{NICIRA, Put, Reader, TooLong, Version, begin_experimenter, finish};

/// Decodes NXT_TLV_TABLE_MOD, which modifies the mapping of tunnel options to match fields. The reader starts after
/// the experimenter header.
///
/// # Errors
/// Returns NXTTMFC_BAD_COMMAND, and the errors of the reader.
pub fn get_mod(mut body: Reader<'_>) -> Result<OptionsMod, Error> {
    let command = body.u16()?;
    body.skip(6)?;
    let mut options = Vec::new();
    while !body.is_empty() {
        let (class, kind, octets, place) = (body.u16()?, body.u8()?, body.u8()?, body.u16()?);
        body.skip(2)?;
        options.push(TunnelOption { class, kind, octets, place });
    }
    match command {
        nx::NXTTMC_ADD => Ok(OptionsMod::Add(options)),
        nx::NXTTMC_DELETE => Ok(OptionsMod::Delete(options)),
        nx::NXTTMC_CLEAR => Ok(OptionsMod::Clear),
        _ => Err(Error::OptionCommand),
    }
}

fn put(out: &mut Vec<u8>, option: &TunnelOption) {
    out.u16(option.class);
    out.u8(option.kind);
    out.u8(option.octets);
    out.u16(option.place);
    out.zeros(2);
}

/// Encodes NXT_TLV_TABLE_REPLY. The reply contains the mapping of tunnel options to match fields,
/// and the maximum size of the mapping.
///
/// # Errors
/// Returns [`TooLong`] and encodes nothing if the message would be too long.
pub fn put_reply(
    out: &mut Vec<u8>,
    version: Version,
    xid: u32,
    options: &TunnelOptions,
) -> Result<(), TooLong> {
    let start = begin_experimenter(out, version, NICIRA, nx::NXT_TLV_TABLE_REPLY, xid);
    out.u32(OPTION_SPACE);
    out.u16(TUN_METADATA);
    out.zeros(10);
    options.iter().for_each(|option| put(out, option));
    finish(out, start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HEADER;

    #[test]
    fn a_change_is_read_whole_or_refused() {
        let octets = [0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0x02, 0x80, 4, 0, 3, 0, 0, 0xff, 0xff, 1, 8, 0, 0, 0, 0];
        let read = |octets: &[u8]| get_mod(Reader::new(octets, Error::BadLength));
        let first = TunnelOption { class: 0x0102, kind: 0x80, octets: 4, place: 3 };
        let second = TunnelOption { class: 0xffff, kind: 1, octets: 8, place: 0 };
        assert_eq!(read(&octets), Ok(OptionsMod::Add(vec![first, second])));
        for length in 0..octets.len() {
            assert_eq!(read(&octets[..length]).is_ok(), length >= 8 && length % 8 == 0, "{length}");
        }
        let mut other = octets;
        other[1] = 3;
        assert_eq!(read(&other), Err(Error::OptionCommand));
        other[1] = 2;
        assert_eq!(read(&other), Ok(OptionsMod::Clear));
    }

    #[test]
    fn what_is_mapped_is_told_with_its_limits() {
        let mut options = TunnelOptions::default();
        let option = TunnelOption { class: 0x0102, kind: 0x80, octets: 4, place: 3 };
        options.change(&OptionsMod::Add(vec![option]), |_| false).unwrap();
        let mut out = Vec::new();
        put_reply(&mut out, Version::V13, 7, &options).unwrap();
        let body = &out[HEADER + 8..];
        assert_eq!(body[..6], [0, 0, 0, 64, 0, 8]);
        assert_eq!(body[16..], [0x01, 0x02, 0x80, 4, 0, 3, 0, 0]);
    }
}
