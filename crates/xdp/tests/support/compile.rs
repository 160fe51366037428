//! Compiles BPF programs of tests in the way in which `build.rs` compiles `bpf/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

pub const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/xdp");

/// A temporary directory of one compilation.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("xdp-compile-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles a source file with additional arguments for clang, and returns the BPF object.
pub fn compiled_file(source: &Path, arguments: &[String]) -> Vec<u8> {
    let scratch = Scratch::new();
    let object = scratch.0.join("object.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let output = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .args([format!("-I{EXAMPLES}"), format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH)])
        .args(arguments)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(&object).unwrap()
}

/// Compiles a source text, and returns the BPF object.
pub fn compiled(source: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let file = scratch.0.join("source.bpf.c");
    std::fs::write(&file, source).unwrap();
    compiled_file(&file, &[])
}

/// Compiles a custom program with this section, name and body, for use in front of a port's program. Returns the BPF
/// object.
pub fn one(section: &str, name: &str, body: &str) -> Vec<u8> {
    compiled(&format!(
        "#include \"trivium.h\"\nSEC(\"{section}\") int {name}(struct xdp_md *ctx) {{ (void)ctx; {body} }}\n\
         char _license[] SEC(\"license\") = \"GPL\";\n"
    ))
}
