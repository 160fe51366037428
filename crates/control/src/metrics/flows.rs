//! Metrics of the flow caches and of the slow path.

use model::{CacheState, CachesState, DeciderState};

use super::Exposition;

type CacheField = fn(&CacheState) -> u64;

const CACHE_VALUES: [(&str, &str, &str, CacheField); 5] = [
    ("trivium_flow_cache_flows", "gauge", "Flows in the worker's cache.", |cache| cache.flows),
    ("trivium_flow_cache_masks", "gauge", "Different masks of these.", |cache| cache.masks),
    ("trivium_flow_cache_misses_total", "counter", "Packets that no cached flow matched.", |cache| {
        cache.misses
    }),
    (
        "trivium_flow_cache_probes_total",
        "counter",
        "Times that a packet was asked against a mask.",
        |cache| cache.probes,
    ),
    ("trivium_flow_cache_bytes", "gauge", "Memory of the worker's cache.", |cache| cache.memory),
];

type DeciderField = fn(&DeciderState) -> u64;

const DECIDER_VALUES: [(&str, &str, &str, DeciderField); 7] = [
    ("trivium_decider_flows", "gauge", "Flows that workers have.", |decider| decider.flows),
    ("trivium_decider_flows_limit", "gauge", "Flows that are given out at most now.", |decider| {
        decider.limit
    }),
    ("trivium_decider_upcalls_total", "counter", "Packets that were looked up in the tables.", |decider| {
        decider.upcalls
    }),
    (
        "trivium_decider_revalidated_total",
        "counter",
        "Flows that were followed through changed tables again.",
        |decider| decider.revalidated,
    ),
    (
        "trivium_decider_narrowed_total",
        "counter",
        "Flows that were cached with every bit of their packets, since their ports had as many masks as they may.",
        |decider| decider.narrowed,
    ),
    (
        "trivium_decider_round_microseconds",
        "gauge",
        "Time that the last look at all flows took.",
        |decider| decider.round_us,
    ),
    (
        "trivium_decider_wrong_total",
        "counter",
        "Cached flows that said something else than unchanged tables.",
        |decider| decider.wrong,
    ),
];

pub(super) fn caches(text: &mut Exposition, caches: &CachesState) {
    text.family("trivium_flow_cache_hits_total", "counter", "Packets that a cached flow answered, by tier.");
    for cache in &caches.workers {
        let worker = cache.worker.to_string();
        text.sample(&[("worker", worker.as_str()), ("tier", "exact")], cache.exact_hits);
        text.sample(&[("worker", worker.as_str()), ("tier", "masked")], cache.masked_hits);
    }
    for (name, kind, help, field) in CACHE_VALUES {
        text.family(name, kind, help);
        for cache in &caches.workers {
            text.sample(&[("worker", &cache.worker.to_string())], field(cache));
        }
    }
    if let Some(decider) = &caches.decider {
        for (name, kind, help, field) in DECIDER_VALUES {
            text.family(name, kind, help);
            text.sample(&[], field(decider));
        }
    }
    text.family("trivium_memory_bytes", "gauge", "Memory by what takes it.");
    for memory in &caches.memory {
        text.sample(&[("consumer", &memory.consumer)], memory.bytes);
    }
}
