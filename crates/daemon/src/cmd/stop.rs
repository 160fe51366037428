//! `trivium stop`: ends the daemon behind the socket, whichever process that is after hand-overs. It ends as at SIGTERM.

use std::time::{Duration, Instant};

use hyper::Method;
use hyper::body::Bytes;

use crate::client::Client;
use crate::failure::Failure;

/// How long an end may take: workers finish what they hold.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the daemon to end and waits until it has.
///
/// # Errors
/// If none answers, or it does not end.
pub async fn stop(client: &Client) -> Result<(), Failure> {
    client.request(Method::POST, "/v1/stop", "", Bytes::new()).await?.success()?;
    let begin = Instant::now();
    // The name of the socket goes last of all.
    while client.socket().exists() {
        if begin.elapsed() > PATIENCE {
            let cause = format!("it has not ended after {} s", PATIENCE.as_secs());
            return Err(Failure::new("daemon", cause, "look at its log; `kill -9` ends it in any case"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("stopped");
    Ok(())
}
