//! Tests of the actions of the connection tracker on the wire: their octets, the errors for invalid actions, and their
//! text compared with that of the stock `ovs-ofctl`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::process::{Command, Stdio};

use openflow::wire::error::Error;
use openflow::wire::{Reader, Version, action};
use switch::flow::{
    Action, Ct, CtNat, Field, Match, NatEnd, NatRange, NatSelection, SubField, ZoneSource, text,
};
use testbed::{have_command, skip};

fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn encode(version: Version, action: &Action) -> Vec<u8> {
    let mut out = Vec::new();
    action::put_actions(&mut out, version, std::slice::from_ref(action));
    out
}

fn decode(version: Version, octets: &[u8]) -> Result<Vec<Action>, Error> {
    action::get_actions(Reader::new(octets, Error::ActionLength), version, &Match::ANY)
}

fn nat(end: NatEnd, range: &str, ports: Option<(u16, u16)>, selection: NatSelection) -> Option<CtNat> {
    let addresses =
        range.split_once('-').map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()));
    Some(CtNat::New(NatRange { end, addresses, ports, persistent: false, selection }))
}

fn set_mark(load: bool) -> Action {
    Action::Set { field: Field::CtMark, value: 1, mask: 0xffff_ffff, load }
}

/// Returns valid actions. `load` is true for versions in which an action that sets a field is a load action.
fn actions(load: bool) -> Vec<Action> {
    let source = SubField { field: Field::Reg0, first: 0, bits: 16 };
    let persistent =
        match nat(NatEnd::Destination, "2001:db8::1-2001:db8::1", Some((80, 90)), NatSelection::Hash) {
            Some(CtNat::New(range)) => Some(CtNat::New(NatRange { persistent: true, ..range })),
            other => other,
        };
    let label = SubField { field: Field::CtLabel, first: 64, bits: 32 };
    let copy = Action::Move { from: SubField::whole(Field::Reg1), to: label };
    let commit = Ct { commit: true, ..Ct::default() };
    let all = [
        Ct::default(),
        Ct { table: Some(7), nat: Some(CtNat::Existing), ..Ct::default() },
        Ct { zone: ZoneSource::Field(source), ..Ct::default() },
        Ct {
            force: true,
            zone: ZoneSource::Number(5),
            table: Some(1),
            alg: 21,
            nat: nat(NatEnd::Source, "10.0.0.1-10.0.0.9", Some((1000, 2000)), NatSelection::Random),
            exec: vec![set_mark(load)],
            ..commit.clone()
        },
        Ct { nat: persistent, alg: 69, exec: vec![copy], ..commit.clone() },
        Ct { nat: nat(NatEnd::Source, "::1-::2", Some((9, 9)), NatSelection::Any), ..commit.clone() },
        Ct { nat: nat(NatEnd::Destination, "::1-::2", None, NatSelection::Any), ..commit.clone() },
        Ct { nat: nat(NatEnd::Source, "", None, NatSelection::Hash), ..commit.clone() },
        Ct { nat: nat(NatEnd::Destination, "10.0.0.1-10.0.0.1", None, NatSelection::Any), ..commit },
    ];
    let all = all.into_iter().map(|ct| Action::Ct(Box::new(ct)));
    all.chain([Action::CtClear]).collect()
}

/// Octets that ovs-ofctl 3.1 sends in OpenFlow 1.3.
#[test]
fn actions_have_the_octets_of_open_vswitch() {
    let all = actions(false);
    for (place, expected) in [
        (0, "ffff 0018 00002320 0023 0000 00000000 0000 ff000000 0000"),
        (2, "ffff 0018 00002320 0023 0000 00010004 000f ff000000 0000"),
        (
            3,
            "ffff 0048 00002320 0023 0003 00000000 0005 01000000 0015
             ffff 0020 00002320 0024 0000 0011 0033 0a000001 0a000009 03e8 07d0 00000000
             0019 0010 0001d604 00000001 00000000",
        ),
        (
            7,
            "ffff 0028 00002320 0023 0001 00000000 0000 ff000000 0000 ffff 0010 00002320 0024 0000 0009 0000",
        ),
        (9, "ffff 0010 00002320 002b 000000000000"),
    ] {
        assert_eq!(encode(Version::V13, &all[place]), octets(expected), "{place}");
        assert_eq!(decode(Version::V13, &octets(expected)), Ok(vec![all[place].clone()]), "{place}");
    }
    for version in Version::ALL {
        for action in actions(version <= Version::V11) {
            assert_eq!(decode(version, &encode(version, &action)), Ok(vec![action]), "{version}");
        }
    }
}

#[test]
fn invalid_actions_are_refused() {
    let ct = |flags: &str, nested: &str| {
        let nested = octets(nested);
        let mut all = octets(&format!("ffff 0000 00002320 0023 {flags} 00000000 0000 ff000000 0000"));
        all[3] = u8::try_from(24 + nested.len()).unwrap();
        all.extend(nested);
        all
    };
    let range = |flags: &str, values: &str| {
        let mut nested = octets(&format!("ffff 0000 00002320 0024 0000 {flags} {values}"));
        nested.resize(nested.len().next_multiple_of(8), 0);
        nested[3] = u8::try_from(nested.len()).unwrap();
        nested.iter().map(|octet| format!("{octet:02x}")).collect::<String>()
    };
    let mark = "ffff 0018 00002320 0007 001f 0001d604 0000000000000001";
    let register = "ffff 0018 00002320 0007 001f 00010004 0000000000000001";
    let inner = "ffff 0018 00002320 0023 0000 00000000 0000 ff000000 0000";
    let (clear, plain) = ("ffff 0010 00002320 002b 000000000000", "ffff 0010 00002320 0024 0000 0000 0000");
    let bad = Error::ActionArgument;
    for (octets, expected) in [
        (ct("0004", ""), bad),
        (ct("0002", ""), bad),
        (ct("0000", mark), bad),
        (ct("0001", register), bad),
        (ct("0001", inner), bad),
        (ct("0001", clear), bad),
        (ct("0001", &format!("ffff 0020 00002320 002a 000000000000 {plain}")), bad),
        (ct("0001", &format!("{plain} {plain}")), bad),
        // Both ends, no end, two selections, unknown bits.
        (ct("0001", &range("0003 0000", "")), bad),
        (ct("0001", &range("0004 0000", "")), bad),
        (ct("0001", &range("0000 0001", "01020304")), bad),
        (ct("0001", &range("0019 0000", "")), bad),
        (ct("0001", &range("0021 0000", "")), bad),
        (ct("0001", &range("0001 0041", "01020304")), bad),
        // Without a commit, an end before its beginning, no beginning, two families, ports alone, the port 0.
        (ct("0000", &range("0001 0001", "01020304")), bad),
        (ct("0001", &range("0001 0003", "01020304 01020303")), bad),
        (ct("0001", &range("0001 0002", "01020304")), bad),
        (ct("0001", &range("0001 0005", "01020304 00000000000000000000000000000001")), bad),
        (ct("0001", &range("0001 0010", "0050")), bad),
        (ct("0001", &range("0001 0011", "01020304 0000")), bad),
        // A zone field with 32 bits, behind its end, and without a name.
        (octets("ffff 0018 00002320 0023 0000 00010004 001f ff000000 0000"), Error::ActionSetLength),
        (octets("ffff 0018 00002320 0023 0000 00010004 044f ff000000 0000"), Error::ActionSetLength),
        (octets("ffff 0018 00002320 0023 0000 ffff0204 000f ff000000 0000"), Error::ActionSetType),
        (octets("ffff 0018 00002320 002b 000000000000 0000000000000000"), Error::ActionLength),
        (octets(plain), Error::ActionSetArgument),
        (octets(&format!("ffff 0020 00002320 002a 000000000000 {plain}")), Error::ActionSetArgument),
    ] {
        assert_eq!(decode(Version::V10, &octets), Err(expected), "{octets:02x?}");
    }
}

/// Checks that the text of each action is the text that `ovs-ofctl` prints for the action's octets.
#[test]
fn actions_are_printed_as_by_open_vswitch() {
    if !have_command("ovs-ofctl") {
        return skip("needs the command ovs-ofctl ('make setup' installs it)");
    }
    for (name, version) in
        [("OpenFlow10", Version::V10), ("OpenFlow13", Version::V13), ("OpenFlow15", Version::V15)]
    {
        let all = actions(version == Version::V10);
        let mut client = Command::new("ovs-ofctl");
        client.args(["parse-actions", name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = client.spawn().unwrap();
        let mut stdin = client.stdin.take().unwrap();
        for action in &all {
            let digits: Vec<String> =
                encode(version, action).iter().map(|octet| format!("{octet:02x}")).collect();
            writeln!(stdin, "{}", digits.concat()).unwrap();
        }
        drop(stdin);
        let printed = String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap();
        let printed: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
        let expected: Vec<String> = all.iter().map(|own| format!("actions={}", text::action(own))).collect();
        assert_eq!(printed, expected, "{name}");
    }
}
