//! `trivium xdp gen`: sends frames from a device at a given rate or as fast as possible. The frames come from a BPF
//! program in the kernel, are built by the command ([`mixture`]), or are read from a capture file. No daemon is
//! needed.

mod mixture;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use port::netns::{self, Netns};
use port::pcap::Reader;
use serde_json::json;
use xdp::live::{Generator, Offered, Order, Protocol, Replay, Traffic, Vary};
use xdp::watch::{Loss, LossEvent, Losses};

use self::mixture::{Ends, FRAMES_MAX, Mixture};
use crate::args::{FrameOrder, FrameProtocol, Varied, XdpGen};
use crate::failure::Failure;

/// Interface index of the loopback device. In the kernel's loss counters, lost frames of the generator are
/// attributed to this device.
const LOOPBACK: u32 = 1;

/// Sends the requested frames and prints a report.
///
/// # Errors
/// Returns an error if the process lacks privilege, the device does not exist, or a value is out of
/// range.
pub fn run(args: &XdpGen) -> Result<(), Failure> {
    if let Some(core) = args.core {
        let fix = "name a core that this process may run on";
        sync::cpu::pin_current_thread(core)
            .map_err(|error| Failure::new(format!("core {core}"), error, fix))?;
    }
    let place = args.namespace.as_ref().map(|text| match text.starts_with('/') {
        true => Netns::Path(text.into()),
        false => Netns::Name(text.clone()),
    });
    let work = || send(args);
    netns::within_optional(place.as_ref(), work).map_err(|error| Failure::new(&args.device, error, ""))?
}

/// The sendable frames of a capture file, and the number of its frames that cannot be sent.
struct Recorded {
    frames: Vec<Vec<u8>>,
    left_out: usize,
}

/// Sends the frames that the arguments describe, and prints a report. The thread must be in the network
/// namespace of the device.
fn send(args: &XdpGen) -> Result<(), Failure> {
    let failed = |error: xdp::Error| Failure::new(&args.device, error, "");
    let index =
        port::link::find(&args.device).map_err(|error| Failure::new(&args.device, error, ""))?.ifindex;
    let recorded = args.pcap.as_deref().map(recorded).transpose()?;
    let ends = Ends::new(args.source, args.destination)?;
    let mut traffic = traffic(args, index);
    let built = match (&recorded, ends, args.length.one()) {
        (Some(_), ..) => None,
        // The BPF generator makes IPv4 frames of one length by itself.
        (None, Ends::V4(source, destination), Some(length)) => {
            traffic = Traffic { length, source, destination, ..traffic };
            None
        }
        _ => Some(Mixture { traffic: &traffic, lengths: &args.length, ends }.frames().map_err(failed)?),
    };
    let frames = recorded.as_ref().map(|recorded| &recorded.frames).or(built.as_ref());
    let mut generator = match frames {
        None => Generator::new(&traffic),
        Some(frames) => Generator::replay(&Replay {
            ifindex: index,
            frames,
            order: order(args),
            rate: args.rate,
            park: true,
        }),
    }
    .map_err(failed)?;
    // Losses are counted for the whole machine, so the difference over the run is reported.
    let losses = Losses::watch().ok();
    let before = losses.as_ref().map(lost).transpose().map_err(failed)?;
    let offered = offer(args, &mut generator).map_err(failed)?;
    let after = losses.as_ref().map(lost).transpose().map_err(failed)?;
    let lost = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    report(args, offered, lost, recorded.as_ref(), built.as_ref().map(Vec::len));
    Ok(())
}

/// Sends frames until the given number or duration is reached, or until Ctrl-C is pressed. Returns
/// the number of sent frames and the time taken.
fn offer(args: &XdpGen, generator: &mut Generator) -> Result<Offered, xdp::Error> {
    if let Some(packets) = args.packets {
        return generator.send(packets);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // The task ends with the process or with the runtime.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok();
    if let Some(runtime) = &runtime {
        runtime.spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                flag.store(true, Ordering::Relaxed);
            }
        });
    }
    let offered = generator.run_until(&stop, Duration::from_secs_f64(args.seconds));
    if let Some(runtime) = runtime {
        runtime.shutdown_background();
    }
    offered
}

/// Returns the number of generated frames that were lost so far before a device of this network namespace received
/// them.
fn lost(losses: &Losses) -> Result<u64, xdp::Error> {
    use std::os::linux::fs::MetadataExt;
    let inode = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |file| file.st_ino());
    let ours = |loss: &&Loss| {
        let place = u64::from(loss.netns) == inode && loss.ifindex == LOOPBACK;
        place && matches!(loss.event, LossEvent::Device | LossEvent::Redirect)
    };
    Ok(losses.read()?.iter().filter(ours).map(|loss| loss.frames).sum())
}

fn order(args: &XdpGen) -> Order {
    match args.order {
        FrameOrder::Turn => Order::InTurn,
        FrameOrder::Random => Order::Random(args.seed),
    }
}

/// Converts the arguments into the settings of the generator. Frame lengths and addresses are not set.
fn traffic(args: &XdpGen, ifindex: u32) -> Traffic {
    let varies = |what: Varied| args.vary.contains(&what);
    // Several flows differ in their ports by default.
    let ports = varies(Varied::Ports) || (args.flows > 1 && args.vary.is_empty());
    Traffic {
        ifindex,
        flows: args.flows,
        vary: Vary {
            ports,
            source_mac: varies(Varied::SourceMac),
            destination_mac: varies(Varied::DestinationMac),
            destination: varies(Varied::Destination),
            source: varies(Varied::Source),
        },
        order: order(args),
        source_mac: args.source_mac.0,
        destination_mac: args.destination_mac.0,
        vlan: args.vlan,
        protocol: match args.protocol {
            FrameProtocol::Udp => Protocol::Udp,
            FrameProtocol::Tcp => Protocol::Tcp,
        },
        destination_port: args.port,
        rate: args.rate,
        ..Traffic::to(ifindex)
    }
}

/// Reads the frames of a capture file. Frames that cannot be sent unchanged are only counted.
fn recorded(path: &Path) -> Result<Recorded, Failure> {
    let object = path.display().to_string();
    let fix = "name a pcap or pcapng file of Ethernet frames";
    let failed = |error: &dyn std::fmt::Display| Failure::new(object.clone(), error, fix);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let mut reader = Reader::new(BufReader::new(file)).map_err(|error| failed(&error))?;
    let mut recorded = Recorded { frames: Vec::new(), left_out: 0 };
    while let Some(record) = reader.next_record().map_err(|error| failed(&error))? {
        let whole = usize::try_from(record.original_len).is_ok_and(|length| length == record.data.len());
        let room = u32::try_from(recorded.frames.len()).is_ok_and(|count| count < FRAMES_MAX);
        if whole && room && Replay::fits(record.data.len()) {
            recorded.frames.push(record.data);
        } else {
            recorded.left_out += 1;
        }
    }
    if recorded.frames.is_empty() {
        return Err(failed(&"it has no whole frame of 14 to 1522 bytes"));
    }
    Ok(recorded)
}

fn report(
    args: &XdpGen,
    offered: Offered,
    lost: Option<u64>,
    recorded: Option<&Recorded>,
    built: Option<usize>,
) {
    let seconds = offered.elapsed.as_secs_f64();
    if args.json {
        let value = json!({
            "device": args.device,
            "offered": offered.packets,
            "seconds": seconds,
            "pps": offered.rate(),
            "lost": lost,
            "frames_of_file": recorded.map(|recorded| recorded.frames.len()),
            "left_out_of_file": recorded.map(|recorded| recorded.left_out),
            "frames_built": built,
        });
        println!("{value}");
        return;
    }
    if let Some(recorded) = recorded {
        let (frames, left_out) = (recorded.frames.len(), recorded.left_out);
        let why = "cut short, not of 14 to 1522 bytes, or beyond the 65536th";
        let left_out = if left_out > 0 { format!(", {left_out} left out ({why})") } else { String::new() };
        println!("{frames} frames of the file{left_out}");
    }
    if let Some(frames) = built {
        println!("{frames} frames built");
    }
    let rate = offered.rate() / 1e6;
    println!("{} frames offered to {} in {seconds:.3} s: {rate:.3} Mpps", offered.packets, args.device);
    match lost {
        Some(0) => println!("the device took all of them"),
        Some(lost) => println!("the device did not take {lost} of them"),
        None => println!("what the device did not take is not known: this kernel has no tracepoint for it"),
    }
}
