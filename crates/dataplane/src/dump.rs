//! Packet captures in a port's hook (XDP program), for API clients. The hook's program is replaced by a variant that
//! also captures frames, and a thread reads the frames from the variant's BPF ring buffer. When the client closes the
//! capture, the hook's own program is restored. If the client is too slow, frames are missing from the capture and
//! counted. The capture never delays packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use control::{DumpRequest, FailureKind, PlaneError};
use model::CapturedFrame;
use packet::{FlowKey, PortId};
use tokio::sync::mpsc::Sender;
use xdp::dump::{Dump, DumpConfig, Dumped};
use xdp::{StageChange, Verdict};

use super::data_plane::DataPlane;
use super::hooks::hook_of;
use super::listener::{Listener, succeed};
use super::lock::locked;
use super::running_state::RunningState;

/// Maximum time for which the capture thread waits for frames before it checks whether the client is still
/// connected.
const PERIOD: Duration = Duration::from_millis(50);

/// Starts a packet capture in a port's hook. The capture lasts until the client closes the channel `to` or the hook is
/// removed.
pub fn start(
    plane: &Arc<DataPlane>,
    request: DumpRequest,
    to: Sender<CapturedFrame>,
) -> Result<(), PlaneError> {
    let object = format!("dump of port.{}", request.port);
    let failed = |error: xdp::Error| PlaneError::failed(&object, &error, "`trivium doctor` may tell more");
    let config = DumpConfig {
        snap: request.snap_length,
        verdicts: verdicts(&request)?,
        entry: request.entry,
        exit: request.exit,
        ..DumpConfig::default()
    };
    let dump = Dump::new(&config).map_err(failed)?;
    let link = succeed(|| {
        let mut running_state = locked(&plane.running_state);
        let hook = hook_of(&mut running_state, &request.port)?;
        if hook.dumps().map_err(failed)? {
            return Err(PlaneError {
                kind: FailureKind::Busy,
                object: object.clone(),
                cause: "another client captures at this hook".to_owned(),
                fix: "wait until that capture has ended".to_owned(),
            });
        }
        hook.set_stage(StageChange::Dump(Some(&dump))).map_err(failed)?;
        Ok(hook.link_id())
    })?;
    let (weak, port) = (Arc::downgrade(plane), request.port.clone());
    let mut delivery = Delivery { request, listener: Listener::new(to, 0), filter: None };
    delivery.rules(plane, link, &[]);
    let work = move || {
        let port = delivery.request.port.clone();
        deliver(&weak, &dump, link, delivery);
        end(&weak, &port, link);
    };
    let started = std::thread::Builder::new().name("dump".to_owned()).spawn(work);
    started.map(drop).map_err(|error| {
        end(&Arc::downgrade(plane), &port, link);
        PlaneError::failed(object, &error, "raise the limit of tasks")
    })
}

/// Removes captures that an earlier daemon process left in hooks and that no process reads.
pub fn clear(running_state: &mut RunningState) {
    for (name, running) in &mut running_state.ports {
        let Some(hook) = &mut running.hook else { continue };
        if hook.dumps().unwrap_or(false)
            && let Err(error) = hook.set_stage(StageChange::Dump(None))
        {
            tracing::warn!(port = %name, %error, "a predecessor's capture stays around its hook");
        }
    }
}

fn verdicts(request: &DumpRequest) -> Result<Vec<Verdict>, PlaneError> {
    if request.verdicts.is_empty() {
        return Ok(Verdict::ALL.to_vec());
    }
    let known = |word: &String| {
        Verdict::ALL.into_iter().find(|verdict| verdict.name() == word).ok_or_else(|| PlaneError {
            kind: FailureKind::Invalid,
            object: "query.verdicts".to_owned(),
            cause: format!("there is no verdict {word:?}"),
            fix: format!("use {}", Verdict::ALL.map(Verdict::name).join(", ")),
        })
    };
    request.verdicts.iter().map(known).collect()
}

/// Reads the captured frames from the BPF ring buffer until the client closes the capture or the hook is
/// removed.
fn deliver(plane: &Weak<DataPlane>, dump: &Dump, link: u32, mut delivery: Delivery) {
    let Ok(reader) = dump.reader() else { return };
    let mut there = true;
    while there {
        let Ok(frames) = reader.poll(PERIOD) else { return };
        delivery.listener.missed(dump.missed());
        let rules = plane.upgrade().and_then(|plane| delivery.rules(&plane, link, &frames));
        there = rules.is_some();
        if !delivery.pass_on(&frames, rules.unwrap_or_default()) {
            return;
        }
    }
}

/// Removes the capture from a port's hook. Does nothing if the hook was replaced after the capture began. `link`
/// identifies the hook.
fn end(plane: &Weak<DataPlane>, port: &str, link: u32) {
    let Some(plane) = plane.upgrade() else { return };
    let mut running_state = locked(&plane.running_state);
    let hook = hook_of(&mut running_state, port).ok().filter(|hook| hook.link_id() == link);
    if let Some(Err(error)) = hook.map(|hook| hook.set_stage(StageChange::Dump(None))) {
        tracing::warn!(port, %error, "the capture around its hook could not be taken away");
    }
}

/// State of the delivery of captured frames from the BPF ring buffer to the client.
struct Delivery {
    request: DumpRequest,
    listener: Listener,
    /// Kernel ID of the hook's filter when the filter was last checked for a change.
    filter: Option<u32>,
}

impl Delivery {
    /// Returns, for each frame, the name of the filter rule that dropped the frame. Returns `None` when the
    /// hook has been removed. While the hook's filter changes, no rule names are returned, because the rule
    /// numbers in the frames may belong to the old or to the new filter.
    fn rules(&mut self, plane: &DataPlane, link: u32, frames: &[Dumped]) -> Option<Vec<Option<String>>> {
        let running_state = locked(&plane.running_state);
        let running = running_state.ports.get(self.request.port.as_str())?;
        running.hook.as_ref().filter(|hook| hook.link_id() == link)?;
        let filter = running_state.filters.in_hook(running);
        let id = filter.and_then(|filter| filter.id().ok());
        let filter = filter.filter(|_| id == self.filter);
        self.filter = id;
        // A flood matches few rules, so the name of each rule is looked up once.
        let mut names = BTreeMap::new();
        let mut name =
            |slot| *names.entry(slot).or_insert_with(|| filter.and_then(|filter| filter.rule_at(slot)));
        Some(frames.iter().map(|dumped| name(dumped.rule?).map(str::to_owned)).collect())
    }

    /// Sends the frames that match the client's capture filter. Returns false if the client has closed the
    /// capture.
    fn pass_on(&mut self, frames: &[Dumped], rules: Vec<Option<String>>) -> bool {
        for (dumped, rule) in frames.iter().zip(rules.into_iter().chain(std::iter::repeat(None))) {
            if self.is_wanted(dumped) && !self.send(dumped, rule.as_deref()) {
                return false;
            }
        }
        self.listener.listens()
    }

    /// Returns whether the client's capture filter matches a frame. Frames that cannot be parsed always
    /// match.
    fn is_wanted(&self, dumped: &Dumped) -> bool {
        let [entry_length, exit_length] = dumped.lengths;
        let (bytes, length) =
            if dumped.entry.is_empty() { (&dumped.exit, exit_length) } else { (&dumped.entry, entry_length) };
        let mut key = FlowKey::default();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let read = FlowKey::extract(bytes, length, PortId(0), &mut key).is_ok();
        !read || self.request.filter.matches(&key)
    }

    fn send(&mut self, dumped: &Dumped, rule: Option<&str>) -> bool {
        let ways = [(true, &dumped.entry, dumped.lengths[0]), (false, &dumped.exit, dumped.lengths[1])];
        for (received, bytes, original_length) in ways {
            if bytes.is_empty() {
                continue;
            }
            let frame = CapturedFrame {
                at_ns: dumped.at_ns,
                port: self.request.port.clone(),
                received,
                bytes: bytes.clone(),
                original_length,
                missed: 0,
                drop: None,
                output: None,
                verdict: Some(dumped.verdict.name().to_owned()),
                counter: dumped.counter.map(|counter| counter.name().to_owned()),
                rule: rule.map(str::to_owned),
            };
            if !self.listener.send(frame) {
                return false;
            }
        }
        true
    }
}
