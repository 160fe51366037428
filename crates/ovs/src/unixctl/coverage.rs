//! Commands `coverage/*` and `memory/show` of `ovs-appctl`: event counters and memory usage.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use control::{Plane, Store};

use super::{Answer, Commands};

/// Interval at which the values of the event counters are recorded.
const SAMPLE: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Values of the event counters, by event name.
type Events = BTreeMap<String, u64>;

/// Earlier values of the event counters: one record per five seconds of the last minute, and one per minute of the last
/// hour.
struct History {
    began: Instant,
    recent: VecDeque<(Instant, Events)>,
    minutes: VecDeque<(Instant, Events)>,
}

impl History {
    fn add(&mut self, now: Instant, events: Events) {
        let is_due =
            |last: Option<&(Instant, Events)>| last.is_none_or(|(at, _)| now.duration_since(*at) >= MINUTE);
        if is_due(self.minutes.back()) {
            self.minutes.push_back((now, events.clone()));
        }
        self.recent.push_back((now, events));
        // One sample that is as old as the period remains.
        while self.recent.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= MINUTE) {
            self.recent.pop_front();
        }
        while self.minutes.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= HOUR) {
            self.minutes.pop_front();
        }
    }

    /// Returns the average number of occurrences of an event per second over the last `time`. If
    /// the process is younger than `time`, the average covers the time since the start of the
    /// process. `count` is the present value of the event's counter.
    fn rate(&self, event: &str, count: u64, now: Instant, time: Duration) -> f64 {
        let all = if time > MINUTE { &self.minutes } else { &self.recent };
        // The newest sample that is at least `time` old.
        let before = all.iter().rev().find(|(at, _)| now.duration_since(*at) >= time);
        let known = before.and_then(|(_, events)| events.get(event)).copied().unwrap_or_default();
        let passed = before.map_or(self.began, |(at, _)| *at);
        #[allow(clippy::cast_precision_loss, reason = "a rate for people to read")]
        let rate = count.saturating_sub(known) as f64 / now.duration_since(passed).max(SAMPLE).as_secs_f64();
        rate
    }
}

/// Adds the `coverage/*` and `memory/show` commands to the registry. Starts the thread that records the counters every
/// five seconds.
pub fn add(commands: &mut Commands, store: &Arc<Store>) {
    let history = History { began: Instant::now(), recent: VecDeque::new(), minutes: VecDeque::new() };
    let history = Arc::new(Mutex::new(history));
    let weak: Weak<dyn Plane> = Arc::downgrade(store.plane());
    let sampled = Arc::clone(&history);
    let sampler = std::thread::Builder::new().name("coverage".to_owned()).spawn(move || {
        loop {
            std::thread::sleep(SAMPLE);
            let Some(plane) = weak.upgrade() else { return };
            let events = events(&*plane);
            drop(plane);
            sampled.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now(), events);
        }
    });
    if let Err(error) = sampler {
        tracing::warn!("rates of `coverage/show` are those since the start: {error}");
    }
    let plane = Arc::clone(store.plane());
    commands.add("coverage/show", "", 0..=0, move |_| {
        let events = events(&*plane);
        Ok(show(&events, &history.lock().unwrap_or_else(PoisonError::into_inner), Instant::now()))
    });
    let plane = Arc::clone(store.plane());
    commands
        .add("coverage/read-counter", "COUNTER", 1..=1, move |arguments| read(&events(&*plane), arguments));
    let plane = Arc::clone(store.plane());
    commands.add("memory/show", "", 0..=0, move |_| Ok(memory(&*plane)));
}

fn read(events: &Events, arguments: &[String]) -> Answer {
    let name = arguments.first().map_or("", String::as_str);
    events.get(name).map(|count| format!("{count}\n")).ok_or_else(|| "No such counter".to_owned())
}

/// Returns the event counters since the start of the process: packets by direction, drops by reason, and flow cache
/// look-ups by result.
fn events(plane: &dyn Plane) -> Events {
    let mut events = Events::new();
    let mut count = |name: &str, count: u64| *events.entry(name.to_owned()).or_default() += count;
    for drop in plane.drops() {
        count(&format!("drop_{}", drop.reason.replace('-', "_")), drop.packets);
    }
    for name in ["port_rx", "port_rx_missed", "port_tx", "upcall", "flow_cache_miss"] {
        count(name, 0);
    }
    for port in plane.ports() {
        count("port_rx", port.counters.rx_packets);
        count("port_rx_missed", port.counters.rx_missed);
        count("port_tx", port.counters.tx_packets);
    }
    let caches = plane.caches();
    for cache in &caches.workers {
        count("flow_cache_exact_hit", cache.exact_hits);
        count("flow_cache_masked_hit", cache.masked_hits);
        count("flow_cache_miss", cache.misses);
        count("flow_cache_probe", cache.probes);
    }
    if let Some(slow_path) = &caches.slow_path {
        count("upcall", slow_path.upcalls);
        count("flow_revalidated", slow_path.revalidated);
        count("flow_wrong", slow_path.wrong);
        count("learn_skipped", slow_path.skipped_learns);
    }
    events
}

/// Returns the event counters and their rates in the output format of `ovs-vswitchd`.
fn show(events: &Events, history: &History, now: Instant) -> String {
    let hit: Vec<(&String, u64)> =
        events.iter().filter(|(_, count)| **count > 0).map(|(event, count)| (event, *count)).collect();
    // Hash over the event names, from which scripts see whether other events appear.
    let hash = hit
        .iter()
        .flat_map(|(event, _)| event.bytes())
        .fold(0x811c_9dc5_u32, |hash, octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193));
    let mut text = format!(
        "Event coverage, avg rate over last: {} seconds, last minute, last hour,  hash={hash:08x}:\n",
        SAMPLE.as_secs()
    );
    for (event, count) in &hit {
        let rate = |time| history.rate(event, *count, now, time);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{event:<24} {:5.1}/sec {:9.3}/sec {:13.4}/sec   total: {count}",
            rate(SAMPLE),
            rate(MINUTE),
            rate(HOUR)
        );
    }
    let _ = writeln!(text, "{} events never hit", events.len() - hit.len());
    text
}

/// Returns, on one line, the number of objects of each kind (such as bridges and ports) and the memory usage in KiB.
/// The output format is that of `ovs-vswitchd`.
fn memory(plane: &dyn Plane) -> String {
    let bridges = plane.bridges();
    let caches = plane.caches();
    let mut usage: BTreeMap<String, u64> = BTreeMap::new();
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let slow_paths = u64::from(caches.slow_path.is_some());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
    for (name, value) in [
        ("bridges", count(bridges.len())),
        // One slow-path thread handles upcalls and revalidates megaflows.
        ("handlers", slow_paths),
        ("macs", bridges.iter().map(|bridge| u64::from(bridge.macs)).sum()),
        ("ports", count(plane.ports().len())),
        ("resident-kB", resident.unwrap_or_default()),
        ("revalidators", slow_paths),
        ("udpif-keys", caches.slow_path.map_or(0, |slow_path| slow_path.flows)),
        ("workers", count(plane.workers().len())),
    ] {
        usage.insert(name.to_owned(), value);
    }
    for memory in &caches.memory {
        usage.insert(format!("{}-kB", memory.consumer.replace(' ', "-")), memory.bytes / 1024);
    }
    let words = usage.into_iter().map(|(name, value)| format!("{name}:{value}"));
    words.collect::<Vec<_>>().join(" ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds_minute_and_hour() {
        let began = Instant::now();
        let mut history = History { began, recent: VecDeque::new(), minutes: VecDeque::new() };
        let counts = |count: u64| Events::from([("upcall".to_owned(), count), ("idle".to_owned(), 0)]);
        // One event a second for two hours, and ten a second in the last seconds.
        for second in (0..7200).step_by(5) {
            history.add(began + Duration::from_secs(second), counts(second));
        }
        let now = began + Duration::from_secs(7200);
        let text = show(&counts(7195 + 50), &history, now);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line, "upcall                    10.0/sec     1.750/sec        1.0125/sec   total: 7245",
            "{text}"
        );
        assert!(text.ends_with("1 events never hit\n"), "{text}");
        assert!(history.recent.len() <= 14 && history.minutes.len() <= 62);
        assert_eq!(read(&counts(3), &["idle".to_owned()]), Ok("0\n".to_owned()));
        assert_eq!(read(&counts(3), &["none".to_owned()]), Err("No such counter".to_owned()));
    }
}
