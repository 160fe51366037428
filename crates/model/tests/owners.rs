//! Tests that each configuration object has one owner, and that only this owner can change the object.

#![allow(clippy::unwrap_used, reason = "a test says with a panic what it did not expect")]

mod generate;

use generate::config;
use model::{Change, Config, Fragment, Layers, ObjectKey, Owner, Refusal};
use proptest::prelude::*;

/// Assigns each object of a configuration to the file or to the API, according to a list of choices.
fn split(config: &Config, choices: &[bool]) -> Layers {
    let mut layers = Layers::default();
    let whole = Fragment::from(config);
    for (index, object) in whole.objects().enumerate() {
        let owner = if choices[index % choices.len()] { Owner::Api } else { Owner::File };
        let change = whole.get(&object).unwrap();
        layers.fragments.entry(owner).or_default().apply(change);
    }
    layers.base = Config { engine: config.engine.clone(), ..Config::default() };
    layers
}

proptest! {
    #[test]
    fn layers_merge_to_the_whole_with_each_objects_owner(
        config in config(),
        choices in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let layers = split(&config, &choices);
        let merged = layers.merged().unwrap();
        prop_assert_eq!(&merged.config, &config);
        let whole = Fragment::from(&config);
        prop_assert_eq!(merged.owners.len(), whole.objects().count());
        for object in whole.objects() {
            prop_assert_eq!(merged.owners.get(&object).copied(), layers.owner_of(&object));
        }
    }

    #[test]
    fn a_file_never_takes_or_removes_what_the_api_has(
        first in config(),
        second in config(),
        choices in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let layers = split(&first, &choices);
        let api = layers.fragments.get(&Owner::Api).cloned().unwrap_or_default();
        match layers.replaced(Owner::File, &second) {
            Ok(after) => {
                prop_assert_eq!(after.fragments.get(&Owner::Api).cloned().unwrap_or_default(), api);
                prop_assert_eq!(after.fragments.get(&Owner::File), Some(&Fragment::from(&second)));
                if let Ok(merged) = after.merged() {
                    for (object, owner) in &merged.owners {
                        prop_assert_eq!(after.owner_of(object), Some(*owner));
                    }
                }
            }
            Err(refusals) => {
                let shared: Vec<_> = Fragment::from(&second).objects().filter(|object| api.contains(object)).collect();
                let refused: Vec<_> = refusals.iter().map(|refusal| refusal.object().clone()).collect();
                prop_assert_eq!(refused, shared);
            }
        }
    }

    #[test]
    fn the_api_never_changes_what_the_file_has(config in config()) {
        let layers = Layers::default().replaced(Owner::File, &config).unwrap();
        for object in Fragment::from(&config).objects() {
            let refused = layers.changed(Owner::Api, Change::Remove(object.clone())).unwrap_err();
            prop_assert_eq!(&refused, &Refusal::Owned { object: object.clone(), owner: Owner::File, wanted: Owner::Api });
            prop_assert!(refused.to_string().contains("file"), "{}", refused);
            let removed = layers.changed(Owner::File, Change::Remove(object.clone())).unwrap();
            prop_assert_eq!(removed.owner_of(&object), None);
        }
    }

    #[test]
    fn stored_objects_come_back(config in config()) {
        let fragment = Fragment::from(&config);
        prop_assert_eq!(Fragment::from_json(&fragment.to_json()).unwrap(), fragment);
    }
}

#[test]
fn what_does_not_exist_is_said() {
    let layers = Layers::default();
    let object = ObjectKey::Port("web1".parse().unwrap());
    let refused = layers.changed(Owner::Api, Change::Remove(object)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "port.web1: there is no such object; look at the names with `trivium show config`"
    );
    let member = Change::PutMember("br0".parse().unwrap(), "web1".parse().unwrap(), model::Member::default());
    let refused = layers.changed(Owner::Api, member).unwrap_err();
    assert_eq!(refused.to_string(), "bridge.br0.port.web1: there is no bridge `br0`; make the bridge first");
}

#[test]
fn a_bridge_that_others_use_cannot_be_merged_away() {
    let config = model::load("[port.a]\nkind='null'\n[bridge.br0]\n", "t").unwrap();
    let layers = Layers::default().replaced(Owner::File, &config).unwrap();
    let member = Change::PutMember("br0".parse().unwrap(), "a".parse().unwrap(), model::Member::default());
    let layers = layers.changed(Owner::Api, member).unwrap();
    assert!(layers.merged().is_ok());
    let without = model::load("[port.a]\nkind='null'\n", "t").unwrap();
    let layers = layers.replaced(Owner::File, &without).unwrap();
    assert!(matches!(layers.merged().unwrap_err()[..], [Refusal::NoBridge { .. }]));
}

#[test]
fn a_router_that_others_use_cannot_be_merged_away() {
    let port = "[port.a]\nkind='af_xdp'\n";
    let config = model::load(&format!("{port}[router.edge]\n"), "t").unwrap();
    let interface =
        Change::PutRouterPort("edge".parse().unwrap(), "a".parse().unwrap(), model::RouterPort::default());
    let refused = Layers::default().changed(Owner::Api, interface.clone()).unwrap_err();
    assert_eq!(refused.to_string(), "router.edge.port.a: there is no router `edge`; make the router first");
    let layers = Layers::default().replaced(Owner::File, &config).unwrap();
    let layers = layers.changed(Owner::Api, interface).unwrap();
    assert!(layers.merged().unwrap().config.router_of("a").is_some());
    let layers = layers.replaced(Owner::File, &model::load(port, "t").unwrap()).unwrap();
    assert!(matches!(layers.merged().unwrap_err()[..], [Refusal::NoRouter { .. }]));
    // Interfaces of an owner in its own router are removed with the router.
    let whole = model::load(&format!("{port}[router.edge.port.a]\n"), "t").unwrap();
    let layers = Layers::default().replaced(Owner::File, &whole).unwrap();
    let object = ObjectKey::Router("edge".parse().unwrap());
    let layers = layers.changed(Owner::File, Change::Remove(object)).unwrap();
    assert!(layers.merged().unwrap().config.routers.is_empty());
}

#[test]
fn stored_texts_are_checked() {
    for bad in [
        "",
        "{}",
        "[{}]",
        "[{\"value\":{}}]",
        "[{\"port\":\"a b\",\"value\":{}}]",
        "[{\"port\":\"a\",\"value\":{}}]",
        "[{\"router\":\"a\",\"bridge\":\"b\",\"value\":{}}]",
        "[{\"router\":\"a\",\"port\":\"b\",\"mac\":\"02:00:00:00:00:01\",\"value\":{}}]",
        "[{\"router\":\"a\",\"value\":{\"routes\":0}}]",
    ] {
        assert!(Fragment::from_json(bad).is_err(), "{bad}");
    }
}
