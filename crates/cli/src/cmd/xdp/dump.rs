//! `trivium xdp dump`: captures frames before and after the XDP programs of a port (its hook), each with the XDP
//! verdict, to a pcapng file or as lines.

use packet::filter::Filter;

use crate::args::{Capture, DumpAt, XdpDump};
use crate::client::{Client, quoted};
use crate::cmd::capture;
use crate::cmd::trace::FILTER_EXAMPLE;
use crate::failure::Failure;

/// Captures frames of a port's hook until a limit is reached or Ctrl-C is pressed.
///
/// # Errors
/// Returns an error if the port has no hook, the filter expression is invalid, or the file cannot
/// be written.
pub async fn dump(client: &Client, args: &XdpDump) -> Result<(), Failure> {
    let filter = args.filter.join(",");
    // The expression is also parsed here, so that errors are reported without a daemon.
    Filter::parse(&filter).map_err(|error| Failure::new("filter", error, FILTER_EXAMPLE))?;
    let verdicts: Vec<String> = args.verdict.iter().map(ToString::to_string).collect();
    let path = format!(
        "/v1/hooks/{}/dump?entry={}&exit={}&verdicts={}&snap={}&filter={}",
        quoted(&args.port),
        args.at != DumpAt::Exit,
        args.at != DumpAt::Entry,
        verdicts.join(","),
        args.snap,
        quoted(&filter)
    );
    let output = Capture {
        port: args.port.clone(),
        drops: false,
        write: args.write.clone(),
        number: args.number,
        seconds: args.seconds,
        filter: args.filter.clone(),
    };
    capture::receive(client, &path, &output, "narrow the filter to lose none").await
}
