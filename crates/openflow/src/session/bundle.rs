//! Requests about bundles. A bundle is a set of changes that a controller collects and then applies
//! together, or not at all (OpenFlow 1.4 and later, and the ONF extension for OpenFlow 1.3).

use std::sync::Arc;

use switch::flow::{Mod, Origin};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::bundles::{Bundle, get_change};
use super::{Answer, Session};
use crate::budget::MESSAGES;
use crate::wire::error::Error;
use crate::wire::ofp::switch::*;
use crate::wire::ofp::{msg, onf};
use crate::wire::{HEADER, Header, ONF, Put, Reader, Version, begin, begin_experimenter, finish};

/// Maximum number of bundles that an OpenFlow session can have at a time, whether open or closed.
const BUNDLES: usize = 16;
/// Maximum number of changes in all bundles of an OpenFlow session together.
const CHANGES: usize = 1 << 19;
/// Maximum number of packet-outs in a bundle. This number equals the maximum number of queued packet-outs of a session.
const PACKETS: usize = MESSAGES as usize;
/// Maximum memory in octets that all bundles of a session may use.
const SESSION_OCTETS: usize = 64 << 20;
/// Memory in octets that a change in a bundle uses in addition to its message: the entry in the list of changes,
/// and the overhead of the allocation.
const CHANGE_OCTETS: usize = 48;
/// Minimum number of changes for which a bundle is committed on a blocking thread. The commit of
/// such a bundle would block the session's task for too long.
const MANY: usize = 32;
/// Permits for committing large bundles, shared by all bridges of the process. The number of
/// permits is small because a commit decodes all changes of a bundle.
static COMMITS: Semaphore = Semaphore::const_new(2);

/// Supported flags of bundles. Every bundle is applied atomically and in order, even if its flags do not request this.
const FLAGS: u16 = OFPBF_ATOMIC | OFPBF_ORDERED;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<S> {
    pub(super) async fn bundle_control(
        &mut self,
        head: Header,
        mut body: Reader<'_>,
        message: &[u8],
    ) -> Answer {
        self.not_as_slave()?;
        let (id, what, flags) = (body.u32()?, body.u16()?, body.u16()?);
        if flags & !FLAGS != 0 {
            return Err(Error::BundleFlags.into());
        }
        match what {
            OFPBCT_OPEN_REQUEST => {
                if self.bundles.0.remove(&id).is_some() {
                    return Err(Error::BundleExists.into());
                }
                if self.bundles.0.len() >= BUNDLES {
                    return Err(Error::BundlesFull.into());
                }
                self.bundles.0.insert(id, Bundle::new(flags, head.xid, message, &self.manager.bundles));
            }
            OFPBCT_CLOSE_REQUEST => {
                let bundle = self.bundles.0.get_mut(&id).ok_or(Error::BundleId)?;
                if bundle.closed {
                    self.bundles.0.remove(&id);
                    return Err(Error::BundleClosed.into());
                }
                if bundle.flags != flags {
                    self.bundles.0.remove(&id);
                    return Err(Error::BundleFlags.into());
                }
                (bundle.closed, bundle.used) = (true, Instant::now());
            }
            OFPBCT_COMMIT_REQUEST => self.commit(id, flags, head.xid).await?,
            OFPBCT_DISCARD_REQUEST => {
                self.bundles.0.remove(&id).ok_or(Error::BundleId)?;
            }
            _ => return Err(Error::BundleType.into()),
        }
        let start = if self.version == Version::V13 {
            begin_experimenter(&mut self.out, self.version, ONF, onf::ONFT_BUNDLE_CONTROL, head.xid)
        } else {
            begin(&mut self.out, self.version, msg::OFPT_BUNDLE_CONTROL, head.xid)
        };
        self.out.u32(id);
        // The type of a reply is one higher than that of its request.
        self.out.u16(what + 1);
        self.out.u16(0);
        finish(&mut self.out, start)?;
        Ok(())
    }

    async fn commit(&mut self, id: u32, flags: u16, xid: u32) -> Answer {
        let bundle = self.bundles.0.remove(&id).ok_or(Error::BundleId)?;
        if bundle.flags != flags {
            return Err(Error::BundleFlags.into());
        }
        if bundle.broken {
            return Err(Error::BundleFailed.into());
        }
        let mut reservation = None;
        if bundle.packets > 0 {
            // Earlier answers are sent before the session waits for its own packets.
            self.flush().await?;
            reservation = self.packet_outs.reserve_all().await;
        }
        let origin = Origin { session: self.seat.number(), xid };
        let (datapath, version) = (Arc::clone(&self.manager.datapath), self.version);
        let (bundle, done) = if bundle.changes.len() < MANY && reservation.is_none() {
            let done = match bundle.mods(version) {
                Ok(mods) => {
                    let done = self.manager.modify(mods, origin).await;
                    done.map_err(|(place, why)| (place, why.into()))
                }
                Err(refused) => Err(refused),
            };
            (bundle, done)
        } else {
            // Bundles of other bridges may take long. Other changes of this bridge are made meanwhile, and at
            // most one bundle of each bridge uses a process-wide permit. The semaphores are never closed.
            let own = Arc::clone(&self.manager.commits).acquire_owned().await;
            // Neither the permit of the bridge nor that of the process is held while waiting for the other.
            let (turn, memory) = loop {
                let turn = self.manager.turn().await;
                if let Ok(place) = COMMITS.try_acquire() {
                    break (turn, place);
                }
                drop(turn);
                let Ok(place) = COMMITS.acquire().await else { continue };
                if let Some(turn) = self.manager.try_turn() {
                    break (Some(turn), place);
                }
            };
            let commit = move || {
                // The permits are held until the changes are made, even if the session ends meanwhile.
                let _kept = (turn, memory, own);
                let done = bundle.commit(&*datapath, version, origin, reservation);
                (bundle, done)
            };
            match tokio::task::spawn_blocking(commit).await {
                Ok(done) => done,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        };
        let Err((index, why)) = done else { return Ok(()) };
        if let Some((_, request)) = bundle.changes.get(index) {
            let xid = Header::read(request).map_or(0, |head| head.xid);
            why.write(&mut self.out, self.version, xid, request);
        }
        Err(Error::BundleFailed.into())
    }

    pub(super) fn bundle_add(&mut self, head: Header, mut body: Reader<'_>, message: &[u8]) -> Answer {
        self.not_as_slave()?;
        let id = body.u32()?;
        body.skip(2)?;
        let flags = body.u16()?;
        let added = self.bundle_message((head, message), id, flags, body);
        if let (Err(error), Some(bundle)) = (added, self.bundles.0.get_mut(&id)) {
            bundle.breaks();
            return Err(error.into());
        }
        Ok(added?)
    }

    fn bundle_message(
        &mut self,
        (outer, whole): (Header, &[u8]),
        id: u32,
        flags: u16,
        body: Reader<'_>,
    ) -> Result<(), Error> {
        if flags & !FLAGS != 0 {
            return Err(Error::BundleFlags);
        }
        let head = Header::read(body.data).ok_or(Error::BundleMessageLength)?;
        let length = usize::from(head.length);
        // Properties may follow, padded to a multiple of eight octets.
        let message = body.data.get(..length).filter(|message| message.len() >= HEADER);
        let message = message.ok_or(Error::BundleMessageLength)?;
        if head.xid != outer.xid {
            return Err(Error::BundleXid);
        }
        if head.version != self.version.number() {
            return Err(Error::BadVersion);
        }
        let changes = self.bundles.0.values().map(|bundle| bundle.changes.len()).sum::<usize>();
        let octets = self.bundles.0.values().map(|bundle| bundle.octets).sum::<usize>();
        let more = length + CHANGE_OCTETS;
        let full = changes >= CHANGES || octets + more > SESSION_OCTETS;
        // A message for an unknown bundle opens the bundle.
        if !self.bundles.0.contains_key(&id) && self.bundles.0.len() >= BUNDLES {
            return Err(Error::BundlesFull);
        }
        let of_bridge = &self.manager.bundles;
        let opened = || Bundle::new(flags, outer.xid, whole, of_bridge);
        let bundle = self.bundles.0.entry(id).or_insert_with(opened);
        bundle.used = Instant::now();
        if bundle.closed {
            return Err(Error::BundleClosed);
        }
        if bundle.flags != flags {
            return Err(Error::BundleFlags);
        }
        let inner = Reader::new(&message[HEADER..], Error::BadLength);
        let change = get_change(head.kind, inner, self.version, self.table_ids)?;
        let packets = usize::from(matches!(change.ok_or(Error::BundleMessage)?, Mod::PacketOut(_)));
        if bundle.broken {
            return Ok(());
        }
        if full || bundle.packets + packets > PACKETS || !bundle.grow(more) {
            return Err(Error::BundleTooMany);
        }
        bundle.packets += packets;
        bundle.changes.push((self.table_ids, message.into()));
        Ok(())
    }
}
