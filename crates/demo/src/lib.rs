//! `trivium demo`: a lab of network namespaces with a VLAN-aware bridge over AF_XDP, an OpenFlow bridge, a
//! router, and real traffic.
//!
//! ```text
//!   h1 10.99.0.1 ──veth── h1 ┐                    ┌ h3 ──veth── h3 10.99.0.3
//!                            ├ br0: VLAN 10 │ 20 ─┤                             all in namespaces of their own;
//!   h2 10.99.0.2 ──veth── h2 ┘                    └ h4 ──veth── h4 10.99.0.4    the daemon is in one too
//!
//!   h5 10.99.0.5 ──veth── h5 ─ of0: OpenFlow's rules ─ h6 ──veth── h6 10.99.0.6  driven live with ovs-ofctl
//! ```
//!
//! The router with FRR is described in `routing`. All namespaces and files of the lab are removed
//! when the demo ends, whether by its time limit, Ctrl-C, an error or a kill. Usually the demo
//! process itself removes them. If the demo process is killed, the clean-up process of `reaper`
//! removes the namespaces and files. If both processes are killed, the next demo removes the
//! namespaces and files.
//!
//! ```
//! // The demo suggests commands of the binary.
//! assert!(demo::HINTS.iter().any(|hint| hint.starts_with("show ports")));
//! ```

mod daemon;
mod lab;
mod reaper;
mod routing;
mod traffic;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use cli::args::Demo;
use cli::client::Client;
use cli::failure::{Failure, Kind};
use cli::live::{self, CounterEvents, Rates};
use daemon::Daemon;
use lab::Lab;
use routing::{Frr, Routed};
use traffic::{Echoes, Flood, Pings, Tcp};

/// Number of threads of the demo's event loop.
const EVENT_THREADS: usize = 2;

/// Duration of one iperf3 run in seconds if the demo has no time limit.
const SLICE: u64 = 10;

/// Minimum duration of the TCP traffic if the demo has a time limit.
const LEAST: Duration = Duration::from_secs(4);

/// Commands that the demo suggests to the user.
pub const HINTS: [&str; 6] = [
    "show ports        # or bridges, fdb, filters, routers, workers, drops, stages, config",
    "xdp status h3     # the driver hook: its program, its filter, what it answers by itself",
    "top",
    "trace --in h1 tcp",
    "explain --in h1 eth_src=02:00:00:00:00:01,ip_dst=10.99.0.2,udp",
    "capture all -n 10 # --drops: what is dropped, and why",
];

/// Measured results of all parts of the demo.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Findings {
    pings: Pings,
    flood: Flood,
    /// Results of the routing part. `None` if FRR is not installed.
    routed: Option<Routed>,
    tcp_gbps: f64,
}

impl Findings {
    /// Returns whether the lab has forwarded all traffic that it must forward, and no other
    /// traffic.
    fn ok(&self) -> bool {
        let crossed = self.pings.sent > 0 && self.pings.loss() < 1e-9 && self.pings.leaked == 0;
        crossed && self.flood.ok() && self.routed.is_none_or(|routed| routed.ok()) && self.tcp_gbps > 0.01
    }
}

/// Builds the lab, runs the daemon, generates and shows traffic, and cleans up. With `--reap`, the
/// function instead waits for the end of another demo process and cleans up after that process.
///
/// # Errors
/// A requirement is missing, or traffic did not cross the lab.
pub fn run(args: &Demo) -> Result<(), Failure> {
    if let Some(prefix) = &args.reap {
        lab::reap(prefix);
        return Ok(());
    }
    let outcome = attempt(args);
    let found = *outcome.as_ref().unwrap_or(&Findings::default());
    let (loss, gbps) = (found.pings.loss(), (found.tcp_gbps * 1000.0).round() / 1000.0);
    let mut line = json!({
        "ok": outcome.is_ok() && found.ok(), "hosts": lab::HOSTS, "ping_loss": loss, "tcp_gbps": gbps,
        "flood_dropped": found.flood.dropped,
    });
    if let Some(routed) = found.routed {
        line["routes"] = json!({ "bgp": routed.bgp, "ospf": routed.ospf });
        line["routed_pings"] =
            json!({ "sent": routed.sent, "received": routed.received, "by_kernel": routed.by_kernel });
    }
    if let Err(failure) = &outcome {
        // The JSON object is the last line in any case.
        failure.print();
        line["error"] = failure.to_string().into();
    }
    println!("{line}");
    match outcome {
        Ok(found) if found.ok() => Ok(()),
        Ok(_) => Err(Failure::told(Kind::Failed)),
        Err(failure) => Err(Failure::told(failure.kind)),
    }
}

fn attempt(args: &Demo) -> Result<Findings, Failure> {
    lab::check()?;
    lab::sweep();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(EVENT_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("demo", error, "raise the limit of tasks"))?;
    // Signals are handled from here on, so that an early request to stop works even if the process inherited
    // an ignored SIGINT.
    let mut stop = {
        let _inside = runtime.enter();
        Stop::listen()?
    };
    let begin = Instant::now();
    let deadline = args.seconds.map(|seconds| begin + Duration::from_secs(seconds));
    let lab = Lab::build(routing::is_available())?;
    let daemon = Daemon::start(&lab)?;
    let frr = if routing::is_available() { Some(Frr::start(&lab)?) } else { None };
    let outcome = runtime.block_on(show(&lab, &daemon, frr.as_ref(), args, deadline, &mut stop));
    // Running traffic is ended by the removal of its namespaces, and not by the event loop.
    drop(frr);
    drop(daemon);
    drop(lab);
    runtime.shutdown_timeout(Duration::from_secs(2));
    outcome
}

/// Handlers of the signals that end the demo: SIGINT (Ctrl-C) and SIGTERM.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new("demo", error, ""));
        Ok(Stop { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn show(
    lab: &Lab,
    daemon: &Daemon,
    frr: Option<&Frr>,
    args: &Demo,
    deadline: Option<Instant>,
    stop: &mut Stop,
) -> Result<Findings, Failure> {
    let client = Client::new(daemon.socket());
    println!("{}", lab.picture());
    let pings = tokio::select! {
        pings = traffic::ping_all(lab) => pings?,
        () = stop.asked() => return Err(Failure::new("demo", "interrupted before any traffic", "")),
    };
    println!(
        "ping: {} of {} answered between hosts of one VLAN, {} leaked between VLANs",
        pings.received, pings.sent, pings.leaked
    );
    let flood = tokio::select! {
        flood = traffic::flood(lab, &client) => flood?,
        () = stop.asked() => return Err(Failure::new("demo", "interrupted during the flood", "")),
    };
    println!(
        "flood: {} of {} frames from h3 dropped by the filter in its driver hook; {} of {} pings answered meanwhile",
        flood.dropped, flood.sent, flood.answered, flood.pings
    );
    let routed = match frr {
        None => None,
        Some(frr) => Some(tokio::select! {
            routed = frr.show(lab, &client) => routed?,
            () = stop.asked() => return Err(Failure::new("demo", "interrupted while routes were awaited", "")),
        }),
    };
    match routed {
        None => println!("router: left out, FRR is not installed (`make setup` installs it)\n"),
        Some(routed) => println!(
            "router: {} routes by BGP, {} by OSPF; {} of {} pings answered from behind west to behind east, {} of the packets \
             forwarded by the kernel\n",
            routed.bgp, routed.ospf, routed.received, routed.sent, routed.by_kernel
        ),
    }
    // TCP has its minimum time, however long the routing daemons took.
    let deadline = deadline.map(|deadline| deadline.max(Instant::now() + LEAST));
    let notes = hints(lab, daemon);
    println!("{}\n", notes.join("\n"));
    let echoes = Echoes::start(lab)?;
    let mut events = CounterEvents::open(&client).await?;
    let full_screen = std::io::stdout().is_terminal() && !args.plain;
    let tcp = Arc::new(Tcp::default());
    let runner = tokio::task::spawn_blocking({
        let (tcp, ends) = (Arc::clone(&tcp), lab.tcp_ends());
        move || tcp.run(&ends, deadline, SLICE)
    });
    let watched = watch(&mut events, (&tcp, &echoes), full_screen, &notes, deadline, stop).await;
    tcp.stop();
    let ran = tokio::time::timeout(Duration::from_secs(5), runner).await;
    watched?;
    if let Ok(Ok(Err(error))) = ran {
        return Err(error);
    }
    Ok(Findings { pings, flood, routed, tcp_gbps: tcp.gbps() })
}

/// Returns commands with which the user can examine the running demo.
fn hints(lab: &Lab, daemon: &Daemon) -> Vec<String> {
    let trivium =
        std::env::current_exe().map_or_else(|_| "trivium".to_owned(), |path| path.display().to_string());
    let mut lines = vec![
        "Look further from another terminal:".to_owned(),
        format!("  export TRIVIUM_SOCKET={}", daemon.socket().display()),
    ];
    lines.extend(HINTS.iter().map(|hint| format!("  {trivium} {hint}")));
    lines.push(format!("  nsenter --net=/run/netns/{} ping 10.99.0.2", lab.namespace(1)));
    let rules = lab.rules();
    lines.push(format!("  ovs-ofctl dump-flows {rules}"));
    lines
        .push(format!("  ovs-ofctl add-flow {rules} priority=10,icmp,actions=drop     # h6 gets no answers"));
    lines.push(format!("  ovs-ofctl del-flows {rules} icmp                             # and now it does"));
    if lab.is_routed() {
        lines.push(format!(
            "  {trivium} show why {}     # or show routes, nexthops, neighbours, punts, drift",
            routing::TO
        ));
        let sockets = routing::directory(lab, "hub");
        lines.push(format!("  vtysh --vty_socket {} -c 'show ip route'", sockets.display()));
    }
    lines
}

/// Shows live counters until the time is over, the traffic has ended, or the user quits.
async fn watch(
    events: &mut CounterEvents,
    traffic: (&Tcp, &Echoes),
    full_screen: bool,
    notes: &[String],
    deadline: Option<Instant>,
    stop: &mut Stop,
) -> Result<(), Failure> {
    let mut terminal = match full_screen {
        true => Some(ratatui::try_init().map_err(|error| Failure::new("terminal", error, "use --plain"))?),
        false => None,
    };
    let shown = watch_on(events, traffic, terminal.as_mut(), notes, deadline, stop).await;
    if terminal.is_some() {
        ratatui::restore();
    }
    shown
}

async fn watch_on(
    events: &mut CounterEvents,
    (tcp, echoes): (&Tcp, &Echoes),
    mut terminal: Option<&mut ratatui::DefaultTerminal>,
    notes: &[String],
    deadline: Option<Instant>,
    stop: &mut Stop,
) -> Result<(), Failure> {
    let mut rates = Rates::default();
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            counters = events.next() => {
                let gone = || Failure::new("demo", "the daemon has ended", "look at its output above");
                rates.update(counters.ok_or_else(gone)?);
                let gbps = tcp.gbps();
                let line = format!("TCP h1 > h2: {gbps:.2} Gbit/s so far; ping h6 > h5: {echoes}; q or Ctrl-C ends the demo");
                if let Some(terminal) = terminal.as_mut() {
                    let mut lines: Vec<&str> = notes.iter().map(String::as_str).collect();
                    lines.insert(0, &line);
                    let drawn = terminal.draw(|frame| live::draw(frame, &rates, &lines));
                    drawn.map_err(|error| Failure::new("terminal", error, "use --plain"))?;
                } else {
                    println!("{}{line}\n", live::text(&rates).trim_end_matches('\n').to_owned() + "\n");
                }
            }
            () = stop.asked() => return Ok(()),
            _ = tick.tick() => {
                let over = deadline.is_some_and(|deadline| Instant::now() >= deadline) || tcp.is_over();
                if over || (terminal.is_some() && live::quit_pressed()) {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cli::args::{Cli, Command};
    use packet::{filter::Filter, spec};

    use super::*;

    #[test]
    fn every_hint_of_the_demo_is_understood() {
        for hint in HINTS {
            let words = hint.split(['#', ';']).next().into_iter().flat_map(str::split_whitespace);
            match Cli::read_from(["trivium"].into_iter().chain(words)).map(|cli| cli.command) {
                Ok(Command::Trace(trace)) => {
                    assert!(Filter::parse(&trace.filter.join(",")).is_ok(), "{hint}")
                }
                Ok(Command::Explain(explain)) => {
                    assert!(spec::parse(&explain.packet.join(",")).is_ok(), "{hint}");
                }
                Ok(_) => {}
                Err(error) => panic!("{hint}: {error}"),
            }
        }
    }
}
