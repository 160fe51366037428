//! Switch that turns the offload of routes to the hooks (XDP programs) of a router's ports on and off.

use std::sync::Arc;

use xdp::route::Answers;

/// A switch that turns offloaded routing in the hooks on or off, starting with the next frame. Clones share one state.
#[derive(Clone)]
pub struct Switch(Arc<Answers>);

impl Switch {
    /// Creates a switch for the hooks' routing tables `answers`. The offload is off at first.
    pub fn new(answers: Answers) -> Switch {
        Switch(Arc::new(answers))
    }

    /// Returns the routing tables that the hook programs read.
    pub fn answers(&self) -> &Answers {
        &self.0
    }

    /// Sets whether the hooks' tables contain all routes that the policy routing rules can select. `four` is the
    /// value for IPv4, and `six` is the value for IPv6.
    pub fn know(&self, four: bool, six: bool) {
        self.0.answer(four, six);
    }

    /// Sets whether a capture or trace runs. While one runs, every packet must pass the workers, and the
    /// offload is off.
    pub fn watch(&self, watched: bool) {
        self.0.watch(watched);
    }
}
