//! `trivium xdp monitor`: prints once a second how many frames the XDP program of each port (its hook) has
//! processed, by XDP verdict, and how many of them the kernel lost after the verdict. With `--each`, every lost
//! frame is reported individually.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use model::HookState;
use serde::Serialize;
use xdp::watch::{Loss, LossAt, LossEvent, Losses};

use crate::args::XdpMonitor;
use crate::client::{Client, quoted};
use crate::cmd::capture::clock;
use crate::failure::Failure;
use crate::table::{Table, short};

const SECOND: Duration = Duration::from_secs(1);
/// Interval at which the command reads loss events from the BPF ring buffer.
const PERIOD: Duration = Duration::from_millis(50);
/// Size in bytes of the BPF ring buffer for loss events. The buffer holds 6,000 events, which may
/// occur as a burst within one [`PERIOD`].
const RING_BYTES: u32 = 256 << 10;

/// Numbers of frames of all ports' hooks in one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
struct Interval {
    elapsed_ns: u64,
    ports: BTreeMap<String, Flow>,
}

/// Numbers of frames of one port's hook in one interval.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
struct Flow {
    /// Number of frames that the hook's XDP program received.
    seen: u64,
    /// Number of frames for each XDP verdict of the program, by the verdict's name.
    ways: BTreeMap<String, u64>,
    /// Frames that the kernel lost after the XDP verdict, by tracepoint and reason.
    lost: Vec<Lost>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Lost {
    tracepoint: &'static str,
    reason: String,
    frames: u64,
}

/// One loss event: its time, the ports whose hook may have sent the frames, and the lost frames.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Each {
    at_ns: u64,
    ports: Vec<String>,
    #[serde(flatten)]
    lost: Lost,
}

/// Values of the hooks' counters and of the kernel's loss counters at one time. The difference of two such values
/// is printed.
struct Moment {
    at: Instant,
    hooks: Vec<HookState>,
    losses: Vec<Loss>,
}

/// Prints, once a second, the numbers of frames in the last second. Ends after the given number of seconds or when
/// Ctrl-C is pressed.
///
/// # Errors
/// Returns an error if the daemon does not answer, or the port has no hook.
pub async fn monitor(client: &Client, args: &XdpMonitor) -> Result<(), Failure> {
    if args.each {
        return each(client, args).await;
    }
    let losses = watched(Losses::watch());
    let mut before = look(client, args, losses.as_ref()).await?;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + SECOND, SECOND);
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut left = args.seconds;
    while left.is_none_or(|left| left > 0) {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut interrupt => break,
        }
        let now = look(client, args, losses.as_ref()).await?;
        let interval = between(&before, &now);
        match args.json {
            true => println!("{}", serde_json::to_string(&interval).unwrap_or_default()),
            false => print!("{}", text(&interval)),
        }
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Prints each loss event. Ends after the given number of seconds or when Ctrl-C is pressed.
async fn each(client: &Client, args: &XdpMonitor) -> Result<(), Failure> {
    let failed = |error| Failure::new("monitor", error, "it needs root, and a kernel with BTF");
    let Some(losses) = watched(Losses::watch_each(RING_BYTES)) else {
        return Err(Failure::new("monitor", "without them there is nothing to tell", "see the line above"));
    };
    let Some(reader) = losses.reader().map_err(failed)? else { return Ok(()) };
    let mut hooks = hooks(client, args).await?;
    let (mut looked, begun) = (Instant::now(), Instant::now());
    let mut ticks = tokio::time::interval(PERIOD);
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut missed = 0;
    while args.seconds.is_none_or(|seconds| begun.elapsed() < Duration::from_secs(seconds)) {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = &mut interrupt => break,
        }
        if looked.elapsed() >= SECOND {
            hooks = self::hooks(client, args).await?;
            looked = Instant::now();
        }
        for loss in reader.poll(Duration::ZERO).map_err(failed)? {
            let Some(each) = told(&loss, &hooks) else { continue };
            match args.json {
                true => println!("{}", serde_json::to_string(&each).unwrap_or_default()),
                false => println!("{}", line(&each)),
            }
        }
        let more = losses.missed().map_err(failed)?;
        if more > missed {
            eprintln!("{} more were left out: the ring was full", more - missed);
            missed = more;
        }
    }
    Ok(())
}

/// Converts a loss that the kernel reports into a loss event with the names of the ports whose hook may have sent
/// the frames. Returns `None` if there is no such port.
fn told(loss: &LossAt, hooks: &[HookState]) -> Option<Each> {
    let LossAt { at_ns, loss } = *loss;
    let ports: Vec<String> =
        hooks.iter().filter(|hook| is_of(&loss, hook)).map(|hook| hook.port.clone()).collect();
    let lost = Lost { tracepoint: loss.event.tracepoint(), reason: loss.reason(), frames: loss.frames };
    (!ports.is_empty()).then_some(Each { at_ns, ports, lost })
}

fn line(each: &Each) -> String {
    let (clock, ports, frames) = (clock(each.at_ns), each.ports.join("|"), each.lost.frames);
    let what = if frames == 1 { "1 frame".to_owned() } else { format!("{frames} frames") };
    format!("{clock} {ports} lost {what}: {} ({})", each.lost.reason, each.lost.tracepoint)
}

/// Returns the kernel's loss counters. If the counters are not available, prints a message and returns
/// `None`. If only some of their tracepoints are unavailable, prints the names of these tracepoints once.
fn watched(watched: Result<Losses, xdp::Error>) -> Option<Losses> {
    match &watched {
        Ok(losses) => {
            for (event, error) in losses.left_out() {
                eprintln!("left out: the kernel's {}: {error}", event.tracepoint());
            }
        }
        Err(error) => eprintln!("left out: what the kernel loses after the program's verdict: {error}"),
    }
    watched.ok()
}

async fn hooks(client: &Client, args: &XdpMonitor) -> Result<Vec<HookState>, Failure> {
    Ok(match &args.port {
        Some(port) => vec![client.get(&format!("/v1/hooks/{}", quoted(port))).await?],
        None => client.get("/v1/hooks").await?,
    })
}

async fn look(client: &Client, args: &XdpMonitor, losses: Option<&Losses>) -> Result<Moment, Failure> {
    let hooks = hooks(client, args).await?;
    let losses = losses.map_or_else(|| Ok(Vec::new()), Losses::read);
    let losses = losses.map_err(|error| Failure::new("monitor", error, ""))?;
    Ok(Moment { at: Instant::now(), hooks, losses })
}

fn between(before: &Moment, now: &Moment) -> Interval {
    let ports = now.hooks.iter().map(|hook| {
        let then = before.hooks.iter().find(|other| other.port == hook.port);
        let since = |way: &String| then.and_then(|then| then.counters.get(way)).copied().unwrap_or(0);
        // A hook that was replaced counts from 0.
        let passed =
            |(way, frames): (&String, &u64)| (way.clone(), frames.checked_sub(since(way)).unwrap_or(*frames));
        let ways: BTreeMap<String, u64> =
            hook.counters.iter().map(passed).filter(|(_, frames)| *frames > 0).collect();
        let lost = now.losses.iter().filter(|loss| is_of(loss, hook)).filter_map(|loss| {
            let same = |other: &&Loss| Loss { frames: loss.frames, ..**other } == *loss;
            let since = before.losses.iter().find(same).map_or(0, |other| other.frames);
            let frames = loss.frames.saturating_sub(since);
            (frames > 0).then(|| Lost { tracepoint: loss.event.tracepoint(), reason: loss.reason(), frames })
        });
        (hook.port.clone(), Flow { seen: ways.values().sum(), lost: lost.collect(), ways })
    });
    let elapsed_ns = u64::try_from((now.at - before.at).as_nanos()).unwrap_or(u64::MAX);
    Interval { elapsed_ns, ports: ports.collect() }
}

/// Returns whether the lost frames may come from a port's hook. If frames were redirected to a CPU, the kernel
/// names only the CPU map, which all ports with one flow steering policy share.
fn is_of(loss: &Loss, hook: &HookState) -> bool {
    if loss.event == LossEvent::Cpu {
        return hook.maps.iter().any(|map| map.id == loss.ifindex);
    }
    u64::from(loss.netns) == hook.netns && loss.ifindex == hook.ifindex
}

/// Formats the frame rates of an interval. Each port has one line for all frames, and one for each verdict
/// and each loss.
fn text(interval: &Interval) -> String {
    let rate = |frames: u64| {
        let rate = u128::from(frames) * 1_000_000_000 / u128::from(interval.elapsed_ns.max(1));
        short(u64::try_from(rate).unwrap_or(u64::MAX))
    };
    let mut table = Table::new(&["PORT", "FRAMES", ">PER SECOND"]);
    for (port, flow) in &interval.ports {
        table.row([port.clone(), "met the hook".to_owned(), rate(flow.seen)]);
        for (way, frames) in &flow.ways {
            table.row([String::new(), format!("  {way}"), rate(*frames)]);
        }
        for lost in &flow.lost {
            let what = format!("  then lost: {} ({})", lost.reason, lost.tracepoint);
            table.row([String::new(), what, rate(lost.frames)]);
        }
    }
    table.render() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at: Instant, steered: u64, frames: u64) -> Moment {
        let hook = HookState {
            port: "web1".to_owned(),
            netns: 7,
            ifindex: 3,
            counters: [("steered".to_owned(), steered), ("aborted".to_owned(), 0)].into(),
            ..HookState::default()
        };
        let loss = Loss { netns: 7, ifindex: 3, event: LossEvent::Redirect, code: 105, frames };
        Moment {
            at,
            hooks: vec![hook],
            losses: vec![Loss { ifindex: 4, ..loss }, Loss { netns: 8, ..loss }, loss],
        }
    }

    #[test]
    fn what_came_between_is_told_per_second() {
        let start = Instant::now();
        let interval = between(&moment(start, 100, 5), &moment(start + 2 * SECOND, 2_100, 45));
        assert_eq!(
            text(&interval),
            "PORT  FRAMES                                                     PER SECOND\n\
             web1  met the hook                                                    1.00k\n        \
             steered                                                       1.00k\n        \
             then lost: the socket's ring is full (xdp_redirect_err)          20\n\n"
        );
        let loss = LossAt { at_ns: 3_661_000_002_000, loss: moment(start, 0, 2).losses[2] };
        let each = told(&loss, &moment(start, 0, 0).hooks).unwrap();
        assert_eq!(
            line(&each),
            "01:01:01.000002 web1 lost 2 frames: the socket's ring is full (xdp_redirect_err)"
        );
        assert_eq!(
            told(&LossAt { loss: Loss { ifindex: 9, ..loss.loss }, ..loss }, &moment(start, 0, 0).hooks),
            None
        );
        // The hook was replaced between the two moments.
        let interval = between(&moment(start, 100, 5), &moment(start + SECOND, 40, 5));
        assert_eq!((interval.ports["web1"].seen, interval.ports["web1"].lost.len()), (40, 0));
    }
}
