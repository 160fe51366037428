//! Netfilter chains that affect forwarded packets in the calling thread's namespace. Packets that Trivium
//! forwards bypass these chains.

use std::collections::BTreeMap;

use rustix::net::netlink::NETFILTER;

use crate::netlink::{self, NLM_F_DUMP, Netlink, NetlinkError, Request};

/// `NFNL_SUBSYS_NFTABLES` in the upper byte of a message type.
const NFTABLES: u16 = 10 << 8;
const GETCHAIN: u16 = NFTABLES | 4;
const GETRULE: u16 = NFTABLES | 7;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
/// Families with their `NFPROTO_*` numbers.
const FAMILIES: [(u8, &str); 4] = [(1, "inet"), (2, "ip"), (5, "netdev"), (10, "ip6")];
const NETDEV: u8 = 5;
/// Hooks that a forwarded packet passes: PRE_ROUTING, FORWARD and POST_ROUTING.
const ON_THE_WAY: [u32; 3] = [0, 2, 4];
const DROP: u32 = 0;

/// Returns the names of base chains that affect forwarded packets: chains with rules, and chains with a drop
/// policy. An nftables chain is named like `table inet filter, chain forward`. For legacy iptables, which
/// reports no more detail, the result contains the tables in use.
///
/// # Errors
/// [`NetlinkError`] when the kernel refuses the request. A kernel without nftables is not an error.
pub fn chains() -> Result<Vec<String>, NetlinkError> {
    let mut found = old_tables();
    // `struct nfgenmsg` for all families.
    let dump = |kind| Request::new(kind, NLM_F_DUMP, &[0; 4]);
    let asked = Netlink::open_for(Some(NETFILTER))
        .and_then(|mut netlink| Ok((netlink.transact(dump(GETCHAIN))?, netlink.transact(dump(GETRULE))?)));
    let (chains, rules) = match asked {
        Err(error) if matches!(error.errno(), libc::EPROTONOSUPPORT | libc::EINVAL | libc::EOPNOTSUPP) => {
            return Ok(found);
        }
        other => other?,
    };
    let mut ruled: BTreeMap<(u8, String, String), usize> = BTreeMap::new();
    for rule in &rules {
        let Some((family, attributes)) = split(&rule.payload) else { continue };
        if let (Some(table), Some(chain)) = (word(attributes, RULE_TABLE), word(attributes, RULE_CHAIN)) {
            *ruled.entry((family, table, chain)).or_default() += 1;
        }
    }
    for chain in &chains {
        let Some((family, attributes)) = split(&chain.payload) else { continue };
        let Some((_, family_name)) = FAMILIES.iter().find(|(number, _)| *number == family) else { continue };
        let Some(hook) = attribute(attributes, CHAIN_HOOK) else { continue };
        let number = attribute(hook, HOOK_NUMBER).and_then(big_endian);
        let passed = family == NETDEV || number.is_some_and(|number| ON_THE_WAY.contains(&number));
        let (Some(table), Some(name)) = (word(attributes, CHAIN_TABLE), word(attributes, CHAIN_NAME)) else {
            continue;
        };
        let drops = attribute(attributes, CHAIN_POLICY).and_then(big_endian) == Some(DROP);
        if passed && (drops || ruled.contains_key(&(family, table.clone(), name.clone()))) {
            found.push(format!("table {family_name} {table}, chain {name}"));
        }
    }
    Ok(found)
}

fn old_tables() -> Vec<String> {
    let of = |command: &'static str, file: &str| {
        let names = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        names.lines().map(|name| format!("{command} table {name}")).collect::<Vec<_>>()
    };
    [of("iptables", "ip_tables_names"), of("ip6tables", "ip6_tables_names")].concat()
}

/// Returns the family and the attributes of a message.
fn split(payload: &[u8]) -> Option<(u8, &[u8])> {
    Some((*payload.first()?, payload.get(4..)?))
}

fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    netlink::attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn word(attributes: &[u8], wanted: u16) -> Option<String> {
    attribute(attributes, wanted).map(netlink::text)
}

fn big_endian(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?))
}
