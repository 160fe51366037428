//! Delivers packets that filters have sampled to API clients. While a client reads a filter's samples, a thread reads
//! them from the filter's BPF ring buffer. Without a client, the ring buffer stays full of old samples, which the next
//! client does not receive. If the client is too slow, samples are dropped and counted. A client never delays packets.

use std::sync::{Arc, Weak};
use std::time::Duration;

use control::{PlaneError, SampleRequest};
use model::CapturedFrame;
use packet::{FlowKey, PortId};
use tokio::sync::mpsc::Sender;
use xdp::filter::Sample;
use xdp::ring::RingReader;

use super::data_plane::DataPlane;
use super::filters::{Followed, Taken};
use super::listener::{Listener, succeed};
use super::lock::locked;
use super::ports::no_such_port;

/// Maximum time for which the thread that reads samples waits before it checks whether the client is still
/// connected.
const PERIOD: Duration = Duration::from_millis(50);

/// Sends a filter's packet samples until the client closes the channel `to` or the filter is removed.
pub fn start(
    plane: &Arc<DataPlane>,
    request: SampleRequest,
    to: Sender<CapturedFrame>,
) -> Result<(), PlaneError> {
    let object = format!("samples of filter.{}", request.filter);
    let followed = succeed(|| {
        let running_state = locked(&plane.running_state);
        if let Some(port) = request.port.as_deref().filter(|port| !running_state.ports.contains_key(*port)) {
            return Err(no_such_port(port));
        }
        running_state.filters.follow(&request.filter)
    })?;
    let failed =
        |error: &dyn std::error::Error| PlaneError::failed(&object, error, "`trivium doctor` may tell more");
    let before = followed.samples.missed().map_err(|error| failed(&error))?;
    let delivery = Delivery { request, followed, listener: Listener::new(to, before) };
    let weak = Arc::downgrade(plane);
    let work = move || delivery.run(&weak);
    std::thread::Builder::new()
        .name("samples".to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|error| failed(&error))
}

/// State of the delivery of a filter's samples from the BPF ring buffer to the client.
struct Delivery {
    request: SampleRequest,
    followed: Followed,
    listener: Listener,
}

impl Delivery {
    fn run(mut self, plane: &Weak<DataPlane>) {
        let Ok(reader) = self.followed.samples.reader() else { return };
        if reader.poll(Duration::ZERO).is_err() {
            return;
        }
        self.listener.begin(self.followed.samples.missed());
        while self.empty(&reader, plane) {}
    }

    /// Sends all samples that are in the BPF ring buffer. Returns false when the client has closed its queue or the
    /// filter has been removed.
    fn empty(&mut self, reader: &RingReader<Sample>, plane: &Weak<DataPlane>) -> bool {
        let Ok(samples) = reader.poll(PERIOD) else { return false };
        self.listener.missed(self.followed.samples.missed());
        let Some(plane) = plane.upgrade() else { return false };
        let taken: Vec<Option<Taken>> = {
            let running_state = locked(&plane.running_state);
            let name = &self.request.filter;
            if !running_state.filters.still(name, &self.followed) {
                return false;
            }
            samples
                .iter()
                .map(|sample| running_state.filters.taken(name, &self.followed, sample, &running_state.ports))
                .collect()
        };
        for (sample, taken) in samples.into_iter().zip(taken) {
            let Some(taken) = taken else { return false };
            if self.is_wanted(&sample, &taken) && !self.send(sample, taken) {
                return false;
            }
        }
        self.listener.listens()
    }

    /// Returns whether a sample matches the port and the packet filter of the client's request. A packet that cannot be
    /// parsed matches every packet filter.
    fn is_wanted(&self, sample: &Sample, taken: &Taken) -> bool {
        if self.request.port.as_ref().is_some_and(|port| !taken.ports.contains(port)) {
            return false;
        }
        let mut key = FlowKey::default();
        let length = usize::try_from(sample.length).unwrap_or(usize::MAX);
        let read = FlowKey::extract(&sample.head, length, PortId(0), &mut key).is_ok();
        !read || self.request.packets.matches(&key)
    }

    fn send(&mut self, sample: Sample, taken: Taken) -> bool {
        self.listener.send(CapturedFrame {
            at_ns: sample.at_ns,
            port: if taken.ports.is_empty() { "gone".to_owned() } else { taken.ports.join("|") },
            received: true,
            bytes: sample.head,
            original_length: sample.length,
            missed: 0,
            drop: None,
            output: None,
            verdict: None,
            counter: None,
            rule: Some(taken.rule).filter(|rule| !rule.is_empty()),
        })
    }
}
