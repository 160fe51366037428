//! `trivium doctor`: what stands in the way, the worst first, each with its fix.

use model::{DoctorFinding, Finding};

use crate::cli::Json;
use crate::client::Client;
use crate::failure::{Failure, Kind};

/// Prints the findings.
///
/// # Errors
/// If the daemon does not answer, or something does not work.
pub async fn doctor(client: &Client, args: &Json) -> Result<(), Failure> {
    let findings: Vec<DoctorFinding> = client.get("/v1/doctor").await?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&findings).unwrap_or_default());
    } else {
        for finding in &findings {
            println!("{:<8} {}: {}", finding.severity.to_string(), finding.object, finding.finding);
            if !finding.fix.is_empty() {
                println!("         fix: {}", finding.fix);
            }
        }
    }
    let sick = findings.iter().any(|finding| finding.severity == Finding::Error);
    if sick { Err(Failure::told(Kind::Failed)) } else { Ok(()) }
}
