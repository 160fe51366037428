//! Bundles: changes that are gathered and made at once, or not at all (OpenFlow 1.4 and later; the ONF's extension for 1.3).

use std::collections::HashMap;

use switch::flow::Mod;
use tokio::io::{AsyncRead, AsyncWrite};

use super::request::{get_mod, modify};
use super::{Answer, Session};
use crate::wire::error::Error;
use crate::wire::{HEADER, Header, ONF, Put, Reader, Version, begin, begin_experimenter, finish};

/// Bundles of a session.
const BUNDLES: usize = 16;
/// Changes in all of them.
const CHANGES: usize = 1 << 19;

/// One that has not ended.
struct Bundle {
    flags: u16,
    closed: bool,
    changes: Vec<Mod>,
    /// The number and the octets of each change, for the error that carries the change.
    requests: Vec<(u32, Box<[u8]>)>,
    /// A message could not be taken, so it cannot be committed.
    broken: bool,
}

/// A session's bundles.
#[derive(Default)]
pub(crate) struct Bundles(HashMap<u32, Bundle>);

const OPEN: u16 = 0;
const CLOSE: u16 = 2;
const COMMIT: u16 = 4;
const DISCARD: u16 = 6;
/// Atomic and ordered, which all of ours are.
const FLAGS: u16 = 3;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) async fn bundle_control(&mut self, head: Header, mut body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let (id, what, flags) = (body.u32()?, body.u16()?, body.u16()?);
        if flags & !FLAGS != 0 {
            return Err(Error::BundleFlags.into());
        }
        match what {
            OPEN => {
                if self.bundles.0.remove(&id).is_some() {
                    return Err(Error::BundleExists.into());
                }
                if self.bundles.0.len() >= BUNDLES {
                    return Err(Error::BundlesFull.into());
                }
                let bundle =
                    Bundle { flags, closed: false, changes: Vec::new(), requests: Vec::new(), broken: false };
                self.bundles.0.insert(id, bundle);
            }
            CLOSE => {
                let bundle = self.bundles.0.get_mut(&id).ok_or(Error::BundleId)?;
                if bundle.closed {
                    self.bundles.0.remove(&id);
                    return Err(Error::BundleClosed.into());
                }
                if bundle.flags != flags {
                    self.bundles.0.remove(&id);
                    return Err(Error::BundleFlags.into());
                }
                bundle.closed = true;
            }
            COMMIT => self.commit(id, flags).await?,
            DISCARD => {
                self.bundles.0.remove(&id).ok_or(Error::BundleId)?;
            }
            _ => return Err(Error::BundleType.into()),
        }
        let start = if self.version == Version::V13 {
            begin_experimenter(&mut self.out, self.version, ONF, 2300, head.xid)
        } else {
            begin(&mut self.out, self.version, 33, head.xid)
        };
        self.out.u32(id);
        self.out.u16(what + 1);
        self.out.u16(0);
        finish(&mut self.out, start);
        Ok(())
    }

    async fn commit(&mut self, id: u32, flags: u16) -> Result<(), Error> {
        let bundle = self.bundles.0.remove(&id).ok_or(Error::BundleId)?;
        if bundle.flags != flags {
            return Err(Error::BundleFlags);
        }
        if bundle.broken {
            return Err(Error::BundleFailed);
        }
        let Err((index, why)) = modify(&self.hub.datapath, bundle.changes).await else { return Ok(()) };
        if let Some((xid, request)) = bundle.requests.get(index) {
            Error::from(why).write(&mut self.out, self.version, *xid, request);
        }
        Err(Error::BundleFailed)
    }

    pub(super) fn bundle_add(&mut self, head: Header, mut body: Reader<'_>) -> Answer {
        self.not_as_slave()?;
        let id = body.u32()?;
        body.skip(2)?;
        let flags = body.u16()?;
        let added = self.bundle_message(head, id, flags, body);
        if let (Err(error), Some(bundle)) = (added, self.bundles.0.get_mut(&id)) {
            bundle.broken = true;
            return Err(error.into());
        }
        Ok(added?)
    }

    fn bundle_message(&mut self, outer: Header, id: u32, flags: u16, body: Reader<'_>) -> Result<(), Error> {
        if flags & !FLAGS != 0 {
            return Err(Error::BundleFlags);
        }
        let head = Header::read(body.data).ok_or(Error::BundleMessageLength)?;
        let length = usize::from(head.length);
        // Properties may follow, padded to eight octets.
        let message = body.data.get(..length).filter(|message| message.len() >= HEADER);
        let message = message.ok_or(Error::BundleMessageLength)?;
        if head.xid != outer.xid {
            return Err(Error::BundleXid);
        }
        if head.version != self.version.number() {
            return Err(Error::BadVersion);
        }
        let full = self.bundles.0.values().map(|bundle| bundle.changes.len()).sum::<usize>() >= CHANGES;
        // A message to a bundle that is not there opens it.
        if !self.bundles.0.contains_key(&id) && self.bundles.0.len() >= BUNDLES {
            return Err(Error::BundlesFull);
        }
        let bundle = self.bundles.0.entry(id).or_insert_with(|| Bundle {
            flags,
            closed: false,
            changes: Vec::new(),
            requests: Vec::new(),
            broken: false,
        });
        if bundle.closed {
            return Err(Error::BundleClosed);
        }
        if bundle.flags != flags {
            return Err(Error::BundleFlags);
        }
        if full {
            return Err(Error::BundleTooMany);
        }
        let inner = Reader::new(&message[HEADER..], Error::BadLength);
        let change = get_mod(head.kind, inner, self.version, self.table_ids)?.ok_or(Error::BundleMessage)?;
        bundle.changes.push(change);
        bundle.requests.push((head.xid, message.into()));
        Ok(())
    }
}
