//! Finds the netfilter chains in the calling thread's namespace that the kernel would apply to forwarded
//! packets. Packets that Trivium forwards bypass these chains.

use std::ops::ControlFlow;

use rustix::net::netlink::NETFILTER;

use crate::netlink::{self, MessageRef, NLM_F_DUMP, Netlink, NetlinkError, Request};

/// Number of the nftables subsystem (`NFNL_SUBSYS_NFTABLES`), in the upper byte of a message type.
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
/// Netfilter families that are searched for chains, with their `NFPROTO_*` numbers and names.
const FAMILIES: [(u8, &str); 4] = [(1, "inet"), (2, "ip"), (5, "netdev"), (10, "ip6")];
const NETDEV: u8 = 5;
/// Numbers of the netfilter hooks that a forwarded packet passes: PRE_ROUTING, FORWARD and POST_ROUTING.
const ON_THE_WAY: [u32; 3] = [0, 2, 4];
const DROP: u32 = 0;
/// Maximum number of messages that are read from one dump. `BYTES` is the maximum size of these messages in
/// bytes. The limits are needed because an administrator of the namespace may have created millions of objects.
const MESSAGES: usize = 10_000;
const BYTES: usize = 4 << 20;
/// Maximum number of base chains whose rules are queried.
const CHAINS: usize = 64;

/// Returns the names of the base chains that affect forwarded packets. These are chains that contain a rule,
/// and chains with a drop policy. An nftables chain is named like `table inet filter, chain forward`. Legacy
/// iptables reports only the tables in use, so the result contains the names of these tables.
///
/// # Errors
/// [`NetlinkError`] if the kernel refuses the request. The call succeeds if the kernel does not support
/// nftables.
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

/// A base chain that forwarded packets pass in the kernel.
#[derive(Debug)]
struct Chain {
    family: u8,
    family_name: &'static str,
    table: String,
    name: String,
    /// Whether the policy of the chain is to drop packets.
    drops: bool,
}

/// Number of messages and number of bytes of a dump that may still be read.
struct Budget {
    messages: usize,
    bytes: usize,
}

impl Budget {
    const WHOLE: Budget = Budget { messages: MESSAGES, bytes: BYTES };

    /// Subtracts one message and its size from the budget. Returns `Break` if the budget is exhausted.
    fn take(&mut self, message: &MessageRef<'_>) -> ControlFlow<()> {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(message.payload.len());
        if self.messages == 0 || self.bytes == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Returns the base chains that forwarded packets pass, up to the limits of `CHAINS` and `Budget`.
fn base_chains() -> Result<Vec<Chain>, NetlinkError> {
    let (mut chains, mut budget) = (Vec::new(), Budget::WHOLE);
    // The `struct nfgenmsg` selects all families.
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

/// Returns whether a chain contains a rule. Kernels that ignore the chain filter of the request return the rules of all
/// chains. If these rules exceed the budget, the function returns true.
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
        // The chain was deleted in the meantime.
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

/// Splits the payload of a netfilter message into the family and the attributes. Returns `None` if the
/// payload is too short.
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
