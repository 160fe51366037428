//! Fuzzing entry points for configurations and API bodies. No input may cause a panic, and accepted input
//! must keep its meaning when it is written and read again.

use model::{
    BridgeName, Config, Format, Fragment, Layers, Machine, ObjectKey, Owner, PortName, RouterName, StaticKey,
    diff, load_on,
};
use packet::{MacAddr, VlanId};

/// Loads the bytes as a configuration in TOML and in JSON. Each reported problem must have a position in the text. An
/// accepted configuration is written as text, which must load to an equal configuration.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split('\n').count();
    for format in [Format::Toml, Format::Json] {
        match load_on(&text, "fuzz", format, Some(&Machine { cores: 4, frames: None })) {
            Ok(loaded) => accepted(&loaded.config),
            Err(problems) => {
                assert!(!problems.is_empty());
                for problem in problems {
                    assert!(usize::try_from(problem.line).is_ok_and(|line| line <= lines), "{problem}");
                    assert!(!problem.fix().is_empty());
                }
            }
        }
    }
}

fn accepted(config: &Config) {
    let written = config.to_toml();
    match model::load(&written, "written") {
        Ok(again) => assert_eq!(&again, config, "{written}"),
        Err(problems) => assert!(problems.is_empty(), "{}\n{written}", problems[0]),
    }
    assert!(diff(config, config).is_empty());
    let differences = diff(&Config::default(), config);
    assert_eq!(differences.is_empty(), *config == Config::default());
    assert!(differences.report().lines.len() <= differences.changes.len());
}

/// Parses the bytes as a body of an API request. The first byte selects the kind of object. The other bytes
/// are parsed as the body of a PUT request, as a request to explain a frame, and as a file of stored objects.
pub fn api_body(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(body);
    let names: (Option<PortName>, Option<BridgeName>) = ("web1".parse().ok(), "br0".parse().ok());
    let router: Option<RouterName> = "core".parse().ok();
    let ((Some(port), Some(bridge)), Some(router)) = (names, router) else { return };
    let object = match choice % 8 {
        0 => ObjectKey::Port(port),
        1 => ObjectKey::Bridge(bridge),
        2 => ObjectKey::Member(bridge, port),
        3 => match "edge".parse() {
            Ok(filter) => ObjectKey::Filter(filter),
            Err(_) => return,
        },
        4 => match "spread".parse() {
            Ok(steering) => ObjectKey::Steering(steering),
            Err(_) => return,
        },
        5 => ObjectKey::Router(router),
        6 => ObjectKey::RouterPort(router, port),
        _ => ObjectKey::Static(bridge, StaticKey { vlan: VlanId::MIN, mac: MacAddr([2, 0, 0, 0, 0, 1]) }),
    };
    if let Ok(change) = model::load_change(&object, &text) {
        assert_eq!(change.object(), object);
        if let Ok(layers) = Layers::default().changed(Owner::Api, change) {
            let made = layers.fragments.get(&Owner::Api).cloned().unwrap_or_default();
            assert_eq!(Fragment::from_json(&made.to_json()).ok(), Some(made));
        }
    }
    let _ = Fragment::from_json(&text);
    let _ = crate::api::read_hex(&text);
}
