//! Error type for queries and changes of devices through netlink and the ethtool ioctls.

use crate::netlink::NetlinkError;

/// An error of a device query or change.
#[derive(Debug, thiserror::Error)]
#[error("device {device}: {action} failed ({source}); {next_step}")]
pub struct LinkError {
    /// Name or interface index of the device.
    pub device: String,
    /// Name of the operation that failed.
    pub action: &'static str,
    /// Error that the kernel returned.
    #[source]
    pub source: NetlinkError,
    /// Advice for the operator.
    pub next_step: &'static str,
}

impl LinkError {
    pub(crate) fn new(device: impl ToString, action: &'static str, source: NetlinkError) -> Self {
        let next_step = match source.errno() {
            libc::ENODEV => "check the name with `ip link`",
            libc::EPERM | libc::EACCES => "run as root or with CAP_NET_ADMIN",
            libc::EEXIST => "remove what is there or choose another name",
            libc::EINVAL | libc::ERANGE => "check the values in the configuration",
            libc::EBUSY => "set it down or stop the program that uses it",
            libc::EOPNOTSUPP => "this kernel or driver does not have it; choose another kind of port",
            _ => "see the kernel's log for more",
        };
        Self { device: device.to_string(), action, source, next_step }
    }

    /// Returns the error number (errno) that the kernel returned.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.errno()
    }

    /// Returns whether the process lacks the privilege for the operation.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.errno() == libc::EPERM
    }

    /// Returns whether the device does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.errno() == libc::ENODEV
    }
}
