//! Where the API listens, and what is said when it cannot.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod rig;

use std::os::unix::fs::PermissionsExt;

use rig::{Rig, TRIVIUM};
use testbed::require;

#[test]
fn a_tcp_port_in_use_is_named() {
    require!("ip", "openssl");
    let rig = Rig::new(0);
    let (cert, key, token) = (rig.path("cert.pem"), rig.path("key.pem"), rig.path("token"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-keyout", key.to_str().unwrap()])
        .args(["-out", cert.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Somebody else in the hub listens there.
    let taken = rig.lab.hub().inside(|| {
        std::net::TcpListener::bind("127.0.0.1:0")
            .map_err(|source| testbed::LabError::System { what: "listening".to_owned(), source })
    });
    let taken = taken.unwrap();
    let text = format!(
        "{}[daemon.tcp]\nlisten = \"{}\"\ncert = {cert:?}\nkey = {key:?}\ntoken_file = {token:?}\n",
        rig.configuration(""),
        taken.local_addr().unwrap()
    );
    let file = rig.write("trivium.toml", &text);
    let output = rig.lab.hub().command([TRIVIUM, "run", "-c", file.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let address = taken.local_addr().unwrap().to_string();
    assert!(said.contains(&address) && said.contains("stop what listens there"), "{said}");
    assert!(!rig.socket().exists(), "nothing is left of a daemon that did not start");
}
