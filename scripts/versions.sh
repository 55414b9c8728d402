# shellcheck shell=bash disable=SC2034
# The versions of every tool, in this one place. What another file already pins is read from there, never repeated:
# npm packages (Playwright, axe, binaryen) in package-lock.json, wasm-bindgen in Cargo.lock.

RUST_VERSION=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
WASM_BINDGEN_VERSION=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
TRUNK_VERSION=0.21.14
MATURIN_VERSION=1.16.0
NODE_MINIMUM=20
