//! Hand-over of an attached port program to a successor process. The program stays attached, and the successor
//! continues with duplicates of the predecessor's descriptors.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::attached::Attached;
use crate::program::Maps;
use crate::user::UserProgram;
use crate::{Error, PinPath};

/// State of an attached port program that is handed over to a successor process. The descriptors are passed with
/// `SCM_RIGHTS`.
#[derive(Debug)]
pub struct HandOver {
    /// File descriptors of the program's link and maps.
    pub descriptors: HookDescriptors,
    /// Path where the port's program is pinned. `None` if the program is not pinned.
    pub pin: Option<PinPath>,
    /// Custom program in front of the port's program. The successor finds this program through the link. The value must
    /// be kept until the successor has found the program, because closing the value disconnects the port's program from
    /// the custom program.
    pub user: Option<UserProgram>,
}

/// File descriptors of an attached port program.
#[derive(Debug)]
pub struct HookDescriptors {
    /// BPF link that attaches the program to the device.
    pub link: OwnedFd,
    /// Map of the port's AF_XDP sockets (XSKMAP).
    pub xsks: OwnedFd,
    /// Map of the local IPv4 addresses.
    pub local4: OwnedFd,
    /// Map of the local IPv6 addresses.
    pub local6: OwnedFd,
    /// Map of the hook's counters.
    pub counters: OwnedFd,
}

impl HookDescriptors {
    /// Number of the descriptors.
    pub const COUNT: usize = 5;

    /// Returns the descriptors in the order in which they are sent to a successor.
    #[must_use]
    pub fn as_array(&self) -> [BorrowedFd<'_>; HookDescriptors::COUNT] {
        let HookDescriptors { link, xsks, local4, local6, counters } = self;
        [link, xsks, local4, local6, counters].map(AsFd::as_fd)
    }

    /// Assigns the descriptors that a predecessor has sent to the fields of this value, in the order of
    /// [`HookDescriptors::as_array`].
    #[must_use]
    pub fn from_array(descriptors: [OwnedFd; HookDescriptors::COUNT]) -> HookDescriptors {
        let [link, xsks, local4, local6, counters] = descriptors;
        HookDescriptors { link, xsks, local4, local6, counters }
    }
}

impl Attached {
    /// Returns the state that a successor process needs to take over the program. The program stays attached.
    #[must_use]
    pub fn export(self) -> HandOver {
        let Maps { xsks, local4, local6, counters } = self.maps;
        let descriptors = HookDescriptors { link: self.link, xsks, local4, local6, counters };
        HandOver { descriptors, pin: self.pin, user: self.user }
    }

    /// Takes over an attached program from the hand-over state that [`Attached::export`] returned. The calling
    /// thread must be in the device's network namespace.
    ///
    /// # Errors
    /// Returns [`Error::NotOurs`], [`Error::DeviceGone`], [`Error::WrongNamespace`] or [`Error::Query`].
    pub fn import(hand_over: HandOver) -> Result<Attached, Error> {
        let HandOver { descriptors, pin, user: _until_then } = hand_over;
        let HookDescriptors { link, xsks, local4, local6, counters } = descriptors;
        Attached::from_link(link, Some(Maps { xsks, local4, local6, counters }), pin)
    }
}
