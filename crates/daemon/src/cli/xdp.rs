//! The grammar of `trivium xdp`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use packet::MacAddr;

use super::{RuleAdd, RuleRemove, seconds};

/// `trivium xdp`
#[derive(Clone, Debug, Subcommand)]
pub enum Xdp {
    /// What stands on each port's device: program, mode, stages, maps, run time
    Status(XdpStatus),
    /// Frames of each port's hook by their way out, second by second, and what the kernel lost of them afterwards
    Monitor(XdpMonitor),
    /// Frames as a port's hook receives them and as it leaves them, with its verdict
    Dump(XdpDump),
    /// Put a program of your own in front of a port's: its verdict is final unless it goes on with the port's
    Load(XdpLoad),
    /// Take the program of your own away that stands in front of a port's
    Unload(XdpUnload),
    /// Send frames that the kernel makes out of a device, or those of a capture file; needs root and no daemon
    Gen(XdpGen),
    /// Measure the hook between devices of its own making, beside the barest program; needs root and no daemon
    Bench(XdpBench),
    /// Filters of ports' hooks (see `[filter.NAME]` in the configuration)
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Where ports' packets go besides their room (see `[steer.NAME]` in the configuration)
    #[command(subcommand)]
    Steer(SteerCommand),
}

/// `trivium xdp status`
#[derive(Clone, Debug, Args)]
pub struct XdpStatus {
    /// Only this port
    pub port: Option<String>,
    /// How long runs are counted; 0: not at all. Meanwhile every BPF program of the machine is a little slower
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = counted)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `trivium xdp monitor`
#[derive(Clone, Debug, Args)]
pub struct XdpMonitor {
    /// Only this port
    pub port: Option<String>,
    /// Each frame that the kernel loses after the program's verdict, with the reason, as it happens
    #[arg(long)]
    pub each: bool,
    /// Stop after so many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Print one JSON object for each second, or for each loss
    #[arg(long)]
    pub json: bool,
}

/// `trivium xdp dump`
#[derive(Clone, Debug, Args)]
pub struct XdpDump {
    /// The port
    pub port: String,
    /// Only frames of these verdicts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERDICT")]
    pub verdict: Vec<HookVerdict>,
    /// Frames as they come, as the hook leaves them, or both
    #[arg(long, value_enum, default_value_t = DumpAt::Both)]
    pub at: DumpAt,
    /// Bytes of each frame, 14 to 2048
    #[arg(long, default_value_t = 256, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..=2048))]
    pub snap: u32,
    /// Write pcapng to this file ("-": standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Stop after so many (a frame that is shown twice counts twice)
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
    pub seconds: Option<u64>,
    /// Only frames that match all of it, such as `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Where a hook is captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DumpAt {
    /// As they come
    Entry,
    /// As the hook leaves them
    Exit,
    /// Both, one after the other
    Both,
}

/// What a hook says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HookVerdict {
    /// A defect; dropped
    Aborted,
    /// Dropped
    Drop,
    /// To the kernel
    Pass,
    /// Back where it came from
    Transmit,
    /// To a socket, a device or a core
    Redirect,
}

impl fmt::Display for HookVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HookVerdict::Aborted => "aborted",
            HookVerdict::Drop => "drop",
            HookVerdict::Pass => "pass",
            HookVerdict::Transmit => "transmit",
            HookVerdict::Redirect => "redirect",
        })
    }
}

/// `trivium xdp load`
#[derive(Clone, Debug, Args)]
pub struct XdpLoad {
    /// The object that clang has made of it (`clang -O2 -g -target bpf -c`), 4 MiB at most
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The port; what stands in front of it is replaced
    #[arg(long)]
    pub port: String,
    /// The program's name, where the object has several
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,
}

/// `trivium xdp unload`
#[derive(Clone, Debug, Args)]
pub struct XdpUnload {
    /// The port
    #[arg(long)]
    pub port: String,
}

/// `trivium xdp gen`
#[derive(Clone, Debug, Args)]
pub struct XdpGen {
    /// The device that sends; what it sends, its other end receives
    pub device: String,
    /// The device's namespace: a name, or a path
    #[arg(long)]
    pub namespace: Option<String>,
    /// Send the frames of this file (pcap or pcapng) again and again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["length", "flows", "vary", "protocol", "vlan", "source_mac",
        "destination_mac", "source", "destination", "port"])]
    pub pcap: Option<PathBuf>,
    /// For so long, up to an hour
    #[arg(long, default_value_t = 1.0, value_parser = super::measured)]
    pub seconds: f64,
    /// So many frames instead
    #[arg(short, long, value_name = "N", conflicts_with = "seconds")]
    pub packets: Option<u64>,
    /// Frames per second; as many as possible if absent
    #[arg(long, value_name = "PPS")]
    pub rate: Option<u64>,
    /// Bytes of a frame, 60 to 1514. Several lengths take turns, as often as their weights say: `60,594,1514` or `60x7,594x4,1514x1`;
    /// `imix` is 7 of the shortest, 4 of 590 and 1 of 1514 bytes (64, 594 and 1518 with the check sequence)
    #[arg(long, default_value = "shortest", value_name = "BYTES", value_parser = lengths)]
    pub length: Lengths,
    /// Number of flows: a power of two
    #[arg(long, default_value_t = 1)]
    pub flows: u32,
    /// Where flows differ; in their ports unless told
    #[arg(long, value_enum, value_delimiter = ',')]
    pub vary: Vec<Varied>,
    /// How flows (or frames of the file, or of several lengths) follow each other
    #[arg(long, value_enum, default_value_t = FrameOrder::Turn)]
    pub order: FrameOrder,
    /// Of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Of the frames
    #[arg(long, value_enum, default_value_t = FrameProtocol::Udp)]
    pub protocol: FrameProtocol,
    /// Tag of the frames
    #[arg(long)]
    pub vlan: Option<u16>,
    /// Of the first flow
    #[arg(long, default_value = "02:00:00:00:00:01", value_name = "ADDRESS", value_parser = mac)]
    pub source_mac: MacAddr,
    /// Of the first flow
    #[arg(long, default_value = "02:00:00:00:00:02", value_name = "ADDRESS", value_parser = mac)]
    pub destination_mac: MacAddr,
    /// IPv4 or IPv6 source; if absent 10.0.1.2, or 2001:db8:1::2 where the destination is IPv6
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// Destination of the first flow; if absent 10.0.2.2, or 2001:db8:2::2 where the source is IPv6
    #[arg(long, value_name = "ADDRESS")]
    pub destination: Option<IpAddr>,
    /// Destination port
    #[arg(long, default_value_t = 9)]
    pub port: u16,
    /// The core that sends; any if absent
    #[arg(long)]
    pub core: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Where flows differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Varied {
    /// Source port, then destination port
    Ports,
    /// Ethernet source
    SourceMac,
    /// Ethernet destination
    DestinationMac,
    /// Destination address
    Destination,
    /// Source address: anywhere, over IPv6 within its first 32 bits
    Source,
}

/// How frames follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FrameOrder {
    /// One after the other
    Turn,
    /// Pseudo-random, the same with the same seed
    Random,
}

/// Transport of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FrameProtocol {
    /// Of one length over IPv4 without checksum, which is valid
    Udp,
    /// ACK segments; of one length over IPv4 with a checksum that is not valid
    Tcp,
}

/// How long frames are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lengths {
    /// As short as Ethernet and their headers allow.
    Shortest,
    /// The simple mixture that is common in tests of the Internet's traffic.
    Imix,
    /// Lengths in bytes, at least one, each with its weight, which is not 0.
    Listed(Vec<(u16, u32)>),
}

/// `trivium xdp bench`
#[derive(Clone, Copy, Debug, Args)]
pub struct XdpBench {
    /// What is measured
    #[arg(value_enum)]
    pub scenario: XdpScenario,
    /// Length of each measurement
    #[arg(long, default_value_t = 1.0, value_parser = super::measured)]
    pub seconds: f64,
    /// How often each is measured, in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `trivium xdp bench` measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum XdpScenario {
    /// A bare drop, without and with a look at the frame; the port's program without a socket; its filter with one rule
    Drop,
    /// A million prefixes in the filter's block list, random sources, half of them listed
    Block,
    /// Addresses swapped and sent back: by a program alone, and as a user's program in front of the port's
    Tx,
    /// Redirected to another device: by a device map, and by the bridge stage between known stations
    Redirect,
    /// By the kernel's routes: the least program that asks for them, the stage of the port's program, and the kernel itself
    Route,
}

impl fmt::Display for XdpScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpScenario::Drop => "drop",
            XdpScenario::Block => "block",
            XdpScenario::Tx => "tx",
            XdpScenario::Redirect => "redirect",
            XdpScenario::Route => "route",
        })
    }
}

/// `trivium xdp filter`
#[derive(Clone, Debug, Subcommand)]
pub enum FilterCommand {
    /// Packets of each rule, as `trivium show filters`
    Show {
        /// Only this filter
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a rule to a filter that the API owns: fields as those of `[[filter.NAME.rule]]` in the configuration, lists with commas
    Add(Box<RuleAdd>),
    /// Remove a rule of a filter that the API owns
    Remove(RuleRemove),
    /// Put source prefixes into a block list until the daemon ends; the list's file stays as it is
    Block(Block),
    /// Take source prefixes out of a block list
    Unblock(Unblock),
    /// Read a block list's file anew
    Reload {
        /// The filter; may be left out where only one has a block list
        filter: Option<String>,
    },
    /// Frames that rules with `action = "sample"` choose from now on, as they come
    Samples(FilterSamples),
}

/// `trivium xdp filter samples`
#[derive(Clone, Debug, Args)]
pub struct FilterSamples {
    /// The filter, or a port that has one: then only that port's frames
    pub name: String,
    /// Write pcapng to this file ("-": standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Stop after so many
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
    pub seconds: Option<u64>,
    /// Only frames that match all of it, such as `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// `trivium xdp filter block` and `unblock`
#[derive(Clone, Debug, Args)]
pub struct Block {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// The filter; may be left out where only one has a block list
    #[arg(long)]
    pub filter: Option<String>,
    /// Take them out again after so many seconds ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub expires: Option<u64>,
}

/// `trivium xdp filter unblock`
#[derive(Clone, Debug, Args)]
pub struct Unblock {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// The filter; may be left out where only one has a block list
    #[arg(long)]
    pub filter: Option<String>,
}

/// `trivium xdp steer`
#[derive(Clone, Debug, Subcommand)]
pub enum SteerCommand {
    /// What each steering has sent where, as `trivium show steers`
    Show {
        /// Only this steering
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Its exact flows with their packets
    Flows {
        /// The steering; may be left out where there is only one
        #[arg(long)]
        steer: Option<String>,
        /// So many at most
        #[arg(short, long, default_value_t = 1000)]
        number: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say where an exact flow goes, until its hooks or the daemon's successor forget it; the configuration stays as it is
    Add {
        /// The flow
        #[command(flatten)]
        flow: FlowArgs,
        /// `worker`, `kernel` or `cpu N`
        #[arg(long, value_name = "TARGET", value_parser = target)]
        to: model::SteerTarget,
        /// Handed on with its packets (decimal, or hexadecimal as 0x10)
        #[arg(long, value_parser = mark)]
        mark: Option<u32>,
        /// Take it out again after so many seconds ("60" or "60s")
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        expires: Option<u64>,
    },
    /// Take an exact flow out that was added
    Remove {
        /// The flow
        #[command(flatten)]
        flow: FlowArgs,
    },
    /// Where each bucket of the flows' hash goes; with targets: set that until the configuration's table changes
    Table {
        /// The steering
        steer: String,
        /// `worker`, `kernel` or `cpu N`, as many as a power of two up to 256
        #[arg(value_name = "TARGET", value_parser = target)]
        targets: Vec<model::SteerTarget>,
    },
}

/// An exact flow.
#[derive(Clone, Debug, Args)]
pub struct FlowArgs {
    /// The steering; may be left out where there is only one
    #[arg(long)]
    pub steer: Option<String>,
    /// From this address
    #[arg(long, value_name = "ADDRESS")]
    pub source: IpAddr,
    /// To this address
    #[arg(long, value_name = "ADDRESS")]
    pub destination: IpAddr,
    /// A word such as tcp, or a number
    #[arg(long, value_parser = protocol)]
    pub protocol: u8,
    /// From this port; TCP, UDP and SCTP have one
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// To this port; TCP, UDP and SCTP have one
    #[arg(long, value_name = "PORT")]
    pub destination_port: Option<u16>,
    /// Its tag; untagged if absent
    #[arg(long)]
    pub vlan: Option<u16>,
}

fn lengths(text: &str) -> Result<Lengths, String> {
    let listed = |item: &str| {
        let (length, weight) = item.split_once('x').unwrap_or((item, "1"));
        let weight: u32 = weight.parse().ok().filter(|weight| *weight > 0)?;
        Some((length.parse().ok()?, weight))
    };
    match text {
        "shortest" => Ok(Lengths::Shortest),
        "imix" => Ok(Lengths::Imix),
        list => list.split(',').map(listed).collect::<Option<_>>().map(Lengths::Listed).ok_or_else(|| {
            format!("'{text}' is no list of lengths; write bytes such as 60, with weights 60x7,594x4,1514x1, or imix")
        }),
    }
}

fn target(text: &str) -> Result<model::SteerTarget, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn protocol(text: &str) -> Result<u8, String> {
    let known = model::Protocol::WORDS.iter().find(|(word, _)| *word == text).map(|(_, number)| *number);
    let number = known.or_else(|| text.parse().ok());
    number.ok_or_else(|| format!("'{text}' is no protocol; write tcp, udp, icmp or a number from 0 to 255"))
}

fn mark(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| format!("'{text}' is no mark; write a number of 32 bits, such as 16 or 0x10"))
}

fn prefix(text: &str) -> Result<model::Prefix, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn mac(text: &str) -> Result<MacAddr, String> {
    text.parse().map_err(|error| format!("{error}"))
}

/// A length of time for which runs are counted.
fn counted(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds from 0 to 60; write 1 or 0.5")),
    }
}
