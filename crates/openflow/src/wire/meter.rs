//! Encoding and decoding of meters (OpenFlow 1.3 and later).

use switch::flow::{Band, BandKind, Meter, MeterMod, MeterStats};

use super::error::Error;
use super::ofp::meter::*;
use super::{Put, Reader, low16, seconds};

/// Length of an encoded meter band in octets.
const BAND_LEN: u16 = 16;

/// Decodes the body of OFPT_METER_MOD.
///
/// # Errors
/// Returns OFPMMFC_* errors.
pub fn get_mod(mut from: Reader<'_>) -> Result<MeterMod, Error> {
    let (command, flags, id) = (from.u16()?, from.u16()?, from.u32()?);
    if command == OFPMC_DELETE {
        return Ok(MeterMod::Delete((id != OFPM_ALL).then_some(id)));
    }
    if !matches!(command, OFPMC_ADD | OFPMC_MODIFY) {
        return Err(Error::MeterCommand);
    }
    let units = OFPMF_KBPS | OFPMF_PKTPS;
    if flags & !(units | OFPMF_BURST | OFPMF_STATS) != 0 || flags & units == units {
        return Err(Error::MeterFlags);
    }
    let mut bands = Vec::new();
    while !from.is_empty() {
        bands.push(get_band(&mut from)?);
    }
    if bands.is_empty() {
        return Err(Error::MeterBand);
    }
    let meter = Meter {
        id,
        packets: flags & OFPMF_PKTPS != 0,
        bursts: flags & OFPMF_BURST != 0,
        stats: flags & OFPMF_STATS != 0,
        bands,
    };
    Ok(if command == OFPMC_ADD { MeterMod::Add(meter) } else { MeterMod::Modify(meter) })
}

fn get_band(from: &mut Reader<'_>) -> Result<Band, Error> {
    let (kind, length) = (from.u16()?, from.u16()?);
    let mut body = from.part(usize::from(length).checked_sub(4).ok_or(Error::BadLength)?)?;
    let (rate, burst) = (body.u32()?, body.u32()?);
    let kind = match (kind, length) {
        (OFPMBT_DROP, BAND_LEN) => BandKind::Drop,
        (OFPMBT_DSCP_REMARK, BAND_LEN) => BandKind::DscpRemark(body.u8()?),
        (OFPMBT_DROP | OFPMBT_DSCP_REMARK, _) => return Err(Error::BadLength),
        _ => return Err(Error::MeterBand),
    };
    Ok(Band { kind, rate, burst })
}

/// Encodes the flags, the ID and the bands of a meter.
fn put_body(out: &mut Vec<u8>, meter: &Meter) {
    out.u16(
        if meter.packets { OFPMF_PKTPS } else { OFPMF_KBPS }
            | if meter.bursts { OFPMF_BURST } else { 0 }
            | if meter.stats { OFPMF_STATS } else { 0 },
    );
    out.u32(meter.id);
    for band in &meter.bands {
        let (kind, level) = match band.kind {
            BandKind::Drop => (OFPMBT_DROP, 0),
            BandKind::DscpRemark(level) => (OFPMBT_DSCP_REMARK, level),
        };
        out.u16(kind);
        out.u16(BAND_LEN);
        out.u32(band.rate);
        out.u32(band.burst);
        out.u8(level);
        out.zeros(3);
    }
}

/// Encodes the body of a meter-mod that adds a meter.
pub fn put_mod(out: &mut Vec<u8>, meter: &Meter) {
    out.u16(OFPMC_ADD);
    put_body(out, meter);
}

/// Encodes a change of a meter that the bridge has made, as the body of a meter-mod.
pub(crate) fn put_request(out: &mut Vec<u8>, change: &MeterMod) {
    match change {
        MeterMod::Add(meter) => put_mod(out, meter),
        MeterMod::Modify(meter) => {
            out.u16(OFPMC_MODIFY);
            put_body(out, meter);
        }
        MeterMod::Delete(id) => {
            out.u16(OFPMC_DELETE);
            out.u16(0);
            out.u32(id.unwrap_or(OFPM_ALL));
        }
    }
}

/// Encodes the configuration of a meter.
pub fn put_config(out: &mut Vec<u8>, meter: &Meter) {
    let start = out.len();
    out.u16(0);
    put_body(out, meter);
    out.set_length(start, 0);
}

/// Encodes the counters of a meter.
pub fn put_stats(out: &mut Vec<u8>, meter: &MeterStats) {
    let (sec, nsec) = seconds(meter.age_ns);
    out.u32(meter.id);
    out.u16(low16(40 + meter.bands.len() * 16));
    out.zeros(6);
    out.u32(meter.flows);
    out.u64(meter.packets);
    out.u64(meter.bytes);
    out.u32(sec);
    out.u32(nsec);
    for (packets, bytes) in &meter.bands {
        out.u64(*packets);
        out.u64(*bytes);
    }
}
