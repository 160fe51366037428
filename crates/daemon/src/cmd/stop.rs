//! `trivium stop`: ends the daemon behind the socket, whichever process that is after hand-overs. It ends as at SIGTERM.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::body::Bytes;

use crate::cli::Json;
use crate::client::Client;
use crate::failure::Failure;

/// How long an end may take: workers finish what they hold.
const PATIENCE: Duration = Duration::from_secs(10);

/// The process that the answer names, if it still lives and is of this process' PID namespace.
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

/// Asks the daemon to end and waits until it has.
///
/// # Errors
/// If none answers, or it does not end.
pub async fn stop(client: &Client, args: Json) -> Result<(), Failure> {
    let answer = client.request(Method::POST, "/v1/stop", "", Bytes::new()).await?.success()?;
    let process = process(&answer.body);
    let begin = Instant::now();
    // The name of the socket goes before the process, and with the process go its hooks and claims.
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
