//! The way into the kernel: a TAP of a router's own, by which packets come in that a worker cannot do itself.

use control::{FailureKind, PlaneError};
use model::{Namespace, RouterName};
use packet::{MacAddr, PortId};
use port::Queue;
use port::netns::Netns;
use port::tap::{Tap, TapConfig, TapError};

use super::super::device::inside;
use super::object;

/// What the TAPs are called, with a number behind it.
const TAP: &str = "trivium";
/// Numbers that are tried.
const TAPS: u32 = 256;
/// Bytes of the largest packet that the kernel is given, and a little: more than ports carry.
pub const TAP_MTU: u32 = 9_216;

/// The way into the kernel.
pub struct Door {
    pub name: String,
    pub mac: MacAddr,
    /// Its number, once workers know it.
    pub port: Option<PortId>,
    /// Its queue, until a worker has it.
    pub queue: Option<Box<dyn Queue>>,
}

impl Door {
    /// Makes one.
    ///
    /// # Errors
    /// If the kernel refuses, or too many devices are called so.
    pub fn make(router: &RouterName, namespace: Option<&Namespace>) -> Result<Door, PlaneError> {
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
        Ok(Door { name, mac, port: None, queue })
    }

    /// The name under which its port is numbered.
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

/// What comes in by a TAP of ours has come in elsewhere: the way back to its sender leads there. And it is no link: the kernel has
/// nothing to say on it by itself.
fn settings(tap: &str) {
    let path =
        |version: &str, device: &str, name: &str| format!("/proc/sys/net/{version}/conf/{device}/{name}");
    let strict =
        std::fs::read_to_string(path("ipv4", "all", "rp_filter")).is_ok_and(|text| text.trim() == "1");
    let loose = if strict { "2" } else { "0" };
    let all = [
        (path("ipv4", tap, "rp_filter"), loose),
        // The device is up already, with a link-local address: IPv6 goes, and comes again without one. It has to come even where devices have
        // none by default.
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
