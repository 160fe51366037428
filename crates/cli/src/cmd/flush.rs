//! `trivium flush`: removes learned addresses from bridges. Static entries remain.

use control::Flushed;
use hyper::Method;

use crate::args::Flush;
use crate::client::{Client, quoted};
use crate::failure::Failure;

/// Removes the learned addresses that match the arguments, and prints the number of removed addresses.
///
/// # Errors
/// Returns an error if the bridge or the port does not exist.
pub async fn flush(client: &Client, args: &Flush) -> Result<(), Failure> {
    let vlan = args.vlan.map(|vlan| vlan.to_string());
    let query: Vec<String> =
        [("bridge", &args.bridge), ("port", &args.port), ("vlan", &vlan), ("mac", &args.mac)]
            .into_iter()
            .filter_map(|(field, value)| value.as_ref().map(|value| format!("{field}={}", quoted(value))))
            .collect();
    let path = format!("/v1/fdb/flush?{}", query.join("&"));
    let done: Flushed = client.send(Method::POST, &path, &()).await?;
    match args.json {
        true => println!("{}", serde_json::to_string(&done).unwrap_or_default()),
        false => println!(
            "{} forgotten",
            if done.flushed == 1 { "1 address".to_owned() } else { format!("{} addresses", done.flushed) }
        ),
    }
    Ok(())
}
