//! Switch by which a router's follower enables the offload of routes to the driver hook.

use std::sync::{Arc, Mutex};

use xdp::route::Answers;

use super::super::lock::locked;

/// A switch that enables or disables offloaded routing in hook programs from the next frame on. Clones share
/// one state.
#[derive(Clone)]
pub struct Switch(Arc<Shared>);

struct Shared {
    answers: Answers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the hooks' tables are complete for IPv4 and for IPv6.
    known: (bool, bool),
    /// Whether a capture or trace needs every packet to pass the workers.
    watched: bool,
}

impl Switch {
    /// Creates a switch for these tables. The offload is disabled.
    pub fn new(answers: Answers) -> Switch {
        Switch(Arc::new(Shared { answers, state: Mutex::default() }))
    }

    /// Returns the tables that the hook programs read.
    pub fn answers(&self) -> &Answers {
        &self.0.answers
    }

    /// Sets whether the hooks' tables contain all routes to which the policy routing rules refer, for IPv4
    /// and for IPv6.
    pub fn know(&self, four: bool, six: bool) {
        self.set(|state| state.known = (four, six));
    }

    /// Sets whether captures or traces need every packet to pass the workers.
    pub fn watch(&self, watched: bool) {
        self.set(|state| state.watched = watched);
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        let mut state = locked(&self.0.state);
        change(&mut state);
        let (four, six) = state.known;
        self.0.answers.answer(four && !state.watched, six && !state.watched);
    }
}
