//! Compiles the programs of `bpf/` with clang. `src/object.rs` embeds the objects.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const PROGRAMS: [&str; 11] = [
    "trivium",
    "placeholder",
    "guard",
    "services",
    "livegen",
    "replay",
    "bench",
    "filterbench",
    "watch",
    "dump",
    "services_dump",
];
const MISSING: &str = "install clang, libbpf's headers and the kernel's: \
     `apt-get install clang libbpf-dev linux-libc-dev`, or run `make setup`";

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=LLVM_STRIP");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let source = required_dir("CARGO_MANIFEST_DIR").join("../../bpf");
    let out = required_dir("OUT_DIR");
    // Cargo also watches all files in the directory.
    println!("cargo::rerun-if-changed={}", source.display());
    for program in PROGRAMS {
        compile(&clang, &source, program, &out.join(format!("{program}.bpf.o")));
    }
}

fn required_dir(variable: &str) -> PathBuf {
    match env::var_os(variable) {
        Some(dir) => PathBuf::from(dir),
        None => fail(&format!("{variable} is not set: run this through cargo")),
    }
}

fn compile(clang: &str, source: &Path, program: &str, object: &Path) {
    let input = format!("{program}.bpf.c");
    let result = Command::new(clang)
        // All paths are relative, so the object contains no path of the build machine.
        .current_dir(source)
        .arg("-fdebug-compilation-dir=.")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .arg("-Iinclude")
        .args(multiarch_include().map(|dir| format!("-I{dir}")))
        .arg("-c")
        .arg(&input)
        .arg("-o")
        .arg(object)
        .output();
    match result {
        Err(error) => fail(&format!("cannot run `{clang}`, which builds bpf/: {error}; {MISSING}")),
        Ok(output) if !output.status.success() => {
            let log = String::from_utf8_lossy(&output.stderr);
            let hint = if log.contains("file not found") { MISSING } else { "see clang's output above" };
            fail(&format!("{log}\nbpf/{input} does not compile; {hint}"))
        }
        Ok(_) => strip(object),
    }
}

/// Removes the DWARF debugging sections from a BPF object. These sections take half of the object's size, and are
/// needed only to generate the BTF type information. If an object cannot be stripped, the build continues with the
/// unstripped object.
fn strip(object: &Path) {
    let tool = env::var("LLVM_STRIP").unwrap_or_else(|_| "llvm-strip".to_owned());
    if !Command::new(&tool).arg("--strip-debug").arg(object).status().is_ok_and(|status| status.success()) {
        println!(
            "cargo::warning=`{tool}` did not strip {}: the binary gets larger; install llvm",
            object.display()
        );
    }
}

/// Returns the directory in which Debian installs `asm/types.h`. clang searches this directory when it compiles for the
/// host, but not when it compiles for BPF.
fn multiarch_include() -> Option<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").ok()?;
    let dir = format!("/usr/include/{arch}-linux-gnu");
    Path::new(&dir).is_dir().then_some(dir)
}

fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
