//! Guard that protects a device while it has no XDP program. An XDP link cannot change its mode, and a device cannot
//! have two XDP links. To change the mode, the program with the filter must therefore be detached before the next
//! program is attached. In between, the guard drops all frames that the device passes to the kernel stack. The guard is
//! a tc program in front of all other tc programs (tcx).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::attached::link_info;
use crate::object::{Opened, guard_object};
use crate::{Error, sys};

/// Program of all guards of this process. The program is loaded for the first guard and kept until the process ends.
static PROGRAM: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Program at a device's tc ingress that drops all frames on their way to the kernel stack. Frames that an XDP program
/// drops or redirects do not reach the guard. Dropping the value removes the guard.
#[derive(Debug)]
pub struct IngressGuard {
    link: OwnedFd,
}

impl IngressGuard {
    /// Attaches a guard to the device with this index in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the program. Kernels before 6.6 have no tcx links.
    pub fn attach(ifindex: u32) -> Result<IngressGuard, Error> {
        let mut loaded = PROGRAM.lock().unwrap_or_else(PoisonError::into_inner);
        let program = match &mut *loaded {
            Some(program) => program,
            none => none.insert(load()?),
        };
        let link = match sys::tcx_link_create(program.as_fd(), ifindex) {
            // The device has a guard of this process. The kernel attaches a program to a device only once.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                sys::tcx_link_create(load()?.as_fd(), ifindex)
            }
            link => link,
        };
        let link = link.map_err(|source| Error::Query { what: "a guard's attachment", source })?;
        Ok(IngressGuard { link })
    }

    /// Returns the interface index of the guard's device. Returns `None` if the device no longer exists.
    #[must_use]
    pub fn ifindex(&self) -> Option<u32> {
        link_info(self.link.as_fd()).ok().map(|info| info.ifindex).filter(|ifindex| *ifindex != 0)
    }
}

fn load() -> Result<OwnedFd, Error> {
    Opened::new(guard_object(), "trivium_guard")?.load()?.program()
}
