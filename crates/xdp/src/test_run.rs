//! Results of test runs of XDP programs (`BPF_PROG_TEST_RUN`).

use crate::verdict::Verdict;

/// Result of a test run of an XDP program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// Verdict of the program.
    pub verdict: Verdict,
    /// Contents of the frame as the program left it.
    pub frame: Vec<u8>,
    /// Mean time of one run in nanoseconds.
    pub nanoseconds: u32,
}
