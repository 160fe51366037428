//! The successor's side of a hand-over.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, EngineConfig};
use model::{Config, Fragment, Layers, Merged, Owner};
use port::FrameMemory;

use super::bundle::HandoverBundle;
use super::import::{Parts, Rebuilt};
use super::messages::{MemoryRecord, Offer, Order, Reply};
use super::state::HandoverState;
use super::{HandoverError, Link, VERSION};
use crate::filters::Filters;
use crate::routers::Routers;
use crate::running_state::RunningState;
use crate::{engine_config, fault, machine};

/// Time limit for each message from the predecessor, which may have to stop its workers and to convert millions of flow
/// entries before it sends a message. If the predecessor ends, the successor detects the end without waiting for the
/// time limit. The predecessor has separate time limits, and ends a successor that exceeds these limits.
const PATIENCE: Duration = Duration::from_secs(600);

/// Listening sockets that a predecessor has handed over.
pub struct GivenSockets {
    /// Listening unix socket of the API.
    pub unix: UnixListener,
    /// Listening TCP socket of the API. `None` if the API has none.
    pub tcp: Option<TcpListener>,
    /// Listening OpenFlow sockets of bridges and the socket of `ovs-appctl`, with their paths.
    pub others: Vec<(PathBuf, UnixListener)>,
}

/// A checked offer of a predecessor, with the mapped frame memory and everything else that can be prepared
/// before traffic stops.
pub struct Prepared {
    link: Link,
    /// Part of the configuration that comes from the configuration file.
    pub file: Config,
    /// Configuration objects of the owners other than the configuration file (API, OVSDB server).
    pub others: BTreeMap<Owner, Fragment>,
    /// Configuration that results from the objects of all owners (file, API, OVSDB server).
    pub merged: Merged,
    /// Frame memory of the predecessor.
    pub memory: Arc<FrameMemory>,
    /// Settings of the configuration section `[memory]` with which the frame memory was created.
    pub made_by: model::Memory,
    /// Engine configuration with which the workers will be started.
    pub workers: EngineConfig,
    /// Compiled filters of the configuration, with the tables for the workers. Empty after the take-over.
    filters: Filters,
    /// Routers of the configuration, with all routes read from the kernel. `None` after the take-over.
    routers: Option<Routers>,
    /// Whether the predecessor sends `Order::Commit` before the workers may start.
    commits: bool,
}

impl Prepared {
    /// Receives the predecessor's offer over the standard input, which is a socket, and prepares the take-over.
    ///
    /// # Errors
    /// Returns an error if the take-over cannot be prepared. The predecessor receives the reason and continues.
    pub fn from_stdin() -> Result<(Prepared, GivenSockets), HandoverError> {
        let own = |error: io::Error| HandoverError::Own(error.to_string());
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(own)?;
        let mut link = Link::over(UnixStream::from(socket));
        link.patience(PATIENCE);
        fault::takes_over(true);
        step("start")?;
        let (offer, descriptors) = link.receive::<Offer>("the offer")?;
        let prepared = step("offer").and_then(|()| prepare(&offer, descriptors)).and_then(|made| {
            step("prepared")?;
            Ok(made)
        });
        match prepared {
            Ok(((file, others, merged), (memory, sockets), filters, (workers, routers))) => {
                let routers = Some(routers);
                let made_by = made_by(&offer, &file);
                let commits = offer.commit;
                let prepared = Prepared {
                    link,
                    file,
                    others,
                    merged,
                    memory,
                    made_by,
                    workers,
                    filters,
                    routers,
                    commits,
                };
                Ok((prepared, sockets))
            }
            Err(error) => {
                // Without this refusal, the predecessor would wait until its time limit.
                let _ = link.send(&Reply::Refused(error.to_string()), &[]);
                Err(error)
            }
        }
    }

    /// Sends the predecessor the reason why this process refuses the offer. The predecessor then continues.
    pub fn refuse(&mut self, why: &str) {
        // If the message is not sent, the predecessor detects the end of this process.
        let _ = self.link.send(&Reply::Refused(why.to_owned()), &[]);
    }

    /// Reports readiness to the predecessor, takes over the data plane, and starts the workers. The returned
    /// duration is the period that the port counters cover.
    ///
    /// # Errors
    /// Returns an error if the predecessor cancels the hand-over, or if workers cannot be started.
    pub fn take(&mut self) -> Result<(Engine, RunningState, Duration), HandoverError> {
        // The clock is calibrated before traffic stops, because the calibration takes time.
        let _ = sync::cpu::tsc_hz();
        self.link.send(&Reply::Ready, &[])?;
        step("ready")?;
        let (state, descriptors) = self.link.receive::<HandoverState>("the hand-over state")?;
        step("state")?;
        let counting = Duration::from_secs(state.counting_secs);
        let held = HandoverBundle::received(state, descriptors);
        let taken = held.and_then(|held| self.put_together(held)).and_then(|rebuilt| {
            step("rebuilt")?;
            if self.commits {
                self.await_commit()?;
            }
            rebuilt.run()
        });
        if let Err(error) = &taken {
            let _ = self.link.send(&Reply::Refused(error.to_string()), &[]);
        }
        let (engine, running_state) = taken?;
        step("run")?;
        Ok((engine, running_state, counting))
    }

    fn put_together(&mut self, held: HandoverBundle) -> Result<Rebuilt, HandoverError> {
        let fresh = || Routers::new(&self.workers.domain, self.workers.cores.len());
        let routers = self.routers.take().unwrap_or_else(fresh);
        let mut filters = std::mem::take(&mut self.filters);
        let inherited = filters.inherit(held.state.blocks(), held.state.counted());
        inherited.map_err(|error| HandoverError::Own(error.to_string()))?;
        let mut parts = Parts::new(held, &self.merged.config, &self.memory)?;
        let lost = parts.lost();
        // The lost ports are opened again.
        let _guards = parts.guard_lost(&self.merged.config);
        if self.commits && !lost.is_empty() {
            step("release")?;
            self.link.send(&Reply::Release(lost), &[])?;
            self.order(Order::Released)?;
        }
        step("parts")?;
        parts.rebuild(&self.merged.config, &self.workers, &self.memory, routers, filters, self.commits)
    }

    /// Waits for the predecessor's order to start the workers. After this order, this process owns the data
    /// plane.
    fn await_commit(&mut self) -> Result<(), HandoverError> {
        self.link.send(&Reply::Resumed, &[])?;
        step("resumed")?;
        self.order(Order::Commit)?;
        step("commit")?;
        if let Err(error) = self.link.send(&Reply::Committed, &[]) {
            // A predecessor that gives up the hand-over kills this process before it closes its socket. Therefore the
            // predecessor has ended.
            tracing::warn!(%error, "the predecessor has ended during the hand-over");
        }
        step("committed")
    }

    fn order(&mut self, expected: Order) -> Result<(), HandoverError> {
        match self.link.receive::<Order>("the predecessor's order")?.0 {
            order if order == expected => Ok(()),
            order => Err(HandoverError::Strange(format!("{order:?} instead of {expected:?}"))),
        }
    }

    /// Reports to the predecessor that the workers run.
    ///
    /// # Errors
    /// Returns an error if the predecessor has ended. This process continues nevertheless.
    pub fn running(&mut self) -> Result<(), HandoverError> {
        self.link.send(&Reply::Ready, &[])
    }
}

/// Returns the settings of the configuration section `[memory]` with which the predecessor's frame memory was created.
/// If the predecessor does not send these settings, returns the settings in the configuration file, with the actual
/// size of the memory.
fn made_by(offer: &Offer, file: &Config) -> model::Memory {
    let said = Some(&offer.made_by).filter(|text| !text.is_empty());
    let said = said.and_then(|text| model::load(text, "the predecessor's memory").ok());
    let MemoryRecord { frames, frame_size, .. } = offer.memory;
    said.map_or_else(|| model::Memory { frames, frame_size, ..file.memory.clone() }, |said| said.memory)
}

/// Marks the step `name` of the hand-over. Tests can inject a failure at each step.
fn step(name: &str) -> Result<(), HandoverError> {
    fault::step(name).map_err(HandoverError::Own)
}

/// Parses the part of the predecessor's configuration that comes from the configuration file.
fn configuration(text: &str) -> Result<Config, HandoverError> {
    model::load_handed_over(text, "the predecessor's configuration")
        .map_err(|problems| HandoverError::Own(problems.first().map(ToString::to_string).unwrap_or_default()))
}

type Configurations = (Config, BTreeMap<Owner, Fragment>, Merged);

type Made = (Configurations, (Arc<FrameMemory>, GivenSockets), Filters, (EngineConfig, Routers));

fn prepare(offer: &Offer, descriptors: Vec<OwnedFd>) -> Result<Made, HandoverError> {
    if offer.version != VERSION {
        return Err(HandoverError::Strange(format!("version {} of the hand-over messages", offer.version)));
    }
    let strange = |what: &str| HandoverError::Strange(what.to_owned());
    let file = configuration(&offer.file)?;
    let mut others = BTreeMap::new();
    for (owner, objects) in [(Owner::Api, &offer.api), (Owner::Ovsdb, &offer.ovsdb)] {
        // A predecessor that does not support an owner sends an empty text for this owner.
        if !objects.is_empty() {
            let fragment =
                Fragment::from_json(objects).map_err(|error| HandoverError::Own(error.to_string()))?;
            others.insert(owner, fragment);
        }
    }
    let mut layers =
        Layers::default().replaced(Owner::File, &file).map_err(|_| strange("the file's objects"))?;
    layers.fragments.extend(others.clone());
    let merged = layers.merged().map_err(|_| strange("the objects of other owners"))?;
    // Another release or another machine may refuse the predecessor's configuration.
    let problems = model::validate(&merged.config, Some(&machine()));
    if let Some(problem) = problems.iter().find(|problem| problem.severity == model::Severity::Error) {
        return Err(HandoverError::Own(problem.to_string()));
    }
    // A missing block list is detected while the predecessor still runs, and large lists take time.
    let filters = Filters::begun(&merged.config).map_err(|error| HandoverError::Own(error.to_string()))?;
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| strange("too few descriptors"));
    let record = offer.memory;
    let memory = FrameMemory::from_fd(next()?, record.frames, record.frame_size, record.backing())
        .map_err(|error| HandoverError::Own(error.to_string()))?;
    let unix = UnixListener::from(next()?);
    let tcp = if offer.tcp { Some(TcpListener::from(next()?)) } else { None };
    let mut others_sockets = Vec::with_capacity(offer.sockets.len());
    for path in &offer.sockets {
        others_sockets.push((path.clone(), UnixListener::from(next()?)));
    }
    let sockets = GivenSockets { unix, tcp, others: others_sockets };
    let workers = engine_config(&merged.config, &engine::engine::domain());
    let mut routers = Routers::new(&workers.domain, workers.cores.len());
    routers.load(&merged.config).map_err(|error| HandoverError::Own(error.to_string()))?;
    Ok(((file, others, merged), (Arc::new(memory), sockets), filters, (workers, routers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_of_another_version_is_refused() {
        let offer = |version: u32| {
            let text = format!(
                r#"{{"version": {version}, "file": "", "api": "", "memory": {{"frames": 4096, "frame_size": 2048, "huge": false}}, "tcp": false}}"#
            );
            prepare(&serde_json::from_str(&text).unwrap(), Vec::new()).err().unwrap().to_string()
        };
        assert!(offer(VERSION + 1).contains("version 2 of the hand-over messages"));
        assert!(!offer(VERSION).contains("of the hand-over messages"), "another reason: no descriptors");
    }

    /// A configuration file of almost 1 MiB, the size limit of configuration files, can be handed over, although its
    /// text exceeds 1 MiB when all default values are written out. A text that exceeds the limit for handed-over
    /// configurations is refused.
    #[test]
    fn a_configuration_file_close_to_the_size_limit_is_handed_over() {
        let port = |number: usize| format!("[port.p{number}]\nkind='null'\n");
        let mut text: String = (0..2000).map(port).collect();
        let mut rules = 0;
        while text.len() < model::LIMIT_BYTES - 200 {
            if rules % 4000 == 0 {
                text += &format!("[filter.f{}]\n", rules / 4000);
            }
            text += &format!("[[filter.f{}.rule]]\nname='r{rules}'\naction='drop'\n", rules / 4000);
            rules += 1;
        }
        let config = model::load(&text, "t").unwrap();
        let handed_over = config.to_toml();
        assert!(handed_over.len() > model::LIMIT_BYTES, "{} bytes", handed_over.len());
        assert_eq!(configuration(&handed_over).unwrap(), config);
        let too_long = "#".repeat(model::HANDED_OVER_LIMIT_BYTES + 1);
        assert!(configuration(&too_long).is_err());
    }
}
