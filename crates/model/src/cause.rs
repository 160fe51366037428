//! Causes of configuration problems, and a remedy for each cause.
//!
//! `Display` formats the cause, and [`Cause::fix`] returns the remedy. Neither text contains the name of the
//! affected object, because the problem that holds the cause contains this name.

use std::net::IpAddr;

use packet::{MacParseError, VlanId, VlanTags};

use crate::{InterfaceAddress, NameError, TargetError};

/// Cause of a problem in a configuration. Each variant holds the values that appear in the text of
/// the cause.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "each variant's text is its documentation, and its fields are the text's words"
)]
pub enum Cause {
    #[error("the text is not {language}: {message}")]
    Syntax { language: &'static str, message: String },
    #[error("the text has {bytes} bytes, and at most {limit} are read")]
    TooLarge { bytes: usize, limit: usize },
    #[error("there are {more} more problems than are told here")]
    MoreProblems { more: usize },
    #[error("there are {count} {what}, and at most {limit} are possible")]
    TooMany { what: &'static str, count: usize, limit: usize },
    #[error("there are {count} {what} of all owners together, and at most {limit} are possible")]
    TooManyObjects { what: &'static str, count: usize, limit: usize },
    #[error("`{key}` is not known here")]
    UnknownKey { key: String, near: Option<String>, known: Vec<&'static str> },
    #[error("`{old}` is the old spelling of `{new}`")]
    OldKey { old: &'static str, new: &'static str },
    #[error("`{key}` does not belong to a port of kind {kind}")]
    NotForKind { key: String, kind: &'static str, kinds: Vec<&'static str> },
    #[error("{expected} is expected here, and {found} was found")]
    WrongType { expected: &'static str, found: &'static str },
    #[error("{value} is outside of {min}..={max}{unit}")]
    OutOfRange { value: i64, min: i64, max: i64, unit: &'static str },
    #[error("{value} is not a power of two")]
    NotPowerOfTwo { value: i64, near: u32 },
    #[error("{value:?} is none of the possible words")]
    NotOneOf { value: String, near: Option<&'static str>, choices: &'static [&'static str] },
    #[error("a word in quotes is expected here, and {found} was found")]
    NotAWord { found: &'static str, choices: &'static [&'static str] },
    #[error("{value} is none of the possible values")]
    NotOneOfNumbers { value: i64, choices: &'static [i64] },
    #[error("`{key}` is missing")]
    Missing { key: &'static str, example: &'static str },
    #[error("{text:?} cannot be the name of a {what}: {source}")]
    BadName { text: String, what: &'static str, source: NameError },
    #[error("{text:?} is not an Ethernet address: {source}")]
    BadMac { text: String, source: MacParseError },
    #[error("{text} is a group address, and one station's is needed")]
    GroupMac { text: String },
    #[error("00:00:00:00:00:00 is not a station's address")]
    ZeroMac,
    #[error("{text:?} is not an address with its prefix length")]
    BadAddress { text: String },
    #[error("{address} is its network's {role} address, not a host's")]
    NotAHost { address: InterfaceAddress, role: &'static str },
    #[error("{text:?} is not {what}")]
    BadText { text: String, what: &'static str, example: &'static str },
    #[error("{text:?} is no OVSDB server that can be followed: {source}")]
    BadTarget { text: String, source: TargetError },
    #[error("{text:?} is neither a VLAN nor a range of VLANs")]
    BadVlanRange { text: String },
    #[error("the range {from}-{to} runs backwards")]
    ReversedRange { from: i64, to: i64 },
    #[error("{text:?} is not a path from the root")]
    RelativePath { text: String },
    #[error("{what} {value} stands here twice")]
    Repeated { what: &'static str, value: String },
    #[error("{what} {value} is already used by {other}")]
    Duplicate { what: &'static str, value: String, other: String },
    #[error("there is no port `{port}`")]
    NoSuchPort { port: String, near: Option<String> },
    #[error("there is no filter `{filter}`")]
    NoSuchFilter { filter: String, near: Option<String> },
    #[error(
        "a port of kind {kind} has no driver hook, and rule `{rule}` of filter `{filter}` (`action = \"{action}\"`) needs one"
    )]
    NeedsHook { kind: &'static str, filter: String, rule: String, action: &'static str },
    #[error("there is no steering `{steering}`")]
    NoSuchSteering { steering: String, near: Option<String> },
    #[error("the rule never matches: {why}")]
    NeverMatches { why: &'static str },
    #[error("an empty list would match nothing")]
    EmptyList,
    #[error("the mask has another length than the bytes, or hides bits that are set in them")]
    BadMask,
    #[error("{cause}")]
    NotInHook { cause: String, fix: String },
    #[error("port `{port}` is not a member of this bridge")]
    NotAMember { port: String },
    #[error("port `{port}` is already a member of bridge `{other}`")]
    TwoBridges { port: String, other: String },
    #[error("member `{other}` of the same bridge has the OpenFlow number {number} already")]
    NumberTaken { number: u16, other: String },
    #[error("port `{port}` already belongs to {other}, and a port has one function")]
    TwoFunctions { port: String, other: String },
    #[error(
        "port `{port}` is of kind {kind}, so a device stands for it that is called like it, and the kernel would not: {why}"
    )]
    MirrorName { port: String, kind: &'static str, why: NameError },
    #[error(
        "port `{port}` is of kind {kind}, so a device stands for it that is called like it, and that one is port `{other}`'s"
    )]
    MirrorTaken { port: String, kind: &'static str, other: String },
    #[error(
        "the device of VLAN {vlan} would be called `{device}`, which is longer than the kernel's 15 characters"
    )]
    VlanDeviceTooLong { vlan: VlanTags, device: String },
    #[error("the device of VLAN {vlan} would be called `{device}`, and that one is port `{port}`'s")]
    VlanDeviceTaken { vlan: VlanTags, device: String, port: String },
    #[error("its ports have {count} VLANs together, and {limit} of a router can be interfaces")]
    TooManyVlans { count: usize, limit: usize },
    #[error("the device of port `{port}` is in {of_port}, and the router in {of_router}")]
    OtherNamespace { port: String, of_port: String, of_router: String },
    #[error("{namespace} is already that of router `{other}`, and each has the kernel's tables of its own")]
    SharedNamespace { namespace: String, other: String },
    #[error("router `{router}` has the port, and what a router has is not routed in the hook besides")]
    RoutedTwice { router: String },
    #[error("`{first}` and `{second}` exclude each other")]
    Exclusive { first: &'static str, second: &'static str },
    #[error("`{key}` has a meaning only together with `{needs}`")]
    NeedsOther { key: &'static str, needs: &'static str },
    #[error("port `{port}` does not carry VLAN {vlan}")]
    VlanNotCarried { port: String, vlan: VlanId },
    #[error("port `{port}` has no untagged VLAN that the entry could belong to")]
    NoVlan { port: String },
    #[error("{limit} addresses are more than the {bridge} that the bridge's table holds")]
    LimitAboveBridge { limit: u32, bridge: u32 },
    #[error("a limit of 0 packets per second would drop every such packet")]
    ZeroStorm,
    #[error(
        "{frames} frames are too few for {queues} AF_XDP queues and the workers: they take at least {needed}"
    )]
    FramesTooFew { frames: u64, queues: u64, needed: u64 },
    #[error(
        "{queues} AF_XDP queues and the workers take at least {needed} frames, and the daemon runs with {runs}; the {frames} of the configuration wait for a restart"
    )]
    FramesRunning { runs: u64, frames: u64, queues: u64, needed: u64 },
    #[error(
        "{frames} frames are shared by fill and transmit rings that together could hold {full}: the rings get less than their `ring_size`"
    )]
    FramesScarce { frames: u64, full: u64 },
    #[error("a port of kind {kind} carries one frame per packet, so its MTU is at most {max} and not {mtu}")]
    MtuAboveFrame { mtu: u16, max: u32, kind: &'static str },
    #[error("an MTU of {mtu} is below the 1280 bytes that IPv6 needs for {address}")]
    MtuBelowIpv6 { mtu: u16, address: IpAddr },
    #[error("an MTU of {peer} at the far end is above the port's {port}")]
    PeerMtuAbove { peer: u16, port: u16 },
    #[error("there is no worker {worker}: `engine.workers` makes {count}")]
    NoSuchWorker { worker: u16, count: usize },
    #[error("this machine has no core {core}: it has {cores}")]
    NoSuchCore { core: u16, cores: usize },
    #[error("a port of kind {kind} cannot receive without a copy")]
    NoZeroCopy { kind: &'static str },
    #[error("the generic hook always copies")]
    GenericCopies,
    #[error("`when_down` has no effect while `persist` is false")]
    WhenDownUnused,
    #[error("bridge `{bridge}` has the port, and what a bridge has is not routed by the kernel")]
    RoutedAndBridged { bridge: String },
    #[error("the API over TCP is offered only with TLS and a token, and `{missing}` is missing")]
    TcpUnprotected { missing: &'static str },
    #[error(
        "{address} is not a loopback address, and FPM has no authentication: whatever connects there says where packets go"
    )]
    FpmRemote { address: String },
    #[error("the port has nothing to read and nothing to write")]
    NothingToDo,
    #[error("both ends of the pair would be the device {device} of one namespace")]
    PairOfOne { device: String },
    #[error("a patch port cannot be its own peer")]
    PatchToItself,
    #[error("port `{peer}` is of kind {kind}, and a patch port's peer is another patch port")]
    PeerNoPatch { peer: String, kind: &'static str },
    #[error("patch port `{peer}` has another peer, `{other}`")]
    PeerTaken { peer: String, other: String },
    #[error(
        "software RSS acts where packets come in, and the packets of a patch port come from another port"
    )]
    PatchSoftwareRss,
    #[error("no port of the bridge can send to another: all of its {members} members are protected")]
    AllProtected { members: usize },
    #[error("`{target}` would listen on a Unix socket that belongs to `{field}`")]
    ReservedSocket { target: String, field: &'static str },
}

impl Cause {
    /// Returns the remedy for the cause of the problem as text.
    pub fn fix(&self) -> String {
        use Cause::*;
        match self {
            Syntax { language, .. } => format!("write it as {language} says, see docs/config.md"),
            TooLarge { .. } => "remove what is not configuration".to_owned(),
            MoreProblems { .. } => "mend these and check again".to_owned(),
            TooMany { limit, .. } => format!("remove all but {limit}"),
            TooManyObjects { limit, .. } => format!(
                "remove all but {limit}; persistent objects of the API (`api-objects.json` in daemon.state_dir) count too"
            ),
            UnknownKey { near: Some(near), .. } => format!("did you mean `{near}`?"),
            UnknownKey { known, .. } if known.is_empty() => "remove it".to_owned(),
            UnknownKey { known, .. } => format!("use one of {}", known.join(", ")),
            OldKey { new, .. } => format!("write `{new}`"),
            NotForKind { kinds, .. } => {
                format!("remove it, or make the port one of kind {}", kinds.join(" or "))
            }
            WrongType { expected, .. } => format!("write {expected}"),
            OutOfRange { min, max, .. } => format!("choose a value from {min} to {max}"),
            NotPowerOfTwo { near, .. } => format!("use {near}, for example"),
            NotOneOf { near: Some(near), .. } => format!("did you mean \"{near}\"?"),
            NotOneOf { choices, .. } | NotAWord { choices, .. } => format!("use one of {}", quoted(choices)),
            NotOneOfNumbers { choices, .. } => {
                let choices: Vec<_> = choices.iter().map(ToString::to_string).collect();
                format!("use one of {}", choices.join(", "))
            }
            Missing { example, .. } => format!("add `{example}`"),
            BadName { what, .. } => name_fix(what).to_owned(),
            BadMac { .. } => "write it as 02:00:00:00:00:01".to_owned(),
            GroupMac { .. } => "use an address whose first octet is even".to_owned(),
            ZeroMac => "use an address such as 02:00:00:00:00:01".to_owned(),
            BadAddress { .. } => "write it as \"10.0.0.1/24\" or \"fd00::1/64\"".to_owned(),
            NotAHost { .. } => "use an address between the network's first and its last".to_owned(),
            BadText { example, .. } => format!("write it as {example}"),
            BadTarget { .. } => "write it as \"unix:/FILE\" or \"tcp:HOST:PORT\"".to_owned(),
            BadVlanRange { .. } => "write 10, or \"10-20\", or \"all\"".to_owned(),
            ReversedRange { from, to } => format!("write \"{to}-{from}\""),
            RelativePath { text } => {
                format!("write \"/{}\" or the directory that is meant", text.trim_start_matches("./"))
            }
            other => other.fix_between_objects(),
        }
    }

    /// Returns the remedy for a cause that concerns a reference from one object to another.
    fn fix_between_objects(&self) -> String {
        use Cause::*;
        match self {
            Repeated { .. } => "remove one of the two".to_owned(),
            Duplicate { other, .. } => format!("change it here or at {other}"),
            NoSuchPort { near: Some(near), .. } => format!("did you mean `{near}`?"),
            NoSuchPort { port, .. } => format!("add [port.{port}], or remove this"),
            NoSuchFilter { near: Some(near), .. } => format!("did you mean `{near}`?"),
            NoSuchFilter { filter, .. } => format!("add [filter.{filter}], or remove this"),
            NeedsHook { rule, .. } => format!("name a filter without `{rule}` here"),
            NoSuchSteering { near: Some(near), .. } => format!("did you mean `{near}`?"),
            NoSuchSteering { steering, .. } => format!("add [steering.{steering}], or remove this"),
            NeverMatches { .. } => "change one of its conditions, or remove the rule".to_owned(),
            EmptyList => "remove the key to match anything, or name values".to_owned(),
            NotInHook { fix, .. } => fix.clone(),
            BadMask => "give it as many digits as `bytes`, and ones wherever `bytes` has ones".to_owned(),
            NotAMember { port } => format!("make `{port}` a member, or name one that is"),
            TwoBridges { .. } | TwoFunctions { .. } => "remove it from one of the two".to_owned(),
            NumberTaken { .. } => {
                "choose another, or leave one of the two out: it gets the lowest that is free".to_owned()
            }
            MirrorName { .. } => "give the port a name that devices can have".to_owned(),
            MirrorTaken { .. } => "rename the port, or give that device another name or namespace".to_owned(),
            VlanDeviceTooLong { .. } => "give the port's device a shorter name".to_owned(),
            VlanDeviceTaken { .. } => "rename one of the two devices".to_owned(),
            TooManyVlans { .. } => "spread them over several routers".to_owned(),
            OtherNamespace { .. } => "give the port and the router the same `namespace`".to_owned(),
            SharedNamespace { other, .. } => {
                format!("give one of the two another `namespace`, or make these ports `{other}`'s")
            }
            RoutedTwice { router } => format!("remove `routing`, or take the port out of `{router}`"),
            Exclusive { first, second } => format!("keep `{first}` or `{second}`"),
            NeedsOther { key, needs } => format!("add `{needs}`, or remove `{key}`"),
            VlanNotCarried { port, vlan } => {
                format!("let `{port}` carry VLAN {vlan}, or change the entry's `vlan`")
            }
            NoVlan { .. } => "add `vlan = 10`, for example".to_owned(),
            LimitAboveBridge { bridge, .. } => {
                format!("use at most {bridge}, or raise the bridge's `mac_limit`")
            }
            ZeroStorm => "remove the key for no limit, or give a rate of 1 or more".to_owned(),
            FramesTooFew { needed, .. } => {
                format!("set memory.frames to at least {needed}, or ask for fewer queues")
            }
            FramesRunning { .. } => {
                "restart the daemon with this configuration, or ask for fewer queues".to_owned()
            }
            FramesScarce { full, .. } => format!("set memory.frames to {full} or more"),
            MtuAboveFrame { .. } => "lower `mtu`, or set memory.frame_size = 4096".to_owned(),
            MtuBelowIpv6 { .. } => "raise the MTU to 1280 or more, or remove the IPv6 address".to_owned(),
            PeerMtuAbove { port, .. } => format!("lower it to {port}, or raise the port's"),
            NoSuchWorker { count: 1, .. } => "use 0, or add cores to `engine.workers`".to_owned(),
            NoSuchWorker { count, .. } => format!("use 0 to {}, or add cores to `engine.workers`", count - 1),
            NoSuchCore { cores, .. } => format!("use 0 to {}", cores.saturating_sub(1)),
            NoZeroCopy { .. } => "use zero_copy = \"auto\" or \"off\"".to_owned(),
            GenericCopies => "use mode = \"native\", or zero_copy = \"off\"".to_owned(),
            WhenDownUnused => "remove `when_down`, or set persist = true".to_owned(),
            RoutedAndBridged { bridge } => format!("remove `routing`, or take the port out of `{bridge}`"),
            TcpUnprotected { missing } => format!("add `{missing} = \"/etc/trivium/...\"`, or remove `tcp`"),
            FpmRemote { .. } => {
                "listen on a loopback address, or add `fpm_remote = true` and keep others away from the port"
                    .to_owned()
            }
            NothingToDo => "add `read = \"FILE\"` or `write = \"FILE\"`".to_owned(),
            PairOfOne { .. } => "name the peer differently, or give it a `namespace`".to_owned(),
            PatchToItself => "name the port at the other end".to_owned(),
            PeerNoPatch { peer, .. } => format!("make `{peer}` one of kind patch, or name another"),
            PeerTaken { peer, .. } => format!("make this port the peer of `{peer}`, or name another"),
            PatchSoftwareRss => {
                "remove `software_rss`, or set it on the ports that packets come in by".to_owned()
            }
            AllProtected { .. } => {
                "leave `protected` out at the member that the others shall reach".to_owned()
            }
            ReservedSocket { .. } => "choose another path".to_owned(),
            // `fix` handles the other causes.
            _ => "see docs/config.md".to_owned(),
        }
    }
}

fn name_fix(what: &str) -> &'static str {
    match what {
        "port" | "bridge" | "router" | "filter" | "steering" => {
            "use letters, digits, `_`, `-` and `.`, at most 32"
        }
        "rule" => "use letters, digits, `_`, `-` and `.`, at most 63",
        "namespace" => "use a name of `ip netns` or the path of a file",
        _ => "use at most 15 characters without spaces, `/` and `:`",
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}
