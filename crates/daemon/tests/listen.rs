//! Where the API listens, and what is said when it cannot.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use rig::{Rig, TRIVIUM};
use testbed::require;

#[test]
fn a_tcp_port_in_use_is_named() {
    require!("ip", "openssl");
    let rig = Rig::new(0);
    // Somebody else in the hub listens there.
    let taken = rig.lab.hub().inside(|| {
        std::net::TcpListener::bind("127.0.0.1:0")
            .map_err(|source| testbed::LabError::System { what: "listening".to_owned(), source })
    });
    let taken = taken.unwrap();
    let text = format!("{}{}", rig.configuration(""), rig.tcp_api(&taken.local_addr().unwrap().to_string()));
    let file = rig.write("trivium.toml", &text);
    let output = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let address = taken.local_addr().unwrap().to_string();
    assert!(said.contains(&address) && said.contains("stop what listens there"), "{said}");
    assert!(!rig.socket().exists(), "nothing is left of a daemon that did not start");
}
