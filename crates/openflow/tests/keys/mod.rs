//! Keys, certificates and CAs created by `openssl`, in a separate directory.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use openflow::Tls;

/// A directory with a CA.
pub struct Authority(PathBuf);

fn openssl(directory: &Path, line: &str) {
    let output = Command::new("openssl").current_dir(directory).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&output.stderr));
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

impl Authority {
    pub fn new() -> Authority {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("trivium-ca-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        openssl(
            &directory,
            &format!("req -x509 {NEW_KEY} -keyout ca.key -out ca.pem -subj /CN=ca-{number} -days 2"),
        );
        // Like in ovs-pki: version 3, and a name that is not a host name.
        let extensions = "basicConstraints=CA:FALSE\nsubjectAltName=DNS:sc id:9b6d40e6\n";
        std::fs::write(directory.join("extensions"), extensions).unwrap();
        Authority(directory)
    }

    /// Returns a key with a certificate that is valid for `days` days.
    pub fn issue(&self, name: &str, days: i32) -> Tls {
        openssl(&self.0, &format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        openssl(
            &self.0,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile extensions -out {name}.pem"
            ),
        );
        let file = |kind: &str| self.0.join(format!("{name}.{kind}"));
        Tls { key: file("key"), certificate: file("pem"), ca: self.0.join("ca.pem") }
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the TLS options for Open vSwitch's programs.
pub fn options(tls: &Tls) -> [String; 3] {
    [
        format!("--private-key={}", tls.key.display()),
        format!("--certificate={}", tls.certificate.display()),
        format!("--ca-cert={}", tls.ca.display()),
    ]
}
