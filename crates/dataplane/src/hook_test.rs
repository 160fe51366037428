//! Test runs of a port's hook program (`BPF_PROG_TEST_RUN`), which explain what the hook does with a frame. The kernel
//! verifies a program for each test run. The test run therefore takes place after the running state is unlocked.

use control::PlaneError;
use model::{Namespace, PortName};
use xdp::{Attached, Explainer, HookSays};

use super::device::{failed, inside, object};

/// Length in bytes of an Ethernet header. The kernel runs no program on a shorter frame.
const SHORTEST: usize = 14;

/// A port's hook program for a test run.
pub struct HookTest {
    port: PortName,
    explainer: Explainer,
    namespace: Option<Namespace>,
}

/// Result of a test run.
pub struct HookAnswer {
    /// Verdict of the program, with the reasons.
    pub says: HookSays,
    /// Name of the device through which the kernel's routes send the frame.
    pub device: Option<String>,
}

impl HookTest {
    /// Creates a test run of the program `hook` of a port, whose device is in `namespace`. If a map of the program
    /// cannot be duplicated, logs the error and returns `None`.
    pub fn new(port: &PortName, hook: &Attached, namespace: Option<&Namespace>) -> Option<HookTest> {
        let explainer = hook.explainer().map_err(|error| failed(port, &error));
        let explainer = explainer.inspect_err(|error| log_failure(port, error)).ok()?;
        Some(HookTest { port: port.clone(), explainer, namespace: namespace.cloned() })
    }

    /// Returns the network namespace of the port's device.
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Runs the program on `frame`, which is not sent. Returns `None` if the frame is too short. If the test run fails,
    /// logs the error and returns `None`.
    pub fn run(&self, frame: &[u8]) -> Option<HookAnswer> {
        if frame.len() < SHORTEST {
            return None;
        }
        let run = || {
            let says = self.explainer.explain(frame).map_err(|error| failed(&self.port, &error))?;
            let device = says.device.map(|index| match port::link::by_index(index) {
                Ok(info) => info.name,
                Err(_) => format!("device #{index}"),
            });
            Ok(HookAnswer { says, device })
        };
        inside(&object(&self.port), self.namespace(), run)
            .inspect_err(|error| log_failure(&self.port, error))
            .ok()
    }
}

/// Logs that a test run has failed.
fn log_failure(port: &PortName, error: &PlaneError) {
    tracing::warn!(%port, %error, "its hook cannot be asked");
}
