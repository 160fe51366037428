//! Wire formats of the requests that remove connections: NXT_CT_FLUSH_ZONE and NXT_CT_FLUSH (Open vSwitch's
//! `nicira-ext.h`).

use std::net::{IpAddr, Ipv6Addr};

use switch::flow::{ConnectionFilter, TupleFilter};

use super::error::Error;
use super::ofp::nx;
use super::reader::{Reader, properties};

/// Decodes the body of NXT_CT_FLUSH_ZONE.
pub fn get_flush_zone(mut body: Reader<'_>) -> Result<ConnectionFilter, Error> {
    if body.take(6)? != [0; 6] {
        return Err(Error::MustBeZero);
    }
    let zone = Some(body.u16()?);
    if !body.is_empty() {
        return Err(Error::BadLength);
    }
    Ok(ConnectionFilter { zone, ..ConnectionFilter::default() })
}

/// Decodes the body of NXT_CT_FLUSH.
pub fn get_flush(mut body: Reader<'_>) -> Result<ConnectionFilter, Error> {
    let protocol = body.u8()?;
    body.skip(7)?;
    let mut filter =
        ConnectionFilter { protocol: (protocol != 0).then_some(protocol), ..ConnectionFilter::default() };
    properties(Reader::new(body.data, Error::PropertyLength), |kind, mut value| {
        match kind {
            nx::NXT_CT_ORIG_TUPLE => filter.original = tuple(value)?,
            nx::NXT_CT_REPLY_TUPLE => filter.reply = tuple(value)?,
            nx::NXT_CT_ZONE_ID => filter.zone = Some(value.u16()?),
            _ => return Err(Error::PropertyType),
        }
        Ok(())
    })?;
    Ok(filter)
}

/// Decodes the values of a tuple. An IPv4 address has the form of an IPv4-mapped IPv6 address (RFC 4291 section
/// 2.5.5.2). Type and code of ICMP do not restrict the selection, because both directions of a query are one
/// connection.
fn tuple(mut value: Reader<'_>) -> Result<TupleFilter, Error> {
    let mut filter = TupleFilter::default();
    value.skip(4)?;
    properties(value, |kind, mut value| {
        let mut address = || -> Result<Option<IpAddr>, Error> {
            let octets: [u8; 16] = value.take(16)?.try_into().map_err(|_| Error::PropertyLength)?;
            let address = Ipv6Addr::from(octets);
            Ok(Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)))
        };
        match kind {
            nx::NXT_CT_TUPLE_SRC => filter.source = address()?,
            nx::NXT_CT_TUPLE_DST => filter.destination = address()?,
            nx::NXT_CT_TUPLE_SRC_PORT => filter.source_port = Some(value.u16()?),
            nx::NXT_CT_TUPLE_DST_PORT => filter.destination_port = Some(value.u16()?),
            // A tuple that the client has not given has the identifier 0.
            nx::NXT_CT_TUPLE_ICMP_ID => filter.identifier = Some(value.u16()?).filter(|id| *id != 0),
            nx::NXT_CT_TUPLE_ICMP_TYPE | nx::NXT_CT_TUPLE_ICMP_CODE => {}
            _ => return Err(Error::PropertyType),
        }
        Ok(())
    })?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// Decodes the octets that `ovs-ofctl ct-flush` of Open vSwitch 3.1 sends.
    #[test]
    fn requests_of_the_stock_client_are_decoded() {
        let read = |text: &str| get_flush(Reader::new(&octets(text), Error::BadLength)).unwrap();
        let filter = read(
            "06000000 00000000 00000028 00000000 00000014 00000000 00000000 0000ffff 0a000001 00000000
             00020008 00010000 00010020 00000000 00010014 00000000 00000000 0000ffff 0a000009 00000000
             00020008 00050000",
        );
        let original = TupleFilter {
            source: Some("10.0.0.1".parse().unwrap()),
            source_port: Some(1),
            ..TupleFilter::default()
        };
        let reply = TupleFilter { destination: Some("10.0.0.9".parse().unwrap()), ..TupleFilter::default() };
        assert_eq!(filter, ConnectionFilter { zone: Some(5), protocol: Some(6), original, reply });
        let filter = read(
            "3a000000 00000000 00000038 00000000 00000014 00000000 00000000 00000000 00000001 00000000
             00040008 00070000 00050005 08000000 00060005 00000000 00010020 00000000 00040008 00000000
             00050005 00000000 00060005 00000000",
        );
        let original = TupleFilter {
            source: Some("::1".parse().unwrap()),
            identifier: Some(7),
            ..TupleFilter::default()
        };
        assert_eq!((filter.protocol, filter.original), (Some(58), original));
        assert_eq!((filter.zone, filter.reply), (None, TupleFilter::default()));
        assert_eq!(read("00000000 00000000"), ConnectionFilter::default());
        let zone = octets("000000000000 0007");
        assert_eq!(get_flush_zone(Reader::new(&zone, Error::BadLength)).unwrap().zone, Some(7));
        let bad = octets("000000000001 0007");
        assert_eq!(get_flush_zone(Reader::new(&bad, Error::BadLength)), Err(Error::MustBeZero));
    }
}
