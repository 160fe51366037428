//! Metrics of the flow caches and of the slow path.

use model::{CacheState, CachesState, SlowPathState};

use super::exposition::Exposition;

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

type SlowPathField = fn(&SlowPathState) -> u64;

const SLOW_PATH_VALUES: [(&str, &str, &str, SlowPathField); 8] = [
    ("trivium_slow_path_flows", "gauge", "Flows that workers have.", |slow_path| slow_path.flows),
    ("trivium_slow_path_flows_limit", "gauge", "Flows that are given out at most now.", |slow_path| {
        slow_path.limit
    }),
    (
        "trivium_slow_path_upcalls_total",
        "counter",
        "Packets that were looked up in the tables.",
        |slow_path| slow_path.upcalls,
    ),
    (
        "trivium_slow_path_revalidated_total",
        "counter",
        "Flows that were followed through changed tables again.",
        |slow_path| slow_path.revalidated,
    ),
    (
        "trivium_slow_path_narrowed_total",
        "counter",
        "Flows that were cached with every bit of their packets, since their ports had as many masks as they may.",
        |slow_path| slow_path.narrowed,
    ),
    (
        "trivium_slow_path_round_microseconds",
        "gauge",
        "Time that the last look at all flows took.",
        |slow_path| slow_path.round_us,
    ),
    (
        "trivium_slow_path_wrong_total",
        "counter",
        "Cached flows that said something else than unchanged tables.",
        |slow_path| slow_path.wrong,
    ),
    (
        "trivium_slow_path_skipped_learns_total",
        "counter",
        "Learn actions that were skipped, since they would have visited too many rules.",
        |slow_path| slow_path.skipped_learns,
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
    if let Some(slow_path) = &caches.slow_path {
        for (name, kind, help, field) in SLOW_PATH_VALUES {
            text.family(name, kind, help);
            text.sample(&[], field(slow_path));
        }
    }
    text.family("trivium_memory_bytes", "gauge", "Memory by what takes it.");
    for memory in &caches.memory {
        text.sample(&[("consumer", &memory.consumer)], memory.bytes);
    }
}
