//! List of the findings of `doctor`, with helper functions for the examinations.

use std::fs;

use model::{DoctorFinding, Finding, Namespace};

/// A list to which the examinations of `doctor` add their findings.
pub struct Chart {
    pub findings: Vec<DoctorFinding>,
}

impl Chart {
    /// Adds a finding about `object`. `fix` is a command or a text that states how to fix the problem.
    pub fn note(
        &mut self,
        object: &str,
        severity: Finding,
        finding: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (finding, fix) = (finding.into(), fix.into());
        self.findings.push(DoctorFinding { object: object.to_owned(), severity, finding, fix });
    }
}

/// Returns the value of a sysctl. Returns `None` if the kernel does not have the sysctl.
pub fn sysctl(path: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{path}")).ok().map(|text| text.trim().to_owned())
}

/// Returns `command` as a shell command that runs in the network namespace `namespace`.
pub fn there(namespace: Option<&Namespace>, command: &str) -> String {
    match namespace {
        None => command.to_owned(),
        Some(Namespace::Name(name)) => format!("ip netns exec {name} {command}"),
        Some(Namespace::Path(path)) => format!("nsenter --net={} {command}", path.display()),
    }
}
