//! Tests of the functions that read the payloads of FTP and TFTP: all forms, crafted payloads, and a comparison with a
//! naive reader over random changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "naive/ftp.rs"]
mod naive;

use std::net::{Ipv4Addr, Ipv6Addr};

use conn::helper::Helper;
use conn::helper::ftp::{Announcement, Kind, LINE_MAX, NotRead, Replacement, read_command, read_reply};
use conn::helper::tftp::{Request, read_request};
use conn::tuple::Address;
use proptest::prelude::*;

type Read<A> = Result<Announcement<A>, NotRead>;

fn four(address: &str) -> u32 {
    address.parse::<Ipv4Addr>().unwrap().to_bits()
}

fn six(address: &str) -> u128 {
    address.parse::<Ipv6Addr>().unwrap().to_bits()
}

/// Returns the kind, the address, the port and the text of an announcement.
fn parts<A: Address>(payload: &str, read: Read<A>) -> (Kind, Option<A>, u16, &str) {
    let Announcement { kind, address, port, range } = read.unwrap();
    (kind, address, port, &payload[range])
}

#[test]
fn commands_of_the_client_are_read() {
    let read = |line: &'static str| parts(line, read_command::<u32>(line.as_bytes()));
    let address = Some(four("192.168.1.2"));
    let port = (Kind::Port, address, 0x1234, "192,168,1,2,18,52");
    assert_eq!(read("PORT 192,168,1,2,18,52\r\n"), port);
    assert_eq!(read("port   192,168,1,2,18,52  \nLIST\r\n"), port);
    assert_eq!(read("pOrT 192,168,001,2,18,52\r\n"), (Kind::Port, address, 0x1234, "192,168,001,2,18,52"));
    assert_eq!(
        read("EPRT |1|192.168.1.2|6275|\r\n"),
        (Kind::ExtendedPort, address, 6275, "|1|192.168.1.2|6275|")
    );
    assert_eq!(
        read("eprt !1!192.168.1.2!65535! \r\n"),
        (Kind::ExtendedPort, address, 65_535, "!1!192.168.1.2!65535!")
    );
    let line = "EPRT |2|2001:db8::1:2|5282|\r\n";
    let read = parts(line, read_command::<u128>(line.as_bytes()));
    assert_eq!(read, (Kind::ExtendedPort, Some(six("2001:db8::1:2")), 5282, "|2|2001:db8::1:2|5282|"));
}

#[test]
fn replies_of_the_server_are_read() {
    let read = |line: &'static str| parts(line, read_reply::<u32>(line.as_bytes()));
    let passive = (Kind::Passive, Some(four("10.0.0.1")), 1025, "10,0,0,1,4,1");
    assert_eq!(read("227 Entering Passive Mode (10,0,0,1,4,1).\r\n"), passive);
    assert_eq!(read("227 (10,0,0,1,4,1)\n"), passive);
    assert_eq!(read("227 Text of 3 words (10,0,0,1,4,1) and 4 more\r\n"), passive);
    // RFC 1123 section 4.1.2.6: the parentheses may be absent.
    assert_eq!(read("227 Entering Passive Mode 10,0,0,1,4,1\r\n"), passive);
    assert_eq!(read("227 =10,0,0,1,4,1\r\n"), passive);
    let extended = (Kind::ExtendedPassive, None, 6446, "|||6446|");
    let line = "229 Entering Extended Passive Mode (|||6446|)\r\n";
    assert_eq!(read(line), extended);
    let (kind, address, port, text) = parts(line, read_reply::<u128>(line.as_bytes()));
    assert_eq!((kind, address, port, text), (Kind::ExtendedPassive, None, 6446, "|||6446|"));
    assert_eq!(read("229 (!!!1!)\n"), (Kind::ExtendedPassive, None, 1, "!!!1!"));
}

/// Asserts that a command or a reply, which the verb tells, is not read for a reason.
fn refused(why: NotRead, payload: &[u8]) {
    let read: Read<u32> =
        if payload.starts_with(b"22") { read_reply(payload) } else { read_command(payload) };
    assert_eq!(read, Err(why), "{}", payload.escape_ascii());
}

#[test]
fn other_lines_are_not_read() {
    let lines = ["", "P", "PORT", "PORT\r\n", "PORTS 1,2,3,4,5,6\r\n", " PORT 1,2,3,4,5,6\r\n", "QUIT\r\n"];
    for line in
        lines.into_iter().chain(["EPSV\r\n", "EPRT\t|1|1.2.3.4|5|\r\n", "LIST\r\nPORT 1,2,3,4,5,6\r\n"])
    {
        refused(NotRead::Other, line.as_bytes());
    }
    // A reply of several lines, another reply, and a reply in the other direction.
    for line in ["22", "227", "227\r\n", "227-(1,2,3,4,5,6)\r\n", "226 (1,2,3,4,5,6)\r\n", "228 (|||5|)\r\n"]
    {
        refused(NotRead::Other, line.as_bytes());
    }
    assert_eq!(read_command::<u32>(b"227 (1,2,3,4,5,6)\r\n"), Err(NotRead::Other));
    assert_eq!(read_reply::<u32>(b"PORT 1,2,3,4,5,6\r\n"), Err(NotRead::Other));
}

#[test]
fn lines_that_are_split_are_not_read() {
    for line in
        ["PORT 1,2,3,4,5,6\r\n", "EPRT |1|1.2.3.4|5000|\r\n", "227 (1,2,3,4,5,6)\r\n", "229 (|||5|)\r\n"]
    {
        for len in 0..line.len() {
            let verb = if line.starts_with('2') { 4 } else { 5 };
            let why = if len < verb { NotRead::Other } else { NotRead::Incomplete };
            refused(why, &line.as_bytes()[..len]);
        }
    }
}

#[test]
fn numbers_are_bounded() {
    let commands = [
        "256,0,0,1,4,1",
        "10,0,0,1,256,1",
        "10,0,0,1,4,256",
        "10,0,0,1,4,1000",
        "0010,0,0,1,4,1",
        "4294967306,0,0,1,4,1",
        "18446744073709551626,0,0,1,4,1",
        "10,0,0,1,4",
        "10,0,0,1,4,",
        "10,0,0,1,,1",
        ",10,0,0,1,4,1",
        "10,0,0,1,4,1,7",
        "10,0,0,1,0,0",
        "-1,0,0,1,4,1",
        "+1,0,0,1,4,1",
        "10.0.0.1.4.1",
        "10, 0,0,1,4,1",
        "10,0,0,1,4,1x",
        "10,0,0,1,4,1\0",
        "\x0010,0,0,1,4,1",
        "0x0a,0,0,1,4,1",
        "",
        "   ",
    ];
    for arguments in commands {
        refused(NotRead::Malformed, format!("PORT {arguments}\r\n").as_bytes());
        refused(NotRead::Malformed, format!("227 Passive ({arguments})\r\n").as_bytes());
    }
    let extended = [
        "|1|10.0.0.1|0|",
        "|1|10.0.0.1|65536|",
        "|1|10.0.0.1|100000|",
        "|1|10.0.0.1|00080|x",
        "|1|10.0.0.1|4294967376|",
        "|1|10.0.0.256|80|",
        "|1|010.0.0.1|80|",
        "|1|10.0.0|80|",
        "|1||80|",
        "|1|10.0.0.1||",
        "|1|10.0.0.1|80",
        "|1|10.0.0.1|80!",
        "|3|10.0.0.1|80|",
        "|11|10.0.0.1|80|",
        "||10.0.0.1|80|",
        "1110.0.0.118010",
        "|1|::1|80|",
        "|2|10.0.0.1|80|",
        "|2|::1%eth0|80|",
        "|2|1::2::3|80|",
        "|1|10.0.0.1|8 0|",
        "|1|10.0.0.1\0|80|",
        "|1|10.0.0.1|80\0|",
        "|1|\u{e9}|80|",
        "|",
        "||",
        "|||",
        "||||",
        "",
    ];
    for arguments in extended {
        refused(NotRead::Malformed, format!("EPRT {arguments}\r\n").as_bytes());
    }
    let ports =
        ["(|||0|)", "(|||65536|)", "(|||123456|)", "(||||)", "(||80|)", "(|||80|", "(|||80)", "(|||80|x)"];
    for text in ports.into_iter().chain(["|||80|", "(|||8\x000|)", "(|!|80|)", "(55580 5)", "()", "(", ""]) {
        refused(NotRead::Malformed, format!("229 Extended {text}\r\n").as_bytes());
    }
}

#[test]
fn addresses_of_the_other_family_are_refused() {
    refused(NotRead::Family, b"EPRT |2|::1|5000|\r\n");
    refused(NotRead::Family, b"EPRT |2|::ffff:10.0.0.1|5000|\r\n");
    for line in ["PORT 10,0,0,1,4,1\r\n", "EPRT |1|10.0.0.1|5000|\r\n"] {
        assert_eq!(read_command::<u128>(line.as_bytes()), Err(NotRead::Family));
    }
    assert_eq!(read_reply::<u128>(b"227 (10,0,0,1,4,1)\r\n"), Err(NotRead::Family));
}

/// Payloads of crafted packets, as those that have overflowed buffers of other trackers.
#[test]
fn crafted_payloads_are_refused() {
    let long = |start: &str, fill: u8, end: &str| {
        let mut payload = vec![fill; 65_535];
        payload[..start.len()].copy_from_slice(start.as_bytes());
        let at = payload.len() - end.len();
        payload[at..].copy_from_slice(end.as_bytes());
        payload
    };
    for start in
        ["PORT ", "PORT 10,0,0,1,4,", "EPRT |2|", "EPRT |1|10.0.0.1|", "227 (", "227 ", "229 (|||", "229 "]
    {
        for fill in *b"09,|( \0\xff\r" {
            refused(NotRead::Incomplete, &long(start, fill, ""));
            refused(NotRead::Incomplete, &long(start, fill, "\r\n"));
            // The end of the line is the last octet that is read, or the first one that is not read.
            let mut payload = long(start, fill, "");
            payload[LINE_MAX] = b'\n';
            refused(NotRead::Incomplete, &payload);
            payload[LINE_MAX - 1] = b'\n';
            refused(NotRead::Malformed, &payload);
        }
        refused(NotRead::Malformed, &long(&format!("{start}\0\r\n"), b'1', ""));
    }
    // A line of the largest length.
    let mut payload = b"PORT 10,0,0,1,4,1".to_vec();
    payload.resize(LINE_MAX - 2, b' ');
    payload.extend(b"\r\n");
    assert_eq!(read_command::<u32>(&payload).unwrap().range, 5..17);
    let mut payload = vec![b' '; LINE_MAX];
    payload[..4].copy_from_slice(b"227 ");
    payload[LINE_MAX - 15..].copy_from_slice(b"(10,0,0,1,4,1)\n");
    assert_eq!(read_reply::<u32>(&payload).unwrap().range, LINE_MAX - 14..LINE_MAX - 2);
    payload.insert(4, b' ');
    refused(NotRead::Incomplete, &payload);
}

#[test]
fn requests_of_tftp_are_read() {
    assert_eq!(read_request(b"\0\x01file\0octet\0"), Some(Request::Read));
    assert_eq!(read_request(b"\0\x02file\0NetASCII\0"), Some(Request::Write));
    assert_eq!(read_request(b"\0\x01a\0mail\0blksize\x001428\0"), Some(Request::Read));
    let others: [&[u8]; 16] = [
        b"",
        b"\0",
        b"\0\x01",
        b"\0\x01\0",
        b"\0\x01\0octet\0",
        b"\0\x01file\0",
        b"\0\x01file\0octet",
        b"\0\x01file\0\0",
        b"\0\x01file\0octets\0",
        b"\0\x01file",
        b"\0\x03file\0octet\0",
        b"\0\x04\0\x01",
        b"\x01\0file\0octet\0",
        b"\0\0file\0octet\0",
        b"\x01\x01file\0octet\0",
        b"\0\x05\0\x01x\0",
    ];
    for payload in others {
        assert_eq!(read_request(payload), None, "{}", payload.escape_ascii());
    }
    assert_eq!(read_request(&[&b"\0\x01"[..], &[b'a'; 65_000], b"\0octet\0"].concat()), Some(Request::Read));
    assert_eq!(read_request(&[&b"\0\x01"[..], &[b'a'; 65_000]].concat()), None);
}

#[test]
fn helpers_have_the_names_of_open_vswitch() {
    for (name, helper, protocol) in [("ftp", Helper::Ftp, 6), ("tftp", Helper::Tftp, 17)] {
        assert_eq!((Helper::from_name(name), helper.name()), (Some(helper), name));
        assert_eq!(helper.protocol(), protocol);
    }
    assert_eq!(Helper::from_name("sip"), None);
}

/// Applies a replacement to a payload in a buffer with this space after the payload.
fn replaced<A: Address>(
    payload: &str,
    read: Read<A>,
    address: A,
    port: u16,
    space: usize,
) -> Option<(String, i32)> {
    let Announcement { kind, range, .. } = read.unwrap();
    let replacement = Replacement { kind, range, address, port };
    let mut buffer = payload.as_bytes().to_vec();
    buffer.resize(payload.len() + space, 0xaa);
    let before = buffer.clone();
    let Some(difference) = replacement.apply(&mut buffer, payload.len()) else {
        assert_eq!(buffer, before);
        return None;
    };
    let len = payload.len().checked_add_signed(difference.try_into().unwrap()).unwrap();
    Some((String::from_utf8(buffer[..len].to_vec()).unwrap(), difference))
}

#[test]
fn the_address_and_the_port_are_replaced() {
    let (long, short) = (four("198.51.100.200"), four("1.2.3.4"));
    let command = |line: &'static str, address, port, space| {
        replaced(line, read_command(line.as_bytes()), address, port, space)
    };
    let port = "PORT 10,0,0,1,4,1\r\nNOOP\r\n";
    assert_eq!(command(port, long, 65_535, 10), Some(("PORT 198,51,100,200,255,255\r\nNOOP\r\n".into(), 10)));
    assert_eq!(command(port, long, 65_535, 9), None);
    assert_eq!(command(port, short, 256, 0), Some(("PORT 1,2,3,4,1,0\r\nNOOP\r\n".into(), -1)));
    assert_eq!(
        command("EPRT !1!10.0.0.1!5000!\r\n", long, 80, 20),
        Some(("EPRT |1|198.51.100.200|80|\r\n".into(), 4))
    );
    let line = "EPRT |2|2001:db8::1|5000|\r\n";
    let all = six("2001:db8:1111:2222:3333:4444:5555:6666");
    assert_eq!(
        replaced(line, read_command(line.as_bytes()), all, 65_535, 40),
        Some(("EPRT |2|2001:db8:1111:2222:3333:4444:5555:6666|65535|\r\n".into(), 28))
    );
    let line = "227 Entering Passive Mode (10,0,0,1,4,1).\r\n";
    assert_eq!(
        replaced(line, read_reply(line.as_bytes()), short, 1026, 0),
        Some(("227 Entering Passive Mode (1,2,3,4,4,2).\r\n".into(), -1))
    );
    let line = "229 Extended (|||9999|)\r\n";
    assert_eq!(
        replaced(line, read_reply(line.as_bytes()), all, 10_000, 1),
        Some(("229 Extended (|||10000|)\r\n".into(), 1))
    );
    // A range that is not in the buffer, and an address of the wrong family.
    let replacement = Replacement { kind: Kind::Port, range: 3..30, address: short, port: 1 };
    assert_eq!(replacement.apply(&mut [0; 20], 20), None);
    assert_eq!(Replacement { range: 3..30, ..replacement.clone() }.apply(&mut [0; 90], 29), None);
    assert_eq!(replacement.apply(&mut [0; 20], 21), None);
    #[allow(clippy::reversed_empty_ranges, reason = "the function is total")]
    let reversed = Replacement { range: 9..3, ..replacement };
    assert_eq!(reversed.apply(&mut [0; 90], 40), None);
    let six = Replacement { kind: Kind::Passive, range: 3..5, address: all, port: 1 };
    assert_eq!(six.apply(&mut [0; 90], 40), None);
}

/// One change of a payload: the kind of the change, the place, and the octet.
type Mutation = (u8, usize, u8);

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let common = proptest::sample::select(b"0123456789,|().: \r\n\0PORTeprtabcdef!-".to_vec());
    proptest::collection::vec((0..5_u8, any::<usize>(), prop_oneof![4 => common, 1 => any::<u8>()]), 0..5)
}

fn mutate(payload: &mut Vec<u8>, mutations: &[Mutation]) {
    for (kind, at, octet) in mutations {
        let at = at % (payload.len() + 1);
        match kind {
            0 => payload.insert(at, *octet),
            1 => payload.truncate(at.max(4)),
            2 if at < payload.len() => drop(payload.remove(at)),
            3 => payload.extend_from_within(at..),
            _ if at < payload.len() => payload[at] = *octet,
            _ => {}
        }
    }
}

fn lines() -> impl Strategy<Value = String> {
    let octets = || proptest::collection::vec(0..258_u16, 6);
    let joined = |octets: Vec<u16>| octets.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    let address = prop_oneof![
        any::<u32>().prop_map(|bits| format!("|1|{}|", Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| format!("|2|{}|", Ipv6Addr::from_bits(bits))),
    ];
    prop_oneof![
        octets().prop_map(move |octets| format!("PORT {}\r\n", joined(octets))),
        octets().prop_map(move |octets| format!("227 Passive Mode ({})\r\n", joined(octets))),
        octets().prop_map(move |octets| format!("227 Passive Mode {}\r\n", joined(octets))),
        (address, 0..66_000_u32).prop_map(|(address, port)| format!("EPRT {address}{port}|\r\n")),
        (0..66_000_u32).prop_map(|port| format!("229 Extended Passive Mode (|||{port}|)\r\n")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_agrees_with_a_naive_reader(line in lines(), mutations in mutations(), keep in 0..3_u8) {
        let mut payload = line.into_bytes();
        // A third of the lines is valid.
        if keep > 0 {
            mutate(&mut payload, &mutations);
        }
        prop_assert_eq!(read_command::<u32>(&payload), naive::read_command(&payload));
        prop_assert_eq!(read_command::<u128>(&payload), naive::read_command(&payload));
        prop_assert_eq!(read_reply::<u32>(&payload), naive::read_reply(&payload));
        prop_assert_eq!(read_reply::<u128>(&payload), naive::read_reply(&payload));
    }

    /// The replaced line announces the new end, and the rest of the payload is unchanged.
    #[test]
    fn a_replaced_line_announces_the_new_end(line in lines(), address: u32, port in 1..=u16::MAX, rest: Vec<u8>) {
        let payload = [line.as_bytes(), &rest].concat();
        let read = read_command::<u32>(&payload).or_else(|_| read_reply(&payload));
        let Ok(Announcement { kind, range, address: old, .. }) = read else { return Ok(()) };
        let mut buffer = payload.clone();
        buffer.resize(payload.len() + 64, 0);
        let replacement = Replacement { kind, range: range.clone(), address, port };
        let difference = replacement.apply(&mut buffer, payload.len()).unwrap();
        let len = payload.len().checked_add_signed(difference.try_into().unwrap()).unwrap();
        let (start, tail) = (&buffer[..range.start], &buffer[range.end.checked_add_signed(difference.try_into().unwrap()).unwrap()..len]);
        prop_assert_eq!((start, tail), (&payload[..range.start], &payload[range.end..]));
        let new = read_command::<u32>(&buffer[..len]).or_else(|_| read_reply(&buffer[..len])).unwrap();
        prop_assert_eq!((new.kind, new.address, new.port), (kind, old.map(|_| address), port));
    }

    #[test]
    fn any_octets_are_read_without_a_panic(payload: Vec<u8>) {
        let _ = (read_command::<u32>(&payload), read_reply::<u128>(&payload), read_request(&payload));
    }
}
