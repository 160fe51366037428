//! `trivium stop`: stops the daemon that listens on the API socket, even if this daemon has
//! replaced another daemon in an upgrade. The daemon ends as it does on SIGTERM.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::body::Bytes;

use crate::args::Json;
use crate::client::Client;
use crate::failure::Failure;

/// Maximum time to wait until the daemon has ended. Its workers first finish the packets they hold.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a descriptor (pidfd) of the daemon's process, whose ID is in the daemon's response. Returns `None` if
/// that process has ended or is in another PID namespace.
fn process(answer: &[u8]) -> Option<OwnedFd> {
    let text = std::str::from_utf8(answer).ok()?;
    let number: i32 = text.split_whitespace().next_back()?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    let process = rustix::process::Pid::from_raw(number).filter(|_| name.starts_with("trivium"))?;
    rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).ok()
}

fn has_ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Stops the daemon and waits until it has ended.
///
/// # Errors
/// Returns an error if no daemon answers, or the daemon does not end in time.
pub async fn stop(client: &Client, args: Json) -> Result<(), Failure> {
    let answer = client.request(Method::POST, "/v1/stop", "", Bytes::new()).await?.success()?;
    let process = process(&answer.body);
    let begin = Instant::now();
    // The socket file is removed before the process ends, and hooks and claims are released with the process.
    while client.socket().exists() || process.as_ref().is_some_and(|process| !has_ended(process)) {
        if begin.elapsed() > PATIENCE {
            let cause = format!("it has not ended after {} s", PATIENCE.as_secs());
            return Err(Failure::new("daemon", cause, "look at its log; `kill -9` ends it in any case"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    match args.json {
        true => println!("{}", serde_json::json!({ "stopped": true })),
        false => println!("stopped"),
    }
    Ok(())
}
