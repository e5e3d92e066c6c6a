//! How the shim of this crate's tests is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // Like `relive`, which is the shim of users: what is relocated at the start of a program is memory of its own, and
        // grows with all code that is linked.
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
