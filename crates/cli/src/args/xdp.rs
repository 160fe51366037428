//! Grammar of `trivium xdp`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use packet::MacAddr;

use super::{RuleAdd, RuleRemove, seconds};

/// Subcommands of `trivium xdp`.
#[derive(Clone, Debug, Subcommand)]
pub enum Xdp {
    /// Show program, mode, stages, maps and run time of each port's hook
    Status(XdpStatus),
    /// Show each port's hook once a second: frames by verdict, and frames that the kernel lost after the
    /// verdict
    Monitor(XdpMonitor),
    /// Capture frames as a port's hook receives them and as the hook leaves them, with the verdict
    Dump(XdpDump),
    /// Load a custom program in front of a port's program. The custom program's verdict is final unless it
    /// continues with the port's program
    Load(XdpLoad),
    /// Remove the custom program in front of a port's program
    Unload(XdpUnload),
    /// Send generated frames, or the frames of a capture file, from a device. Needs root and no daemon
    Gen(XdpGen),
    /// Measure the hook between temporary devices, and compare it with a minimal program. Needs root and no
    /// daemon
    Bench(XdpBench),
    /// Show and change filters of ports' hooks (see `[filter.NAME]` in the configuration)
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Show and change flow steering (see `[steering.NAME]` in the configuration)
    #[command(subcommand, alias = "steer")]
    Steering(SteeringCommand),
}

/// Arguments of `trivium xdp status`.
#[derive(Clone, Debug, Args)]
pub struct XdpStatus {
    /// Show only this port
    pub port: Option<String>,
    /// Duration in seconds for which program runs are counted. 0 disables counting. Counting slows down all
    /// BPF programs of the machine a little
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = counted)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium xdp monitor`.
#[derive(Clone, Debug, Args)]
pub struct XdpMonitor {
    /// Show only this port
    pub port: Option<String>,
    /// Show each frame that the kernel loses after the program's verdict, with the reason, as it happens
    #[arg(long)]
    pub each: bool,
    /// Number of seconds after which to stop
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Print one JSON object for each second, or for each lost frame
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `trivium xdp dump`.
#[derive(Clone, Debug, Args)]
pub struct XdpDump {
    /// Name of the port
    pub port: String,
    /// Capture only frames with these verdicts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "VERDICT")]
    pub verdict: Vec<HookVerdict>,
    /// Point of capture
    #[arg(long, value_enum, default_value_t = DumpAt::Both)]
    pub at: DumpAt,
    /// Number of bytes to capture of each frame, 14 to 2048
    #[arg(long, default_value_t = 256, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..=2048))]
    pub snap: u32,
    /// Write pcapng to this file ("-" for standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Number of records after which to stop (a frame captured at both points counts twice)
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Number of seconds after which to stop
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
    pub seconds: Option<u64>,
    /// Capture only frames that match all of these fields, such as
    /// `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Point at which frames of a hook are captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DumpAt {
    /// Frames as the hook receives them
    Entry,
    /// Frames as the hook leaves them
    Exit,
    /// Both points, one record for each
    Both,
}

/// XDP verdict of a hook for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HookVerdict {
    /// The program failed and the frame is dropped
    Aborted,
    /// The frame is dropped
    Drop,
    /// The frame goes to the kernel
    Pass,
    /// The frame is sent out of the device that received it
    Transmit,
    /// The frame is redirected to a socket, a device or a core
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

/// Arguments of `trivium xdp load`.
#[derive(Clone, Debug, Args)]
pub struct XdpLoad {
    /// Object file as clang writes it (`clang -O2 -g -target bpf -c`), at most 4 MiB
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name of the port. A custom program that is already loaded is replaced
    #[arg(long)]
    pub port: String,
    /// Name of the program, if the object has several
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,
}

/// Arguments of `trivium xdp unload`.
#[derive(Clone, Debug, Args)]
pub struct XdpUnload {
    /// Name of the port
    #[arg(long)]
    pub port: String,
}

/// Arguments of `trivium xdp gen`.
#[derive(Clone, Debug, Args)]
pub struct XdpGen {
    /// Device that sends the frames. The other end of its link (such as a veth peer) receives them
    pub device: String,
    /// Network namespace of the device: a name or a path
    #[arg(long)]
    pub namespace: Option<String>,
    /// Send the frames of this file (pcap or pcapng) repeatedly
    #[arg(long, value_name = "FILE", conflicts_with_all = ["length", "flows", "vary", "protocol", "vlan", "source_mac",
        "destination_mac", "source", "destination", "port"])]
    pub pcap: Option<PathBuf>,
    /// Duration of sending in seconds, up to 3600
    #[arg(long, default_value_t = 1.0, value_parser = super::measured)]
    pub seconds: f64,
    /// Number of frames to send, in place of a duration
    #[arg(short, long, value_name = "N", conflicts_with = "seconds")]
    pub packets: Option<u64>,
    /// Frames per second. No limit if absent
    #[arg(long, value_name = "PPS")]
    pub rate: Option<u64>,
    /// Length of the frames in bytes, 60 to 1514. Several lengths take turns by their weights: `60,594,1514`
    /// or `60x7,594x4,1514x1`; `imix` is 7 of the shortest, 4 of 590 and 1 of 1514 bytes (64, 594 and 1518
    /// with the check sequence)
    #[arg(long, default_value = "shortest", value_name = "BYTES", value_parser = lengths)]
    pub length: Lengths,
    /// Number of flows, a power of two
    #[arg(long, default_value_t = 1)]
    pub flows: u32,
    /// Fields in which flows differ. Ports if absent
    #[arg(long, value_enum, value_delimiter = ',')]
    pub vary: Vec<Varied>,
    /// Order of flows (or of the file's frames, or of several lengths)
    #[arg(long, value_enum, default_value_t = FrameOrder::Turn)]
    pub order: FrameOrder,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u32,
    /// Transport protocol of the frames
    #[arg(long, value_enum, default_value_t = FrameProtocol::Udp)]
    pub protocol: FrameProtocol,
    /// VLAN id of the frames. Untagged if absent
    #[arg(long)]
    pub vlan: Option<u16>,
    /// Source MAC address of the first flow
    #[arg(long, default_value = "02:00:00:00:00:01", value_name = "ADDRESS", value_parser = mac)]
    pub source_mac: MacAddr,
    /// Destination MAC address of the first flow
    #[arg(long, default_value = "02:00:00:00:00:02", value_name = "ADDRESS", value_parser = mac)]
    pub destination_mac: MacAddr,
    /// Source address (IPv4 or IPv6) of the first flow. If absent, 10.0.1.2, or 2001:db8:1::2 if the
    /// destination is IPv6
    #[arg(long, value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// Destination address of the first flow. If absent, 10.0.2.2, or 2001:db8:2::2 if the source is IPv6
    #[arg(long, value_name = "ADDRESS")]
    pub destination: Option<IpAddr>,
    /// Destination port of the first flow
    #[arg(long, default_value_t = 9)]
    pub port: u16,
    /// CPU core that sends. Any core if absent
    #[arg(long)]
    pub core: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Fields in which generated flows differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Varied {
    /// Source port, then destination port
    Ports,
    /// Source MAC address
    SourceMac,
    /// Destination MAC address
    DestinationMac,
    /// Destination address
    Destination,
    /// Source address: any address for IPv4, within the first 32 bits for IPv6
    Source,
}

/// Order in which generated frames follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FrameOrder {
    /// In turn
    Turn,
    /// Pseudo-random, reproducible with the same seed
    Random,
}

/// Transport protocol of generated frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FrameProtocol {
    /// UDP. Over IPv4, frames of one length have no checksum, which is valid
    Udp,
    /// TCP ACK segments. Over IPv4, frames of one length have an invalid checksum
    Tcp,
}

/// Lengths of generated frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lengths {
    /// Shortest length that Ethernet and the headers allow.
    Shortest,
    /// Simple IMIX, the mixture of three lengths that is common in tests of Internet traffic.
    Imix,
    /// Lengths in bytes, each with its weight. The list has at least one entry, and no weight is 0.
    Listed(Vec<(u16, u32)>),
}

/// Arguments of `trivium xdp bench`.
#[derive(Clone, Copy, Debug, Args)]
pub struct XdpBench {
    /// Scenario to measure
    #[arg(value_enum)]
    pub scenario: XdpScenario,
    /// Duration of each measurement in seconds
    #[arg(long, default_value_t = 1.0, value_parser = super::measured)]
    pub seconds: f64,
    /// Number of measurements of each variant. Variants take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Scenarios of `trivium xdp bench`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum XdpScenario {
    /// Drop: a minimal program, a program that reads the frame, the port's program without a socket, and its
    /// filter with one rule
    Drop,
    /// Block list: a million prefixes in the filter, random sources, half of them listed
    Block,
    /// Transmit: addresses swapped and frames sent back, by a program alone and as a custom program in front
    /// of the port's program
    Tx,
    /// Redirect to another device: by a device map, and by the bridge stage between known addresses
    Redirect,
    /// Route: the smallest program that looks up the kernel's routes, the stage of the port's program, and
    /// the kernel itself
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

/// Subcommands of `trivium xdp filter`.
#[derive(Clone, Debug, Subcommand)]
pub enum FilterCommand {
    /// Show packets of each rule, like `trivium show filters`
    Show {
        /// Show only this filter
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a rule to a filter that the API owns. Fields are named as in `[[filter.NAME.rule]]` in the
    /// configuration, and lists are separated by commas
    Add(Box<RuleAdd>),
    /// Remove a rule of a filter that the API owns
    Remove(RuleRemove),
    /// Add source prefixes to a block list until the daemon ends. The list's file is not changed
    Block(Block),
    /// Remove source prefixes from a block list
    Unblock(Unblock),
    /// Read the file of a block list again
    Reload {
        /// Name of the filter. Optional if only one filter has a block list
        filter: Option<String>,
    },
    /// Capture frames that rules with `action = "sample"` choose, as received
    Samples(FilterSamples),
}

/// Arguments of `trivium xdp filter samples`.
#[derive(Clone, Debug, Args)]
pub struct FilterSamples {
    /// Name of a filter, or of a port with a filter. With a port, only its frames are captured
    pub name: String,
    /// Write pcapng to this file ("-" for standard output)
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Number of frames after which to stop
    #[arg(short, long, value_name = "N")]
    pub number: Option<u64>,
    /// Number of seconds after which to stop
    #[arg(long, value_name = "SECONDS", value_parser = super::seconds)]
    pub seconds: Option<u64>,
    /// Capture only frames that match all of these fields, such as
    /// `ip_src=10.0.0.0/8,tcp,dst_port=80,vlan=10`
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

/// Arguments of `trivium xdp filter block`.
#[derive(Clone, Debug, Args)]
pub struct Block {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// Name of the filter. Optional if only one filter has a block list
    #[arg(long)]
    pub filter: Option<String>,
    /// Remove the prefixes again after this time ("60" or "60s")
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub expires: Option<u64>,
}

/// Arguments of `trivium xdp filter unblock`.
#[derive(Clone, Debug, Args)]
pub struct Unblock {
    /// Addresses or prefixes, such as `192.0.2.0/24`
    #[arg(required = true, value_name = "PREFIX", value_parser = prefix)]
    pub prefixes: Vec<model::Prefix>,
    /// Name of the filter. Optional if only one filter has a block list
    #[arg(long)]
    pub filter: Option<String>,
}

/// Subcommands of `trivium xdp steering`.
#[derive(Clone, Debug, Subcommand)]
pub enum SteeringCommand {
    /// Show packets of each steering by target, like `trivium show steering`
    Show {
        /// Show only this steering
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the exact flows of a steering with their packets
    Flows {
        /// Name of the steering. Optional if there is only one
        #[arg(long)]
        steering: Option<String>,
        /// Maximum number of flows to show
        #[arg(short, long, default_value_t = 1000)]
        number: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add an exact flow with its target. The flow lasts until its hooks are removed or an upgrade replaces the daemon.
    /// The configuration is not changed
    Add {
        /// Flow to add
        #[command(flatten)]
        flow: FlowArgs,
        /// Target: `worker`, `kernel` or `cpu N`
        #[arg(long, value_name = "TARGET", value_parser = target)]
        to: model::SteeringTarget,
        /// Mark in the metadata of the flow's packets, for programs that run after the hook (decimal, or 0x10)
        #[arg(long, value_parser = mark)]
        mark: Option<u32>,
        /// Remove the flow again after this time ("60" or "60s")
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        expires: Option<u64>,
    },
    /// Remove an exact flow that was added
    Remove {
        /// Flow to remove
        #[command(flatten)]
        flow: FlowArgs,
    },
    /// Show the target of each bucket of the flow hash. If targets are given, set them first. They apply until the
    /// table in the configuration changes
    Table {
        /// Name of the steering
        steering: String,
        /// List of targets (`worker`, `kernel` or `cpu N`), a power of two in number, at most 256
        #[arg(value_name = "TARGET", value_parser = target)]
        targets: Vec<model::SteeringTarget>,
    },
}

/// Arguments that identify an exact flow (addresses, protocol, ports and VLAN) in a steering command.
#[derive(Clone, Debug, Args)]
pub struct FlowArgs {
    /// Name of the steering. Optional if there is only one
    #[arg(long, alias = "steer")]
    pub steering: Option<String>,
    /// Source address of the flow
    #[arg(long, value_name = "ADDRESS")]
    pub source: IpAddr,
    /// Destination address of the flow
    #[arg(long, value_name = "ADDRESS")]
    pub destination: IpAddr,
    /// IP protocol: a word such as tcp, or a number
    #[arg(long, value_parser = protocol)]
    pub protocol: u8,
    /// Source port, for TCP, UDP and SCTP
    #[arg(long, value_name = "PORT")]
    pub source_port: Option<u16>,
    /// Destination port, for TCP, UDP and SCTP
    #[arg(long, value_name = "PORT")]
    pub destination_port: Option<u16>,
    /// VLAN id of the flow. Untagged if absent
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

fn target(text: &str) -> Result<model::SteeringTarget, String> {
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

/// Parses the option `--seconds` of `trivium xdp status`: the duration, 0 to 60 seconds, for which program runs are
/// counted.
fn counted(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is no number of seconds from 0 to 60; write 1 or 0.5")),
    }
}
