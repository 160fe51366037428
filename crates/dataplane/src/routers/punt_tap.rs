//! Punt TAP of a router: the TAP device on which the kernel receives the packets that workers do not route.

use control::{FailureKind, PlaneError};
use model::{Namespace, RouterName};
use packet::{MacAddr, PortId};
use port::Queue;
use port::netns::Netns;
use port::tap::{Tap, TapConfig, TapError};

use super::super::device::inside;
use super::object;

/// Prefix of the device names of punt TAPs. A number is appended to the prefix.
const TAP: &str = "trivium";
/// Number of device names that are tried for a new punt TAP.
const TAPS: u32 = 256;
/// MTU of punt TAPs in bytes. This MTU is larger than the largest packet that ports carry.
pub const TAP_MTU: u32 = 9_216;

/// A router's punt TAP: the device on which the kernel receives the packets that workers do not route.
pub struct PuntTap {
    pub name: String,
    pub mac: MacAddr,
    /// Number by which the data path identifies the punt TAP as a port. `None` until the TAP is in the workers'
    /// snapshot.
    pub port: Option<PortId>,
    /// Queue of the punt TAP. `None` when a worker owns the queue.
    pub queue: Option<Box<dyn Queue>>,
}

impl PuntTap {
    /// Creates a router's punt TAP in the namespace of the router.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the TAP, or if all device names for punt TAPs are in use.
    pub fn make(router: &RouterName, namespace: Option<&Namespace>) -> Result<PuntTap, PlaneError> {
        let failed = |error: &TapError| PlaneError::failed(object(router), error, "");
        let made = (0..TAPS).map(|number| {
            let config = TapConfig {
                kind: "tap",
                netns: namespace.map(|namespace| Netns::Path(namespace.path())),
                mtu: TAP_MTU,
                ..TapConfig::new(format!("{TAP}{number}"))
            };
            Tap::create(&config)
        });
        let made = made.into_iter().find(|made| !matches!(made, Err(TapError::Exists { .. })));
        let tap = match made {
            Some(made) => made.map_err(|error| failed(&error))?,
            None => return Err(full(router)),
        };
        let name = tap.link.name.clone();
        inside(&object(router), namespace, || {
            settings(&name);
            Ok(())
        })?;
        let mac = tap.link.mac.unwrap_or(MacAddr([0; 6]));
        let queue = tap.queues.into_iter().next().map(|queue| Box::new(queue) as Box<dyn Queue>);
        Ok(PuntTap { name, mac, port: None, queue })
    }

    /// Returns the name to which the port number of a router's punt TAP is assigned.
    pub fn port_name(router: &RouterName) -> String {
        format!("kernel of {router}")
    }
}

fn full(router: &RouterName) -> PlaneError {
    PlaneError {
        kind: FailureKind::Failed,
        object: object(router),
        cause: format!("devices {TAP}0 to {TAP}{} are taken in its namespace", TAPS - 1),
        fix: "remove those that nobody uses (`ip link del`)".to_owned(),
    }
}

/// Sets the kernel's sysctls for a punt TAP. The reverse-path filter must not be strict, because packets on the TAP
/// were received on other devices. The kernel must not originate packets on the TAP, because the TAP leads to no
/// network.
fn settings(tap: &str) {
    let path =
        |version: &str, device: &str, name: &str| format!("/proc/sys/net/{version}/conf/{device}/{name}");
    let strict =
        std::fs::read_to_string(path("ipv4", "all", "rp_filter")).is_ok_and(|text| text.trim() == "1");
    let loose = if strict { "2" } else { "0" };
    let all = [
        (path("ipv4", tap, "rp_filter"), loose),
        // The device is already up with a link-local address. IPv6 is disabled and enabled again without
        // address generation. The TAP needs IPv6 even if IPv6 is disabled by default.
        (path("ipv6", tap, "disable_ipv6"), "1"),
        (path("ipv6", tap, "addr_gen_mode"), "1"),
        (path("ipv6", tap, "disable_ipv6"), "0"),
    ];
    for (name, value) in all {
        if let Err(error) = std::fs::write(&name, value) {
            tracing::warn!(%name, %error, "could not be set");
        }
    }
}
