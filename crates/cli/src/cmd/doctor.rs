//! `trivium doctor`: prints the problems of the daemon and the machine, most severe first, each with its fix.

use dataplane::preflight;
use model::{DoctorFinding, Finding};

use crate::args::Json;
use crate::client::Client;
use crate::failure::{Failure, Kind};

/// Prints the problems that the daemon has found. If no daemon runs, prints the problems of the machine only.
///
/// # Errors
/// Returns an error if the daemon does not answer, or a problem has the severity `error`.
pub async fn doctor(client: &Client, args: &Json) -> Result<(), Failure> {
    let findings: Vec<DoctorFinding> = match client.get("/v1/doctor").await {
        Err(failure) if failure.kind == Kind::Unreachable => {
            print(&preflight(), args.json);
            return Err(failure);
        }
        answer => answer?,
    };
    print(&findings, args.json);
    let sick = findings.iter().any(|finding| finding.severity == Finding::Error);
    if sick { Err(Failure::told(Kind::Failed)) } else { Ok(()) }
}

fn print(findings: &[DoctorFinding], json: bool) {
    if json {
        println!("{}", serde_json::to_string_pretty(findings).unwrap_or_default());
    } else {
        for finding in findings {
            println!("{:<8} {}: {}", finding.severity.to_string(), finding.object, finding.finding);
            if !finding.fix.is_empty() {
                println!("         fix: {}", finding.fix);
            }
        }
    }
}
