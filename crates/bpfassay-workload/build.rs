// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links the program to the address in the variable `BPFASSAY_LINK_AT_…`, if the builder of the
//! guest's programs sets it (`payload.rs` in bpfassay-testbed).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = concat!("BPFASSAY_LINK_AT_", env!("CARGO_PKG_NAME"));
    println!("cargo:rerun-if-env-changed={variable}");
    if let Ok(address) = std::env::var(variable) {
        println!("cargo:rustc-link-arg-bins=-Wl,-Ttext-segment={address}");
    }
}
