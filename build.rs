//! Packs the data that the program carries, so that the page does not pay for columns and files that it never reads.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a build script never runs in a browser"
)]

use std::fs;
use std::path::{Path, PathBuf};

#[path = "build/hardware.rs"]
mod hardware;
#[path = "build/models.rs"]
mod models;

fn main() {
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    hardware::pack(&out);
    models::pack(&out);
}

/// Writes a packed text into the folder.
fn write(out: &Path, name: &str, text: &str) {
    fs::write(out.join(name), text).expect("OUT_DIR is writable");
}
