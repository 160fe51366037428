//! Naive reader of the lines of FTP, which splits text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use conn::helper::ftp::{Announcement, Kind, LINE_MAX, NotRead};
use conn::tuple::Address;

/// Returns the payload as text with one character for each octet.
fn text_of(payload: &[u8]) -> String {
    payload.iter().map(|octet| char::from(*octet)).collect()
}

fn line_of(text: &str) -> Result<String, NotRead> {
    let start: String = text.chars().take(LINE_MAX).collect();
    let (line, _) = start.split_once('\n').ok_or(NotRead::Incomplete)?;
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

fn number(text: &str, digits: usize, largest: u32) -> Option<u32> {
    let is_valid = (1..=digits).contains(&text.len()) && text.chars().all(|digit| digit.is_ascii_digit());
    text.parse().ok().filter(|number| is_valid && *number <= largest)
}

fn port(text: &str) -> Option<u16> {
    u16::try_from(number(text, 5, 65_535)?).ok().filter(|port| *port > 0)
}

fn host_and_port(text: &str) -> Option<(IpAddr, u16)> {
    let octets: Option<Vec<u8>> =
        text.split(',').map(|text| u8::try_from(number(text, 3, 255)?).ok()).collect();
    let [a, b, c, d, high, low] = octets?[..] else { return None };
    let port = u16::from(high) * 256 + u16::from(low);
    (port > 0).then(|| (Ipv4Addr::new(a, b, c, d).into(), port))
}

fn extended(text: &str) -> Option<(IpAddr, u16)> {
    let delimiter = text.chars().next()?;
    if !delimiter.is_ascii_graphic() || delimiter.is_ascii_digit() {
        return None;
    }
    let parts: Vec<&str> = text.split(delimiter).collect();
    match parts[..] {
        ["", "1", address, number, ""] => Some((address.parse::<Ipv4Addr>().ok()?.into(), port(number)?)),
        ["", "2", address, number, ""] => Some((address.parse::<Ipv6Addr>().ok()?.into(), port(number)?)),
        _ => None,
    }
}

fn of_family<A: Address>(address: IpAddr) -> Result<A, NotRead> {
    let bits = match address {
        IpAddr::V4(address) if size_of::<A>() == 4 => u32::from(address).into(),
        IpAddr::V6(address) if size_of::<A>() == 16 => u128::from(address),
        _ => return Err(NotRead::Family),
    };
    A::try_from(bits).map_err(|_| NotRead::Family)
}

pub fn read_command<A: Address>(payload: &[u8]) -> Result<Announcement<A>, NotRead> {
    let text = text_of(payload);
    let verb: String = text.chars().take(5).collect();
    let kind = match &verb.to_ascii_uppercase()[..] {
        "PORT " => Kind::Port,
        "EPRT " => Kind::ExtendedPort,
        _ => return Err(NotRead::Other),
    };
    let line = line_of(&text)?;
    let arguments = line[5..].trim_start_matches(' ');
    let start = line.chars().count() - arguments.chars().count();
    let arguments = arguments.trim_end_matches(' ');
    let read = if kind == Kind::Port { host_and_port(arguments) } else { extended(arguments) };
    let (address, port) = read.ok_or(NotRead::Malformed)?;
    let address = Some(of_family(address)?);
    Ok(Announcement { kind, address, port, range: start..start + arguments.len() })
}

pub fn read_reply<A: Address>(payload: &[u8]) -> Result<Announcement<A>, NotRead> {
    let text = text_of(payload);
    let kind = match text.get(..4) {
        Some("227 ") => Kind::Passive,
        Some("229 ") => Kind::ExtendedPassive,
        _ => return Err(NotRead::Other),
    };
    let line: Vec<char> = line_of(&text)?.chars().collect();
    let open = line.iter().position(|c| *c == '(');
    let digit = line.iter().skip(4).position(|c| c.is_ascii_digit()).map(|at| at + 4);
    let start = match (kind, open) {
        (_, Some(open)) => open + 1,
        (Kind::Passive, None) => digit.ok_or(NotRead::Malformed)?,
        _ => return Err(NotRead::Malformed),
    };
    let rest: String = line[start..].iter().collect();
    if kind == Kind::Passive {
        let numbers: String = match open {
            Some(_) => rest.split_once(')').ok_or(NotRead::Malformed)?.0.to_owned(),
            None => rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect(),
        };
        let (address, port) = host_and_port(&numbers).ok_or(NotRead::Malformed)?;
        let address = Some(of_family(address)?);
        return Ok(Announcement { kind, address, port, range: start..start + numbers.len() });
    }
    let delimiter = rest.chars().next().ok_or(NotRead::Malformed)?;
    let is_delimiter = delimiter.is_ascii_graphic() && !delimiter.is_ascii_digit();
    let after = rest.strip_prefix(&delimiter.to_string().repeat(3)[..]).filter(|_| is_delimiter);
    let after = after.ok_or(NotRead::Malformed)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    if !after[digits.len()..].starts_with(&format!("{delimiter})")) {
        return Err(NotRead::Malformed);
    }
    let port = port(&digits).ok_or(NotRead::Malformed)?;
    Ok(Announcement { kind, address: None, port, range: start..start + digits.len() + 4 })
}
