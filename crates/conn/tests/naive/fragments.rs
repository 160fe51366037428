//! Naive reassembler: a map of datagrams with vectors of fragments. Each question is answered by a search through all
//! of them.

use std::collections::{BTreeSet, HashMap};

use conn::fragment::{Options, Reason, Refused, Sizes};

/// A fragment, as a part of the datagram with the number `datagram`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    pub datagram: u8,
    pub start: usize,
    pub len: usize,
    pub is_last: bool,
}

impl Piece {
    pub fn end(&self) -> usize {
        self.start + self.len
    }

    /// Returns the blocks of 8 octets in which the fragment has data.
    fn blocks(&self) -> BTreeSet<usize> {
        (self.start / 8..self.end().div_ceil(8)).collect()
    }
}

/// Lengths of headers.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Headers of a fragment.
    pub packet: usize,
    /// Headers that count for the limit of 65,535 octets.
    pub counted: usize,
}

/// Lengths of the header of the transport protocol: at least, and in the present datagrams.
pub type Transport = fn(datagram: u8) -> [usize; 2];

/// A datagram that is not complete.
#[derive(Clone, Debug)]
struct Known {
    share: u32,
    since: u64,
    serial: usize,
    /// Numbers of the packets, and the fragments, in the order of arrival.
    pieces: Vec<(usize, Piece)>,
}

/// A packet that returns: its number, its offset, and the reason.
pub type Back = (usize, usize, Reason);

/// Answer of the model to a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Held,
    /// The datagram is complete, with this length.
    Complete(usize),
    Refused(Refused),
}

pub struct Model {
    pub sizes: Sizes,
    pub options: Options,
    pub lengths: Lengths,
    pub transport: Transport,
    known: HashMap<u8, Known>,
    /// Times and serial numbers of the refusals.
    refused: HashMap<u8, (u64, usize)>,
    serial: usize,
    pub back: Vec<Back>,
}

impl Model {
    pub fn new(sizes: Sizes, options: Options, lengths: Lengths, transport: Transport) -> Model {
        let (known, refused) = (HashMap::new(), HashMap::new());
        Model { sizes, options, lengths, transport, known, refused, serial: 0, back: Vec::new() }
    }

    pub fn held(&self) -> usize {
        self.known.values().map(|known| known.pieces.len()).sum()
    }

    pub fn incomplete(&self) -> usize {
        self.known.len()
    }

    pub fn records(&self) -> usize {
        self.refused.len()
    }

    /// Receives a fragment, whose packet has the number `id`.
    pub fn receive(&mut self, piece: Piece, id: usize, share: u32, now: u64) -> Verdict {
        let verdict = match self.accept(piece, share, now) {
            Ok(()) => {
                let (since, serial) = (now, self.serial);
                self.serial += 1;
                let new = Known { share, since, serial, pieces: Vec::new() };
                let known = self.known.entry(piece.datagram).or_insert(new);
                known.pieces.push((id, piece));
                let mut parts: Vec<Piece> = known.pieces.iter().map(|(_, piece)| *piece).collect();
                parts.sort_by_key(|piece| piece.start);
                let follow = parts.windows(2).all(|pair| pair[0].end() == pair[1].start);
                if parts[0].start == 0 && follow && parts[parts.len() - 1].is_last {
                    self.remove(piece.datagram, Reason::Complete);
                    return Verdict::Complete(parts[parts.len() - 1].end());
                }
                return Verdict::Held;
            }
            Err(refused) => Verdict::Refused(refused),
        };
        let Verdict::Refused(refused) = verdict else { unreachable!() };
        let is_alone = matches!(
            refused,
            Refused::Disabled
                | Refused::Length
                | Refused::TooLong
                | Refused::TooSmall
                | Refused::Duplicate
                | Refused::RefusedBefore
        );
        if !is_alone {
            self.remove(piece.datagram, Reason::Refused(refused));
            if self.refused.len() == self.sizes.refused as usize {
                let oldest = *self.refused.iter().min_by_key(|(_, (_, serial))| serial).unwrap().0;
                self.refused.remove(&oldest);
            }
            self.refused.insert(piece.datagram, (now, self.serial));
            self.serial += 1;
        }
        self.back.push((id, piece.start, Reason::Refused(refused)));
        verdict
    }

    fn accept(&mut self, piece: Piece, share: u32, now: u64) -> Result<(), Refused> {
        let [least, present] = (self.transport)(piece.datagram);
        if !self.options.enabled {
            return Err(Refused::Disabled);
        }
        if piece.len == 0 || !piece.is_last && !piece.len.is_multiple_of(8) {
            return Err(Refused::Length);
        }
        if piece.end() + self.lengths.counted > 65_535 {
            return Err(Refused::TooLong);
        }
        self.expire_where(|number| number == piece.datagram, now, 1);
        if self.refused.get(&piece.datagram).is_some_and(|(since, _)| self.is_expired(*since, now)) {
            self.refused.remove(&piece.datagram);
        }
        if self.refused.contains_key(&piece.datagram) {
            return Err(Refused::RefusedBefore);
        }
        if piece.start == 0 && piece.len < present {
            return Err(Refused::ShortHeader);
        }
        if piece.start > 0 && piece.start < least {
            return Err(Refused::EarlyOffset);
        }
        if !piece.is_last && piece.len + self.lengths.packet < self.options.min_fragment as usize {
            return Err(Refused::TooSmall);
        }
        let Some(known) = self.known.get(&piece.datagram) else {
            self.make_room(false, share, None)?;
            return self.make_room(true, share, None);
        };
        let others: Vec<Piece> = known.pieces.iter().map(|(_, other)| *other).collect();
        if others.contains(&piece) {
            return Err(Refused::Duplicate);
        }
        if others.iter().any(|other| !other.blocks().is_disjoint(&piece.blocks())) {
            return Err(Refused::Overlap);
        }
        let is_beyond = |last: &Piece, other: &Piece| last.is_last && other.start >= last.end();
        let is_end_wrong = others.iter().any(|other| {
            is_beyond(other, &piece) || is_beyond(&piece, other) || other.is_last && piece.is_last
        });
        if is_end_wrong {
            return Err(Refused::End);
        }
        if others.len() == self.sizes.fragments_per_datagram as usize {
            return Err(Refused::TooMany);
        }
        // A fragment that completes the datagram needs no place.
        let end = others.iter().chain([&piece]).find(|piece| piece.is_last).map(Piece::end);
        let octets: usize = others.iter().chain([&piece]).map(|piece| piece.len).sum();
        if end == Some(octets) {
            return Ok(());
        }
        let share = known.share;
        self.make_room(true, share, Some(piece.datagram))
    }

    fn share_holds(&self, share: u32, is_fragments: bool) -> usize {
        let own = self.known.values().filter(|known| known.share == share);
        own.map(|known| if is_fragments { known.pieces.len() } else { 1 }).sum()
    }

    fn make_room(&mut self, is_fragments: bool, share: u32, current: Option<u8>) -> Result<(), Refused> {
        loop {
            let (used, most) = if is_fragments {
                (self.held(), self.options.max_fragments)
            } else {
                (self.incomplete(), self.sizes.datagrams)
            };
            if self.share_holds(share, is_fragments) < (most as usize).saturating_sub(used) {
                return Ok(());
            }
            let oldest = |share| {
                let own = self.known.iter().filter(move |(_, known)| known.share == share);
                own.map(|(number, known)| (known.serial, *number)).min()
            };
            let shares: BTreeSet<u32> = self.known.values().map(|known| known.share).collect();
            let mut ranked: Vec<_> = shares
                .into_iter()
                .map(|other| {
                    let age = usize::MAX - oldest(other).unwrap().0;
                    (self.share_holds(other, is_fragments), other == share, age, other)
                })
                .collect();
            ranked.sort_unstable();
            let Some((.., largest)) = ranked.pop() else { return Err(Refused::Share) };
            let own = self
                .known
                .iter()
                .filter(|(number, known)| known.share == largest && current != Some(**number));
            let victim = own.map(|(number, known)| (known.serial, *number)).min();
            self.remove(victim.ok_or(Refused::Share)?.1, Reason::Purged);
        }
    }

    fn is_expired(&self, since: u64, now: u64) -> bool {
        now - since >= u64::from(self.options.timeout)
    }

    /// Removes at most `slice` expired datagrams for which `is` returns true, the oldest first.
    fn expire_where(&mut self, is: impl Fn(u8) -> bool, now: u64, slice: usize) -> usize {
        let known = self.known.iter().filter(|(number, _)| is(**number));
        let expired = known.filter(|(_, known)| self.is_expired(known.since, now));
        let mut expired: Vec<_> = expired.map(|(number, known)| (known.serial, *number)).collect();
        expired.sort_unstable();
        expired.truncate(slice);
        expired.iter().for_each(|(_, number)| self.remove(*number, Reason::Expired));
        expired.len()
    }

    pub fn expire(&mut self, now: u64, slice: usize) -> usize {
        let expired = self.expire_where(|_| true, now, slice);
        for _ in 0..slice {
            let records = self.refused.iter().filter(|(_, (since, _))| self.is_expired(*since, now));
            let Some(oldest) = records.min_by_key(|(_, (_, serial))| serial).map(|(number, _)| *number)
            else {
                break;
            };
            self.refused.remove(&oldest);
        }
        expired
    }

    pub fn flush(&mut self, slice: usize) -> usize {
        let mut all: Vec<_> = self.known.iter().map(|(number, known)| (known.serial, *number)).collect();
        all.sort_unstable();
        all.truncate(slice);
        all.iter().for_each(|(_, number)| self.remove(*number, Reason::Purged));
        all.len()
    }

    fn remove(&mut self, datagram: u8, reason: Reason) {
        let pieces = self.known.remove(&datagram).map(|known| known.pieces).unwrap_or_default();
        self.back.extend(pieces.into_iter().map(|(id, piece)| (id, piece.start, reason)));
    }
}
