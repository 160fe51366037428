//! The `/metrics` endpoint: counters and states for Prometheus (text exposition format 0.0.4).
//!
//! The number of time series is bounded by the configuration: filter rules, targets of steering policies,
//! ports, bridges, routers, workers, stages, drop reasons, punt classes and memory consumers.

mod exposition;
mod flows;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use exposition::Exposition;
use model::{
    BridgeState, CookieState, DropState, FilterState, FpmPhase, FpmState, PortState, PuntState, RouterState,
    RuleState, StageState, SteeringSent, SteeringState, WorkerState,
};

use crate::Plane;
use crate::api::Context;
use crate::error::ApiResult;

/// Returns the counters and gauges of the data plane as text for Prometheus.
#[utoipa::path(get, path = "/metrics", security((), ("token" = ["read"])), responses((status = 200, body = String)))]
pub(crate) async fn metrics(context: Context) -> ApiResult<Response> {
    let plane = context.store.plane().clone();
    let text = context.blocking(move || text(plane.as_ref())).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

fn text(plane: &dyn Plane) -> String {
    let mut text = Exposition::default();
    ports(&mut text, &plane.ports());
    drops(&mut text, &plane.drops());
    filters(&mut text, &plane.filters());
    steering(&mut text, &plane.steering());
    bridges(&mut text, &plane.bridges());
    routers(&mut text, &plane.routers());
    flows::caches(&mut text, &plane.caches());
    stages(&mut text, &plane.stages());
    workers(&mut text, &plane.workers());
    text.family("trivium_build_info", "gauge", "The program's version.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.into_text()
}

type PortField = fn(&PortState) -> u64;

const PORT_COUNTERS: [(&str, &str, PortField); 6] = [
    ("trivium_port_receive_packets_total", "Packets received.", |port| port.counters.rx_packets),
    ("trivium_port_receive_bytes_total", "Bytes received.", |port| port.counters.rx_bytes),
    ("trivium_port_receive_missed_total", "Packets lost before they were received.", |port| {
        port.counters.rx_missed
    }),
    ("trivium_port_transmit_packets_total", "Packets sent.", |port| port.counters.tx_packets),
    ("trivium_port_transmit_bytes_total", "Bytes sent.", |port| port.counters.tx_bytes),
    ("trivium_port_drops_total", "Packets that came in by the port and were dropped.", |port| {
        port.counters.drops
    }),
];

fn ports(text: &mut Exposition, ports: &[PortState]) {
    for (name, help, field) in PORT_COUNTERS {
        text.family(name, "counter", help);
        for port in ports {
            text.sample(&[("port", &port.name)], field(port));
        }
    }
    text.family("trivium_port_up", "gauge", "Whether the port's link is up.");
    for port in ports {
        text.sample(&[("port", &port.name), ("kind", &port.kind)], u8::from(port.link_up));
    }
}

fn drops(text: &mut Exposition, drops: &[DropState]) {
    text.family(
        "trivium_drops_total",
        "counter",
        "Dropped packets by the port that they came in by, and reason; of tx-failed and device-gone, by the port that was to send them. \
         rx-missed is trivium_port_receive_missed_total.",
    );
    for drop in drops {
        text.sample(&[("port", &drop.port), ("reason", &drop.reason)], drop.packets);
    }
}

type RuleField = fn(&RuleState) -> u64;

const RULE_COUNTERS: [(&str, &str, RuleField); 4] = [
    ("trivium_filter_packets_total", "Packets that the rule matched.", |rule| rule.packets),
    ("trivium_filter_bytes_total", "Bytes of packets that the rule matched.", |rule| rule.bytes),
    (
        "trivium_filter_acted_packets_total",
        "Of these, packets that it dropped, passed or sampled, or that were over its rate.",
        |rule| rule.acted_packets,
    ),
    ("trivium_filter_acted_bytes_total", "Bytes of these.", |rule| rule.acted_bytes),
];

type CookieField = fn(&CookieState) -> u64;

const COOKIE_COUNTERS: [(&str, &str, CookieField); 5] = [
    ("trivium_filter_syncookies_answered_total", "SYNs that were answered with a cookie.", |c| c.answered),
    ("trivium_filter_syncookies_valid_total", "Segments that brought a cookie back.", |c| c.valid),
    ("trivium_filter_syncookies_invalid_total", "Segments that should have, and did not.", |c| c.invalid),
    ("trivium_filter_syncookies_refused_total", "SYNs that could not be answered, and were dropped.", |c| {
        c.refused
    }),
    (
        "trivium_filter_syncookies_through_total",
        "SYNs that went on to the service, and segments that went on as a SYN.",
        |c| c.through,
    ),
];

/// Writes a metric of SYN cookies: one sample for each filter rule that uses SYN cookies. `field` returns the value of
/// the counter.
fn cookies(text: &mut Exposition, filters: &[FilterState], field: CookieField) {
    for filter in filters {
        for rule in &filter.rules {
            if let Some(cookies) = &rule.cookies {
                text.sample(&[("filter", &filter.name), ("rule", &rule.name)], field(cookies));
            }
        }
    }
}

fn filters(text: &mut Exposition, filters: &[FilterState]) {
    for (name, help, field) in RULE_COUNTERS {
        text.family(name, "counter", help);
        for filter in filters {
            for rule in &filter.rules {
                let labels =
                    [("filter", filter.name.as_str()), ("rule", &rule.name), ("action", &rule.action)];
                text.sample(&labels, field(rule));
            }
        }
    }
    for (name, help, field) in COOKIE_COUNTERS {
        text.family(name, "counter", help);
        cookies(text, filters, field);
    }
    text.family("trivium_filter_syncookies_answering", "gauge", "Whether the rule answers SYNs now.");
    cookies(text, filters, |cookies| u64::from(cookies.answering));
    text.family("trivium_filter_listed", "gauge", "Prefixes in the filter's block list.");
    for filter in filters {
        if let Some(listed) = filter.listed {
            text.sample(&[("filter", &filter.name)], listed);
        }
    }
}

type SentField = fn(&SteeringSent) -> u64;

const SENT_COUNTERS: [(&str, &str, SentField); 2] = [
    ("trivium_steering_packets_total", "Packets that a steering has sent there.", |sent| sent.packets),
    ("trivium_steering_bytes_total", "Bytes of these.", |sent| sent.bytes),
];

fn steering(text: &mut Exposition, policies: &[SteeringState]) {
    for (name, help, field) in SENT_COUNTERS {
        text.family(name, "counter", help);
        for steering in policies {
            for sent in &steering.sent {
                text.sample(
                    &[("steering", steering.name.as_str()), ("to", &sent.to.to_string())],
                    field(sent),
                );
            }
        }
    }
    text.family("trivium_steering_flows", "gauge", "Exact flows of the steering.");
    for steering in policies {
        text.sample(&[("steering", &steering.name)], steering.flows);
    }
    text.family(
        "trivium_steering_unmarked_total",
        "counter",
        "Packets whose driver had no room for metadata.",
    );
    for steering in policies {
        text.sample(&[("steering", &steering.name)], steering.unmarked);
    }
}

fn bridges(text: &mut Exposition, bridges: &[BridgeState]) {
    text.family("trivium_bridge_macs", "gauge", "Addresses in the bridge's table.");
    for bridge in bridges {
        text.sample(&[("bridge", &bridge.name)], bridge.macs);
    }
    text.family("trivium_bridge_macs_limit", "gauge", "Addresses that the bridge's table holds at most.");
    for bridge in bridges {
        text.sample(&[("bridge", &bridge.name)], bridge.mac_limit);
    }
    text.family(
        "trivium_bridge_port_moves_total",
        "counter",
        "Times that an address was seen at the port and known at another one of the bridge.",
    );
    for bridge in bridges {
        for member in &bridge.members {
            text.sample(&[("bridge", &bridge.name), ("port", &member.port)], member.moves);
        }
    }
}

type RouterField = fn(&RouterState) -> u64;

const ROUTER_VALUES: [(&str, &str, &str, RouterField); 10] = [
    ("trivium_router_routes_limit", "gauge", "Routes that the router has room for.", |router| {
        router.routes_limit.into()
    }),
    ("trivium_router_neighbours", "gauge", "Neighbours of the router.", |router| router.neighbours),
    ("trivium_router_neighbours_limit", "gauge", "Neighbours that the router has room for.", |router| {
        router.neighbours_limit.into()
    }),
    ("trivium_router_in_step", "gauge", "Whether all is known that the kernel has told so far.", |router| {
        router.in_step.into()
    }),
    ("trivium_router_events_total", "counter", "The kernel's messages that were applied.", |router| {
        router.events
    }),
    ("trivium_router_overruns_total", "counter", "Times that messages of the kernel were lost.", |router| {
        router.overruns
    }),
    ("trivium_router_resyncs_total", "counter", "Times that the kernel's whole state was read.", |router| {
        router.resyncs
    }),
    ("trivium_router_resync_milliseconds", "gauge", "Time that the last of these took.", |router| {
        router.resync_ms
    }),
    ("trivium_router_drifted_total", "counter", "Objects that had drifted and were repaired.", |router| {
        router.drifted
    }),
    ("trivium_router_refused_routes_total", "counter", "Routes that found no room.", |router| router.refused),
];

type FpmField = fn(&FpmState) -> u64;

const FPM_VALUES: [(&str, &str, &str, FpmField); 9] = [
    ("trivium_router_fpm_connected", "gauge", "Whether FRR's zebra is connected.", |fpm| {
        (fpm.state != FpmPhase::Waiting).into()
    }),
    ("trivium_router_fpm_replaying", "gauge", "Whether it has not announced everything yet.", |fpm| {
        (fpm.state == FpmPhase::Replaying).into()
    }),
    ("trivium_router_fpm_routes", "gauge", "Routes that it has announced.", |fpm| fpm.routes),
    ("trivium_router_fpm_sessions_total", "counter", "Sessions of FPM.", |fpm| fpm.sessions),
    ("trivium_router_fpm_messages_total", "counter", "Messages of FPM.", |fpm| fpm.messages),
    ("trivium_router_fpm_left_total", "counter", "Messages about what is not followed.", |fpm| fpm.left),
    ("trivium_router_fpm_refused_total", "counter", "Announcements that found no room.", |fpm| fpm.refused),
    ("trivium_router_fpm_swept_total", "counter", "Routes that were not announced again.", |fpm| fpm.swept),
    ("trivium_router_fpm_answers_total", "counter", "Answers that were sent.", |fpm| fpm.answers),
];

type PuntField = fn(&PuntState) -> u64;

const PUNT_COUNTERS: [(&str, &str, PuntField); 2] = [
    ("trivium_router_punts_total", "Packets that workers gave to the kernel, by class.", |punt| punt.packets),
    ("trivium_router_punts_refused_total", "Packets that were dropped over their class's limit.", |punt| {
        punt.refused
    }),
];

fn routers(text: &mut Exposition, routers: &[RouterState]) {
    text.family("trivium_router_routes", "gauge", "Routes of the router, over all tables.");
    for router in routers {
        text.sample(&[("router", router.name.as_str()), ("family", "ipv4")], router.routes4);
        text.sample(&[("router", router.name.as_str()), ("family", "ipv6")], router.routes6);
    }
    for (name, kind, help, field) in ROUTER_VALUES {
        text.family(name, kind, help);
        for router in routers {
            text.sample(&[("router", &router.name)], field(router));
        }
    }
    let of_fpm = || routers.iter().filter_map(|router| Some((router, router.fpm.as_ref()?)));
    if of_fpm().next().is_some() {
        for (name, kind, help, field) in FPM_VALUES {
            text.family(name, kind, help);
            of_fpm().for_each(|(router, fpm)| text.sample(&[("router", &router.name)], field(fpm)));
        }
    }
    for (name, help, field) in PUNT_COUNTERS {
        text.family(name, "counter", help);
        for router in routers {
            for punt in &router.punts {
                text.sample(&[("router", router.name.as_str()), ("class", &punt.class)], field(punt));
            }
        }
    }
}

fn stages(text: &mut Exposition, stages: &[StageState]) {
    text.family("trivium_stage_packets_total", "counter", "Packets that went through the stage.");
    for stage in stages {
        text.sample(&[("stage", &stage.name)], stage.packets);
    }
    text.family("trivium_stage_nanoseconds_total", "counter", "Time spent in the stage, over all workers.");
    for stage in stages {
        text.sample(&[("stage", &stage.name)], stage.ns);
    }
}

type WorkerField = fn(&WorkerState) -> u64;

const WORKER_COUNTERS: [(&str, &str, WorkerField); 4] = [
    ("trivium_worker_bursts_total", "Bursts.", |worker| worker.bursts),
    ("trivium_worker_packets_total", "Packets.", |worker| worker.packets),
    ("trivium_worker_sleeps_total", "Times that the worker slept.", |worker| worker.sleeps),
    ("trivium_worker_handed_over_total", "Packets that other workers have handed to it.", |worker| {
        worker.handed_over
    }),
];

fn workers(text: &mut Exposition, workers: &[WorkerState]) {
    for (name, help, field) in WORKER_COUNTERS {
        text.family(name, "counter", help);
        for worker in workers {
            let (id, core) = (worker.id.to_string(), worker.core.to_string());
            text.sample(&[("worker", &id), ("core", &core)], field(worker));
        }
    }
    text.family("trivium_worker_busy_ratio", "gauge", "Part of the last second spent on packets.");
    for worker in workers {
        let (id, core) = (worker.id.to_string(), worker.core.to_string());
        text.sample(&[("worker", &id), ("core", &core)], worker.busy);
    }
}
