//! Generates rules for both switches in the syntax of `ovs-ofctl`: matches on fields of the generated frames, and
//! actions whose prerequisites the matches fulfil.

use std::fmt;

use super::choices::{self, Buckets};
use super::frames::{PORTS, Random};
use super::stations::{self, Member};

/// A complete set of rules.
pub struct Rules {
    pub version: &'static str,
    pub groups: Vec<String>,
    pub flows: Vec<String>,
    /// Whether each frame must be processed before the next frame is sent, because a frame may change the rules or
    /// tables for the next frame.
    pub in_turn: bool,
    /// VLAN modes of the ports if rules use the action `NORMAL`, otherwise `None`.
    pub members: Option<[Member; PORTS as usize]>,
    /// Permitted buckets of the select groups in the rule set.
    pub buckets: Buckets,
}

impl Rules {
    /// Returns a rule set with a single rule, which applies the actions to all packets.
    pub fn only(actions: &str) -> Rules {
        let flows = vec![FENCES.to_owned(), format!("priority=0,actions={actions}")];
        let (groups, buckets) = (Vec::new(), Buckets::new());
        Rules { version: "OpenFlow13", groups, flows, in_turn: false, members: None, buckets }
    }

    /// Returns the rules of a learning bridge.
    pub fn learning() -> Rules {
        Rules::only("NORMAL")
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules { version, groups, flows, members, .. } = self;
        writeln!(f, "{version} {members:?}")?;
        groups.iter().chain(flows).try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Rule that sends fences (the frames that end a batch) back through their input port.
const FENCES: &str = "table=0,priority=65535,dl_type=0x88b5,actions=IN_PORT";

/// Protocol of a rule's packets, as far as the rule's match and earlier actions determine it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Any,
    Ip,
    Ip6,
    Tcp,
    Tcp6,
    Udp,
    Udp6,
    Sctp,
    Sctp6,
    Icmp,
    Icmp6,
    Solicit,
    Advert,
    Arp,
    Mpls,
}

use Kind::{Advert, Any, Arp, Icmp, Icmp6, Ip, Ip6, Mpls, Sctp, Sctp6, Solicit, Tcp, Tcp6, Udp, Udp6};

const KINDS: [Kind; 15] =
    [Any, Ip, Ip6, Tcp, Tcp6, Udp, Udp6, Sctp, Sctp6, Icmp, Icmp6, Solicit, Advert, Arp, Mpls];
/// Number of tables that the rules use.
const TABLES: usize = 4;

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Any => "",
            Ip => "ip",
            Ip6 => "ipv6",
            Tcp => "tcp",
            Tcp6 => "tcp6",
            Udp => "udp",
            Udp6 => "udp6",
            Sctp => "sctp",
            Sctp6 => "sctp6",
            Icmp => "icmp",
            Icmp6 => "icmp6",
            Solicit => "icmp6,icmp_type=135,icmp_code=0",
            Advert => "icmp6,icmp_type=136,icmp_code=0",
            Arp => "arp",
            Mpls => "mpls",
        }
    }

    fn is_v6(self) -> bool {
        matches!(self, Ip6 | Tcp6 | Udp6 | Sctp6 | Icmp6 | Solicit | Advert)
    }
}

struct Writer<'r> {
    random: &'r mut Random,
    kind: Kind,
    /// Whether the rule matches a VLAN tag or has pushed one.
    tagged: bool,
    /// Whether the rule matches the last MPLS label of the stack (`Some(true)`) or a label before it (`Some(false)`).
    bottom: Option<bool>,
    /// Protocol of the packet below the MPLS label that the rule has pushed. This is the protocol after the label is
    /// popped.
    under: Kind,
    /// Whether rules write action sets. If they do, no rule decrements the TTL, because Trivium does not apply the
    /// action set to a packet whose TTL has expired.
    writes: bool,
    version: &'static str,
    table: usize,
    groups: bool,
    nested: bool,
    learns: bool,
    /// Whether rules use the action `NORMAL`. If they do, no rule changes source MAC addresses, which `NORMAL` would
    /// learn.
    normal: bool,
    /// Whether rules use the action `exit`. If they do, no rule uses `resubmit` inside `clone`: after an `exit` inside
    /// `clone`, OVS ends the whole processing of the packet, and Trivium only the processing of the copy.
    exits: bool,
}

/// OpenFlow versions of the rule sets, which are used in turn.
pub const VERSIONS: [&str; 7] =
    ["OpenFlow10", "OpenFlow13", "OpenFlow11", "OpenFlow15", "OpenFlow12", "OpenFlow13", "OpenFlow15"];

/// Generates a set of rules for one OpenFlow version.
pub fn generate(random: &mut Random, version: &'static str) -> Rules {
    let groups = version != "OpenFlow10" && random.one_in(2);
    let in_turn = random.one_in(5);
    let writes = random.one_in(2);
    let normal = !in_turn && random.one_in(3);
    let exits = random.one_in(2);
    let members = normal.then(|| stations::members(random));
    let mut rules =
        Rules { version, groups: Vec::new(), flows: Vec::new(), in_turn, members, buckets: Buckets::new() };
    rules.flows.push(FENCES.into());
    if groups {
        let mut writer = Writer::new(random, version, in_turn, writes);
        rules.groups.push(format!("group_id=1,type=all,{},{}", writer.bucket(), writer.bucket()));
        rules.groups.push(format!("group_id=2,type=indirect,{}", writer.bucket()));
        let watched = [writer.port(), writer.port()];
        let (one, two) = (writer.bucket(), writer.bucket());
        rules.groups.push(format!(
            "group_id=3,type=ff,{},{}",
            one.replace("bucket=", &format!("bucket=watch_port:{},actions=", watched[0]))
                .replace("actions=actions=", "actions="),
            two.replace("bucket=", &format!("bucket=watch_port:{},actions=", watched[1]))
                .replace("actions=actions=", "actions="),
        ));
        for id in [4, 5] {
            let (line, may) = choices::group(random, id, version);
            rules.groups.push(line);
            rules.buckets.insert(id, may);
        }
    }
    let mut priority = 1000;
    for table in 0..TABLES {
        for _ in 0..6 + random.below(10) {
            // Each rule has another priority, because the choice between equal ones is not defined.
            priority -= 1;
            let kind = random.of(&KINDS);
            let mut writer = Writer {
                kind,
                table,
                groups,
                normal,
                exits,
                ..Writer::new(random, version, in_turn, writes)
            };
            let matching = writer.matching();
            let actions = writer.instructions();
            rules.flows.push(format!("table={table},priority={priority}{matching},actions={actions}"));
        }
        if random.one_in(3) {
            let id = 7 + table;
            for clause in [1, 2] {
                for _ in 0..2 {
                    priority -= 1;
                    let dimension = if clause == 1 {
                        format!("ip,nw_src=10.0.{}.0/24", random.of(&[0, 1, 7]))
                    } else {
                        format!("ip,nw_dst=10.0.0.{}/0.0.0.255", 1 + random.below(4))
                    };
                    rules.flows.push(format!(
                        "table={table},priority=500,{dimension},actions=conjunction({id},{clause}/2)"
                    ));
                }
            }
            let mut writer = Writer {
                kind: Ip,
                table,
                groups,
                normal,
                exits,
                ..Writer::new(random, version, in_turn, writes)
            };
            let actions = writer.instructions();
            rules.flows.push(format!("table={table},priority=500,conj_id={id},ip,actions={actions}"));
        }
        // Packets that match no rule continue as far as possible.
        let rest = match random.below(4) {
            0 => "drop".to_owned(),
            _ if normal && random.one_in(2) => "NORMAL".to_owned(),
            1 => format!("output:{}", 1 + random.below(PORTS.into())),
            _ if table + 1 < TABLES => format!("resubmit(,{})", table + 1),
            _ => "ALL".to_owned(),
        };
        rules.flows.push(format!("table={table},priority=1,actions={rest}"));
    }
    rules
}

impl<'r> Writer<'r> {
    fn new(random: &'r mut Random, version: &'static str, learns: bool, writes: bool) -> Writer<'r> {
        Writer {
            random,
            kind: Any,
            tagged: false,
            bottom: None,
            under: Any,
            writes,
            version,
            table: 0,
            groups: false,
            nested: false,
            learns,
            normal: false,
            exits: false,
        }
    }
}

impl Writer<'_> {
    fn port(&mut self) -> usize {
        1 + self.random.below(PORTS.into())
    }

    fn mac(&mut self) -> String {
        format!("02:00:00:00:00:0{}", 1 + self.random.below(4))
    }

    fn bucket(&mut self) -> String {
        let first = match self.random.below(5) {
            0 => format!("set_field:{}->eth_src,", self.mac()),
            1 => "push_vlan:0x8100,set_field:4102->vlan_vid,set_field:1->vlan_pcp,".to_owned(),
            2 => format!("set_field:{}->eth_dst,", self.mac()),
            _ => String::new(),
        };
        format!("bucket=actions={first}output:{}", self.port())
    }

    fn matching(&mut self) -> String {
        let mut parts: Vec<String> = vec![self.kind.words().to_owned()];
        let metadata = self.table > 0;
        for _ in 0..1 + self.random.below(2) {
            let part = match self.random.below(if metadata { 12 } else { 10 }) {
                0 => format!("in_port={}", self.port()),
                1 => format!("dl_src=02:00:00:00:00:0{0}/ff:ff:ff:ff:00:ff", 1 + self.random.below(4)),
                2 => format!("dl_dst={}", self.mac()),
                3 => "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00".into(),
                4 => {
                    self.tagged = true;
                    format!("dl_vlan={}", self.random.of(&[5, 6, 0, 100]))
                }
                5 => {
                    self.tagged = true;
                    format!("vlan_tci=0x1000/0x1000,dl_vlan_pcp={}", self.random.of(&[0, 3, 7]))
                        .replace("vlan_tci=0x1000/0x1000,", "")
                }
                6 => {
                    self.tagged = true;
                    "vlan_tci=0x1000/0x1000".into()
                }
                7 => "vlan_tci=0".into(),
                10 => format!("reg0={:#x}/{:#x}", self.random.below(8), 7).replace("/0x7", "/0x7"),
                11 => format!("metadata={}/0xff", self.random.below(4)),
                _ => self.of_kind(),
            };
            let name = |part: &str| part.split('=').next().map(str::to_owned);
            let is_vlan = |part: &str| part.contains("vlan");
            let clashes =
                parts.iter().any(|other| name(other) == name(&part) || is_vlan(other) && is_vlan(&part));
            if !clashes {
                parts.push(part);
            }
        }
        self.tagged &= parts.iter().any(|part| part.contains("vlan") && part != "vlan_tci=0");
        parts.retain(|part| !part.is_empty());
        parts.into_iter().map(|part| format!(",{part}")).collect()
    }

    /// Returns a match on a field of the rule's protocol.
    fn of_kind(&mut self) -> String {
        let last = 1 + self.random.below(4);
        let ports = matches!(self.kind, Tcp | Tcp6 | Udp | Udp6 | Sctp | Sctp6);
        match self.kind {
            Any => format!("dl_type={}", self.random.of(&["0x1234", "0x8035", "0x05ff", "0x88cc", "0x8848"])),
            Arp => match self.random.below(5) {
                0 => format!("arp_op={}", 1 + last % 3),
                1 => format!("arp_spa=10.0.0.{last}"),
                2 => "arp_tpa=10.0.1.0/24".into(),
                3 => format!("arp_sha=02:00:00:00:00:0{last}"),
                _ => format!("arp_tha=02:00:00:00:00:0{last}"),
            },
            Mpls => match self.random.below(5) {
                0 => format!("mpls_label={}", self.random.of(&[0, 2, 16, 100])),
                1 => format!("mpls_tc={last}"),
                2 | 3 => {
                    self.bottom = Some(last % 2 == 1);
                    format!("mpls_bos={}", last % 2)
                }
                _ => "mpls_ttl=64".into(),
            },
            Icmp if last < 3 => format!("icmp_type={}", self.random.of(&[8, 0, 3])),
            Icmp6 if last < 3 => format!("icmp_type={}", self.random.of(&[128, 1, 135])),
            Solicit if last < 3 => format!("nd_sll=02:00:00:00:00:0{last}"),
            Advert if last < 3 => format!("nd_tll=02:00:00:00:00:0{last}"),
            Solicit | Advert => format!("nd_target=2001:db8::{last}"),
            _ if ports && self.random.one_in(2) => match self.random.below(5) {
                0 => "tp_dst=80/0xfffe".to_owned(),
                1 => "tp_dst=443".to_owned(),
                2 => "tp_src=1000/0xfff0".to_owned(),
                3 if matches!(self.kind, Tcp | Tcp6) => "tcp_flags=+syn-ack".to_owned(),
                _ => "tp_src=53".to_owned(),
            },
            kind => match self.random.below(7) {
                0 => format!("nw_ttl={}", self.random.of(&[64, 1, 255])),
                1 => format!("nw_tos={}", self.random.of(&[0x20, 0xb8, 0])),
                2 => format!("nw_ecn={}", last - 1),
                3 => format!("nw_frag={}", self.random.of(&["yes", "no", "first", "later", "not_later"])),
                4 if kind.is_v6() => "ipv6_label=0x12345".to_owned(),
                5 if kind.is_v6() => format!("ipv6_src=2001:db8:1::/{}", self.random.of(&[48, 64, 33])),
                _ if kind.is_v6() => format!("ipv6_dst=2001:db8:2::{last}"),
                4 => format!("nw_dst=10.0.1.{last}"),
                5 => format!("nw_src=10.0.0.0/{}", self.random.of(&[24, 23, 8, 17])),
                _ => format!("nw_dst=10.0.0.{last}/255.0.0.255"),
            },
        }
    }

    fn instructions(&mut self) -> String {
        let count = 1 + self.random.below(4);
        let mut all = self.actions(count);
        if self.version != "OpenFlow10" {
            if self.writes && self.random.one_in(3) {
                let what = match self.random.below(3) {
                    0 => format!("output:{}", self.port()),
                    1 => format!("set_field:{}->eth_dst,output:{}", self.mac(), self.port()),
                    _ => format!("output:{},set_field:{}->eth_src", self.port(), self.mac()),
                };
                if self.random.one_in(3) {
                    all.push("clear_actions".into());
                }
                all.push(format!("write_actions({what})"));
            }
            if self.random.one_in(5) {
                all.push(format!("write_metadata:{:#x}/0xff", self.random.below(4)));
            }
            if self.table + 1 < TABLES && self.random.one_in(2) {
                let to = self.table + 1 + self.random.below(TABLES - self.table - 1);
                all.push(format!("goto_table:{to}"));
            }
        }
        if all.is_empty() { "drop".into() } else { all.join(",") }
    }

    fn actions(&mut self, count: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..count {
            if self.random.one_in(2) {
                all.push(self.change());
            } else {
                all.push(self.way());
            }
        }
        all.push(self.way());
        all.retain(|action| !action.is_empty());
        all
    }

    /// Returns a random action that sends the packet to ports or resubmits it to a table.
    fn way(&mut self) -> String {
        match self.random.below(22) {
            0 => "IN_PORT".into(),
            1 => "ALL".into(),
            2 => "FLOOD".into(),
            3 | 4 if self.table + 1 < TABLES && !(self.nested && self.exits) => {
                format!("resubmit(,{})", self.table + 1 + self.random.below(TABLES - self.table - 1))
            }
            5 if self.table + 1 < TABLES && !(self.nested && self.exits) => {
                format!("resubmit({},{})", self.port(), self.table + 1)
            }
            6 if !self.nested => {
                let (kind, tagged, bottom) = (self.kind, self.tagged, self.bottom);
                self.nested = true;
                let inner = self.actions(2).join(",");
                (self.nested, self.kind, self.tagged, self.bottom) = (false, kind, tagged, bottom);
                format!("clone({inner})")
            }
            7 if self.groups && !self.nested => format!("group:{}", 1 + self.random.below(5)),
            8 => format!("load:{}->NXM_NX_REG5[0..15],output:NXM_NX_REG5[0..15]", self.port()),
            9 => format!("bundle(eth_src,0,active_backup,ofport,members:{},{})", self.port(), self.port()),
            10 if self.learns && !self.nested => {
                // Each source address always uses one port (see `Generator::frame`), so repeated learning has
                // no effect.
                let (priority, part) = self.random.of(&[
                    (9, "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]"),
                    (
                        8,
                        "NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:0->NXM_OF_VLAN_TCI[],output:NXM_OF_IN_PORT[]",
                    ),
                    (
                        7,
                        "NXM_OF_ETH_DST[0..15]=NXM_OF_ETH_SRC[0..15],load:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15],output:NXM_NX_REG1[0..15]",
                    ),
                ]);
                format!("learn(table=9,priority={priority},{part}),resubmit(,9)")
            }
            11 if self.learns => "resubmit(,9)".into(),
            12 => match self.random.below(4) {
                0 => "LOCAL".into(),
                1 => "controller(max_len=64)".into(),
                2 if self.version == "OpenFlow10" => format!("enqueue:{}:1", self.port()),
                _ => format!("set_queue:1,output:{},pop_queue", self.port()),
            },
            13 | 14 if !self.nested => choices::action(self.random),
            15..19 if self.normal => "NORMAL".into(),
            _ => format!("output:{}", self.port()),
        }
    }

    /// Returns a random action that changes the packet.
    fn change(&mut self) -> String {
        let old = self.version == "OpenFlow10";
        let last = 1 + self.random.below(4);
        let one = self.random.below(16);
        match one {
            0 if !self.learns && !self.normal => format!("set_field:{}->eth_src", self.mac()),
            1 => format!("mod_dl_dst:{}", self.mac()),
            2 => {
                if old {
                    self.tagged = true;
                    return match self.random.below(3) {
                        0 => format!("mod_vlan_pcp:{last}"),
                        _ => format!("mod_vlan_vid:{}", self.random.of(&[5, 6, 0])),
                    };
                }
                self.tagged = true;
                // The new tag is zero in OVS, and a copy of the outer one by the specification, so its fields
                // are set explicitly. Service tags do not select a VLAN for Trivium's `NORMAL`.
                let tpid = if self.normal { "0x8100" } else { self.random.of(&["0x8100", "0x88a8"]) };
                format!(
                    "push_vlan:{tpid},set_field:{}->vlan_vid,set_field:{last}->vlan_pcp",
                    4096 + self.random.of(&[5, 6, 7])
                )
            }
            3 if self.tagged => {
                self.tagged = false;
                "strip_vlan".into()
            }
            4 if self.tagged => format!("set_field:{}->vlan_vid", 4096 + self.random.of(&[5, 6, 7])),
            4 => {
                self.tagged = true;
                "load:0x1007->NXM_OF_VLAN_TCI[]".into()
            }
            5 if self.tagged => format!("set_field:{}->vlan_pcp", last),
            6 => format!("load:{:#x}->NXM_NX_REG0[0..2]", last),
            7 => self.random.of(&[
                "move:NXM_OF_ETH_SRC[0..15]->NXM_OF_ETH_DST[0..15]".to_owned(),
                "move:NXM_OF_ETH_DST[0..2]->NXM_NX_REG0[0..2]".to_owned(),
                "move:NXM_OF_IN_PORT[]->NXM_NX_REG3[0..15]".to_owned(),
                "push:NXM_OF_ETH_SRC[],pop:NXM_OF_ETH_DST[]".to_owned(),
                "push:NXM_NX_REG0[],push:NXM_OF_ETH_SRC[0..31],pop:NXM_OF_ETH_DST[0..31]".to_owned(),
                "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG2[0..7])".to_owned(),
                // With an action set, OVS executes this action twice.
                if self.writes { "note:09" } else { "check_pkt_larger(110)->NXM_NX_REG0[0]" }.to_owned(),
                "move:NXM_OF_VLAN_TCI[]->NXM_NX_REG4[0..15]".to_owned(),
            ]),
            8 => "note:01.02.03".into(),
            9 if self.exits && !self.nested && self.random.one_in(2) => "exit".into(),
            10 if !self.nested && !matches!(self.kind, Any | Arp | Mpls) => {
                (self.under, self.kind, self.bottom) = (self.kind, Mpls, Some(true));
                format!("push_mpls:0x8847,set_field:{}->mpls_label", self.random.of(&[7, 100]))
            }
            _ => self.change_of_kind(last),
        }
    }

    fn change_of_kind(&mut self, last: usize) -> String {
        let kind = self.kind;
        let ports = matches!(kind, Tcp | Tcp6 | Udp | Udp6 | Sctp | Sctp6);
        match kind {
            Any => format!("set_field:{}->eth_dst", self.mac()),
            Arp => match self.random.below(6) {
                0 => "load:2->NXM_OF_ARP_OP[]".into(),
                1 => format!("load:0x0a0000{last:02x}->NXM_OF_ARP_SPA[]"),
                2 => "move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]".into(),
                3 => format!("set_field:{}->arp_sha", self.mac()),
                4 => "move:NXM_OF_ETH_SRC[]->NXM_NX_ARP_THA[]".into(),
                _ => "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]".into(),
            },
            Mpls => match self.random.below(8) {
                0 => format!("set_field:{}->mpls_label", self.random.of(&[5, 100, 0xfffff])),
                1 => format!("set_field:{last}->mpls_tc"),
                2 => format!("set_mpls_ttl({})", self.random.of(&[5, 64, 255])),
                3 if !self.writes => "dec_mpls_ttl".into(),
                4 => {
                    self.bottom = Some(false);
                    "push_mpls:0x8847".into()
                }
                // With remaining labels, OVS pops all of them for another EtherType. A label that the rule
                // itself has pushed is removed without a trace, whatever EtherType the pop action names.
                _ if self.bottom == Some(true) && !matches!(self.under, Arp | Mpls) => {
                    let (kind, eth_type) = match self.under {
                        Any => self.random.of(&[(Ip, "0x0800"), (Ip6, "0x86dd")]),
                        under if under.is_v6() => (Ip6, "0x86dd"),
                        _ => (Ip, "0x0800"),
                    };
                    (self.kind, self.bottom) = (kind, None);
                    format!("pop_mpls:{eth_type}")
                }
                _ if self.bottom == Some(false) => {
                    self.bottom = None;
                    "pop_mpls:0x8847".into()
                }
                _ => "set_field:3->mpls_tc".into(),
            },
            Icmp if last < 3 => {
                self.random.of(&["load:8->NXM_OF_ICMP_TYPE[]", "load:1->NXM_OF_ICMP_CODE[]"]).into()
            }
            Icmp6 if last < 3 => "load:1->NXM_NX_ICMPV6_CODE[]".into(),
            Solicit if last < 3 => format!("set_field:{}->nd_sll", self.mac()),
            Advert if last < 3 => format!("set_field:{}->nd_tll", self.mac()),
            Solicit | Advert if last < 4 => format!("set_field:2001:db8::{last}->nd_target"),
            Tcp | Tcp6 if self.random.one_in(6) => "fin_timeout(idle_timeout=600)".into(),
            _ if ports && self.random.one_in(2) => {
                let name = match kind {
                    Tcp | Tcp6 => "tcp",
                    Udp | Udp6 => "udp",
                    _ => "sctp",
                };
                match self.random.below(3) {
                    0 => format!("set_field:{}->{name}_src", self.random.of(&[5353, 1000, 0])),
                    1 => format!("set_field:{}->{name}_dst", self.random.of(&[8080, 81, 65535])),
                    _ if name == "sctp" => "set_field:9->sctp_dst".into(),
                    _ => {
                        let upper = name.to_uppercase();
                        format!("move:NXM_OF_{upper}_SRC[]->NXM_OF_{upper}_DST[]")
                    }
                }
            }
            _ => match self.random.below(9) {
                0 | 1 if !self.writes => "dec_ttl".into(),
                2 => format!("mod_nw_ttl:{}", self.random.of(&[1, 64, 255])),
                3 => format!("mod_nw_tos:{}", self.random.of(&[0x20, 0xb8, 0xfc])),
                4 => format!("mod_nw_ecn:{}", last - 1).replace("mod_nw_ecn:4", "mod_nw_ecn:0"),
                5 if kind.is_v6() => "move:NXM_NX_IPV6_SRC[0..31]->NXM_NX_IPV6_DST[0..31]".into(),
                6 if kind.is_v6() => format!("set_field:{:#x}->ipv6_label", 0x54321 + last),
                _ if kind.is_v6() => {
                    format!("set_field:2001:db8:5::{last}->ipv6_{}", self.random.of(&["src", "dst"]))
                }
                5 => "move:NXM_OF_IP_SRC[0..7]->NXM_OF_IP_DST[0..7]".into(),
                6 => "load:0x0a0b->NXM_OF_IP_SRC[16..31]".into(),
                _ => format!("mod_nw_{}:10.0.5.{last}", self.random.of(&["src", "dst"])),
            },
        }
    }
}
