//! How the program is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // At a fixed address nothing has to be relocated, so those pages stay the file's: 370 KB less for every session,
        // because its shim is this program.
        println!("cargo:rustc-link-arg-bins=-no-pie");
        link_unwinder();
    }
}

/// Links the unwinder into the program, where its library is there: each shim, and each command, starts without loading and
/// relocating another shared one, which takes about 0.2 ms.
fn link_unwinder() {
    if std::env::var_os("HOST") != std::env::var_os("TARGET") {
        // The compiler here may not know where that of another machine is.
        return;
    }
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let asked = std::process::Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    let Ok(answer) = asked else { return };
    let answer = String::from_utf8_lossy(&answer.stdout);
    // Without a directory it was not found.
    if let Some((directory, _)) = answer.trim().rsplit_once('/') {
        println!("cargo:rustc-link-search=native={directory}");
        println!("cargo:rustc-link-lib=static=gcc_eh");
    }
}
