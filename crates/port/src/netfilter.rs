//! Netfilter chains that affect forwarded packets in the calling thread's namespace. Packets that Trivium
//! forwards bypass these chains.

use std::ops::ControlFlow;

use rustix::net::netlink::NETFILTER;

use crate::netlink::{self, MessageRef, NLM_F_DUMP, Netlink, NetlinkError, Request};

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
/// Messages of a dump, and bytes of them, that are read: the owner of the namespace may have made millions.
const MESSAGES: usize = 10_000;
const BYTES: usize = 4 << 20;
/// Base chains whose rules are looked for.
const CHAINS: usize = 64;

/// Returns the names of base chains that affect forwarded packets: chains with rules, and chains with a drop
/// policy. An nftables chain is named like `table inet filter, chain forward`. For legacy iptables, which
/// reports no more detail, the result contains the tables in use.
///
/// # Errors
/// [`NetlinkError`] when the kernel refuses the request. A kernel without nftables is not an error.
pub fn chains() -> Result<Vec<String>, NetlinkError> {
    let mut found = old_tables();
    let asked = base_chains();
    let chains = match asked {
        Err(error) if matches!(error.errno(), libc::EPROTONOSUPPORT | libc::EINVAL | libc::EOPNOTSUPP) => {
            return Ok(found);
        }
        other => other?,
    };
    for chain in chains {
        if chain.drops || has_rule(&chain)? {
            found.push(format!("table {} {}, chain {}", chain.family_name, chain.table, chain.name));
        }
    }
    Ok(found)
}

/// A base chain that forwarded packets pass.
#[derive(Debug)]
struct Chain {
    family: u8,
    family_name: &'static str,
    table: String,
    name: String,
    /// Whether its policy is to drop.
    drops: bool,
}

/// How much of a dump is still read.
struct Budget {
    messages: usize,
    bytes: usize,
}

impl Budget {
    const WHOLE: Budget = Budget { messages: MESSAGES, bytes: BYTES };

    /// Takes a message off. Breaks off behind the last one.
    fn take(&mut self, message: &MessageRef<'_>) -> ControlFlow<()> {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(message.payload.len());
        if self.messages == 0 || self.bytes == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The base chains that forwarded packets pass, as many as are looked at.
fn base_chains() -> Result<Vec<Chain>, NetlinkError> {
    let (mut chains, mut budget) = (Vec::new(), Budget::WHOLE);
    // `struct nfgenmsg`: every family.
    let dump = Request::new(GETCHAIN, NLM_F_DUMP, &[0; 4]);
    Netlink::open_for(Some(NETFILTER))?.dump_until(dump, |message| {
        chains.extend(base_chain(message.payload));
        if chains.len() == CHAINS { ControlFlow::Break(()) } else { budget.take(&message) }
    })?;
    Ok(chains)
}

fn base_chain(payload: &[u8]) -> Option<Chain> {
    let (family, attributes) = split(payload)?;
    let (_, family_name) = FAMILIES.iter().find(|(number, _)| *number == family)?;
    let hook = attribute(attributes, CHAIN_HOOK)?;
    let number = attribute(hook, HOOK_NUMBER).and_then(big_endian);
    let passed = family == NETDEV || number.is_some_and(|number| ON_THE_WAY.contains(&number));
    let (table, name) = (word(attributes, CHAIN_TABLE)?, word(attributes, CHAIN_NAME)?);
    let drops = attribute(attributes, CHAIN_POLICY).and_then(big_endian) == Some(DROP);
    passed.then_some(Chain { family, family_name, table, name, drops })
}

/// Whether a chain has a rule. Old kernels dump the rules of all chains: with too many of them, it has one.
fn has_rule(chain: &Chain) -> Result<bool, NetlinkError> {
    let mut dump = Request::new(GETRULE, NLM_F_DUMP, &[chain.family, 0, 0, 0]);
    dump.text(RULE_TABLE, &chain.table).text(RULE_CHAIN, &chain.name);
    let (mut found, mut budget) = (false, Budget::WHOLE);
    let read = Netlink::open_for(Some(NETFILTER))?.dump_until(dump, |message| {
        let Some((family, attributes)) = split(message.payload) else { return budget.take(&message) };
        let is = |kind, wanted: &str| word(attributes, kind).is_some_and(|text| text == wanted);
        let own = family == chain.family && is(RULE_TABLE, &chain.table) && is(RULE_CHAIN, &chain.name);
        let goes_on = if own { ControlFlow::Break(()) } else { budget.take(&message) };
        found |= goes_on.is_break();
        goes_on
    });
    match read {
        // The chain has gone since.
        Err(error) if error.errno() == libc::ENOENT => Ok(false),
        read => read.map(|_| found),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_up_to_its_bounds() {
        let read = |length: usize| {
            let payload = vec![0; length];
            let message = MessageRef { kind: GETRULE, flags: 0, sequence: 1, payload: &payload };
            let mut budget = Budget::WHOLE;
            let read = (1..=1_000_000).find(|_| budget.take(&message).is_break());
            read.unwrap()
        };
        assert_eq!(read(100), MESSAGES);
        assert_eq!(read(1 << 12), 1 << 10);
    }
}
