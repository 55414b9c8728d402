//! The commands in the documents print what stands there: every block of `console` whose lines begin with `$ headroom`.
//! `TRYCMD=overwrite cargo test --test documents` writes what they print today; `...` and `[..]` stand for what is left out.
#![cfg(all(feature = "cli", not(target_arch = "wasm32")))]

#[test]
fn commands_print_what_the_documents_say() {
    let cases = trycmd::TestCases::new();
    cases.register_bin("headroom", std::path::Path::new(env!("CARGO_BIN_EXE_headroom")));
    cases.case("README.md").case("docs/*.md").case("packages/*/README.md");
}
