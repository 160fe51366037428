//! Doubly linked list, from the oldest to the newest element. The links of the elements are in an array of fixed size.

/// Number of no element: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    /// Links of an element that is in no list.
    pub(super) const UNUSED: Links = Links { older: NONE, newer: NONE };
}

/// Ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    /// A list without elements.
    pub(super) const EMPTY: List = List { oldest: NONE, newest: NONE };

    /// Returns the oldest element.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns the element after `number`.
    pub(super) fn after(links: &[Links], number: u32) -> Option<u32> {
        links.get(number as usize).map(|links| links.newer).filter(|newer| *newer != NONE)
    }

    /// Appends an element at the newest end. The element is in no list.
    pub(super) fn push(&mut self, links: &mut [Links], number: u32) {
        let Some(own) = links.get_mut(number as usize) else { return };
        *own = Links { older: self.newest, newer: NONE };
        match links.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
    }

    /// Removes an element of this list.
    pub(super) fn remove(&mut self, links: &mut [Links], number: u32) {
        let Some(own) = links.get_mut(number as usize) else { return };
        let Links { older, newer } = std::mem::replace(own, Links::UNUSED);
        match links.get_mut(older as usize) {
            Some(links) => links.newer = newer,
            None => self.oldest = newer,
        }
        match links.get_mut(newer as usize) {
            Some(links) => links.older = older,
            None => self.newest = older,
        }
    }
}
