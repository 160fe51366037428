//! Switch that turns the offload of routes to the hooks (XDP programs) of a router's ports on and off.

use std::sync::{Arc, Mutex};

use xdp::route::Answers;

use super::super::lock::locked;

/// A switch that turns offloaded routing in the hooks on or off, starting with the next frame. Clones share one state.
#[derive(Clone)]
pub struct Switch(Arc<Shared>);

struct Shared {
    answers: Answers,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the hooks' routing tables contain all routes that packets may need. The first value is for
    /// IPv4, and the second value for IPv6.
    known: (bool, bool),
    /// Whether a capture or trace runs. Every packet must then pass the workers.
    watched: bool,
}

impl Switch {
    /// Creates a switch for the hooks' routing tables `answers`. The offload is off at first.
    pub fn new(answers: Answers) -> Switch {
        Switch(Arc::new(Shared { answers, state: Mutex::default() }))
    }

    /// Returns the routing tables that the hook programs read.
    pub fn answers(&self) -> &Answers {
        &self.0.answers
    }

    /// Sets whether the hooks' tables contain all routes that the policy routing rules can select. `four` is the
    /// value for IPv4, and `six` is the value for IPv6.
    pub fn know(&self, four: bool, six: bool) {
        self.set(|state| state.known = (four, six));
    }

    /// Sets whether a capture or trace runs. While one runs, every packet must pass the workers, and the
    /// offload is off.
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
