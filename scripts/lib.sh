# shellcheck shell=bash
# What the scripts share: how they speak, and how they find or install the tools they need.
# Sourced from the root of the repository. Nothing is installed outside the repository and the user's cache folder,
# except what rustup and apt manage themselves.

# shellcheck source=scripts/versions.sh
source scripts/versions.sh

TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/headroom/tools

# Trunk takes NO_COLOR=1 for the argument of a switch and stops.
if [ -n "${NO_COLOR:-}" ]; then
    unset NO_COLOR
    export CARGO_TERM_COLOR=never
fi

# What is published must not carry the folder names of whoever built it, which messages of panics would.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=crates"

# say TEXT: one line, with the seconds since the script began.
say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

# give_up WHAT HINT...: says what is missing and how to get it, and ends the script.
give_up() {
    printf '\nerror: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# quietly LOG COMMAND...: keeps the output in LOG, and shows it live only to somebody at a terminal.
quietly() {
    local log=$1
    shift
    mkdir -p "$(dirname "$log")"
    if [ -t 1 ]; then
        CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-always} "$@" 2>&1 | tee "$log"
    else
        "$@" >"$log" 2>&1
    fi
}

# logged NAME COMMAND...: as quietly, and shows the end of the output when the command fails.
logged() {
    local log=target/logs/$1.log
    shift
    if quietly "$log" "$@"; then return 0; fi
    [ -t 1 ] || tail -n 80 "$log" | sed 's/^/    /'
    echo "    (all of it: $log)"
    return 1
}

# as_root COMMAND...: fails where that takes a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else has sudo && sudo -n "$@"; fi
}

apt_install() {
    as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# ---- Rust ------------------------------------------------------------------------------------------------------

need_rust() {
    if ! has cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi
    has cargo || give_up "Rust is not installed." \
        "Get it with its installer, rustup (https://rustup.rs):" \
        "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    has cc || give_up "a C compiler is not installed; Rust needs it to link." \
        "Debian, Ubuntu: sudo apt-get install build-essential"
    if has rustup; then rustup_toolchain; fi
    need_rust_part "the compiler for wasm32" "rustup target add wasm32-unknown-unknown" \
        test -d "$(rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown/lib"
}

rustup_toolchain() {
    if rustup run "$RUST_VERSION" rustc --version >/dev/null 2>&1; then return; fi
    say "installing Rust $RUST_VERSION (rustup, about a minute)"
    if logged rustup rustup toolchain install "$RUST_VERSION" --profile minimal --component clippy,rustfmt; then return; fi
    rustup run stable rustc --version >/dev/null 2>&1 ||
        give_up "Rust $RUST_VERSION could not be installed, and there is no stable toolchain to use instead."
    export RUSTUP_TOOLCHAIN=stable
    say "going on with the stable toolchain: $(rustc --version)"
}

# need_rust_part WHAT INSTALL-COMMAND TEST...
need_rust_part() {
    local what=$1 install=$2
    shift 2
    if "$@" >/dev/null 2>&1; then return; fi
    has rustup || give_up "this Rust lacks $what, and without rustup it cannot be added." \
        "Install rustup (https://rustup.rs) or the package of your system that holds it."
    say "adding $what"
    # shellcheck disable=SC2086
    logged rustup $install || give_up "'$install' failed."
}

need_clippy() { need_rust_part "clippy" "rustup component add clippy" cargo clippy --version; }
need_rustfmt() { need_rust_part "rustfmt" "rustup component add rustfmt" cargo fmt --version; }

# need_crates: afterwards cargo works offline.
need_crates() {
    if cargo metadata --locked --offline --format-version 1 >/dev/null 2>&1; then return; fi
    say "downloading crates"
    logged fetch cargo fetch --locked || give_up "the crates could not be downloaded; is the network up?"
}

# ---- tools written in Rust, built once into the cache folder -----------------------------------------------------

# need_tool CRATE VERSION MINUTES PROGRAM...: programs of exactly that version, from PATH or from the cache folder.
need_tool() {
    local crate=$1 version=$2 minutes=$3 root=$TOOLS/$1-$2
    shift 3
    if is_version "$version" "$@"; then return; fi
    PATH=$root/bin:$PATH
    if is_version "$version" "$@"; then return; fi
    say "installing $crate $version from source, once (about $minutes minutes on two cores)"
    # The tool's own lock file may name a crate that a mirror of the registry does not serve yet.
    install_tool "$crate" "$version" "$root" --locked ||
        { say "trying again without its lock file" && install_tool "$crate" "$version" "$root"; } ||
        give_up "$crate $version could not be installed." \
            "By hand: cargo install $crate --version $version --root $root"
    hash -r
    is_version "$version" "$@" || give_up "$crate is installed in $root, but does not report version $version."
    say "installed $crate $version in $root"
}

is_version() {
    local version=$1 program
    shift
    for program; do
        [ "$("$program" --version 2>/dev/null | awk 'NR == 1 { print $2 }')" = "$version" ] || return 1
    done
}

# These tools run for seconds and compile for minutes: build them fast rather than to be fast.
install_tool() {
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        logged "install-$1" cargo install "$1" --version "$2" --root "$3" "${@:4}"
}

need_trunk() { need_tool trunk "$TRUNK_VERSION" 5 trunk; }
need_wasm_bindgen() { need_tool wasm-bindgen-cli "$WASM_BINDGEN_VERSION" 2 wasm-bindgen wasm-bindgen-test-runner; }

# ---- Node.js, its packages, a browser ----------------------------------------------------------------------------

need_node() {
    local hint="Get it from https://nodejs.org, or on Debian 13 or Ubuntu 25.04 or newer: sudo apt-get install nodejs npm"
    has node || give_up "Node.js is not installed." "$hint"
    [ "$(node -p 'parseInt(process.versions.node)')" -ge "$NODE_MINIMUM" ] ||
        give_up "Node.js $(node --version) is too old; $NODE_MINIMUM or newer is needed." "$hint"
}

# need_packages: what package-lock.json names, in node_modules; their programs go on PATH.
need_packages() {
    need_node
    local stamp=node_modules/.installed
    if ! cmp -s package-lock.json "$stamp"; then
        has npm || give_up "npm is not installed." "Debian, Ubuntu: sudo apt-get install npm"
        say "installing npm packages"
        PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 logged npm npm ci --ignore-scripts --no-audit --no-fund ||
            give_up "the npm packages could not be installed; is the network up?"
        cp package-lock.json "$stamp"
    fi
    PATH=$PWD/node_modules/.bin:$PATH
}

# need_python: an environment in target/python with what builds the wheel.
need_python() {
    if [ -x target/python/bin/maturin ] && is_version "$MATURIN_VERSION" target/python/bin/maturin; then return; fi
    if ! python3 -m venv --help >/dev/null 2>&1 || ! python3 -c 'import ensurepip' 2>/dev/null; then
        has apt-get && say "installing Python (apt)" && logged apt apt_install python3 python3-venv ||
            give_up "Python 3.9 or newer with its module venv is not installed." "Debian, Ubuntu: sudo apt-get install python3-venv"
    fi
    say "installing maturin $MATURIN_VERSION"
    logged maturin python_environment || give_up "maturin could not be installed; is the network up?"
}

python_environment() { python3 -m venv target/python && target/python/bin/pip install --quiet "maturin==$MATURIN_VERSION"; }

# need_chromium: sets HEADROOM_CHROMIUM to a browser that Playwright can drive.
need_chromium() {
    if find_chromium; then return; fi
    if has apt-get; then
        say "installing Chromium (apt)"
        # Ubuntu has no such package
        local package=chromium
        if apt-cache show chromium-headless-shell >/dev/null 2>&1; then package=chromium-headless-shell; fi
        if logged apt apt_install "$package" && find_chromium; then return; fi
    fi
    give_up "there is no Chromium for the browser tests, and it could not be installed." \
        "Debian: sudo apt-get install chromium-headless-shell; Ubuntu: sudo apt-get install chromium" \
        "Elsewhere: install Chromium or Chrome and name the program: HEADROOM_CHROMIUM=/path/to/chrome scripts/check"
}

find_chromium() {
    if [ -n "${HEADROOM_CHROMIUM:-}" ]; then
        has "$HEADROOM_CHROMIUM" || give_up "HEADROOM_CHROMIUM names no program: $HEADROOM_CHROMIUM"
        return
    fi
    local program
    # without a window's parts a page takes a fifth less of the processor
    for program in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        if has "$program"; then
            HEADROOM_CHROMIUM=$(command -v "$program")
            export HEADROOM_CHROMIUM
            return
        fi
    done
    return 1
}

# need_firefox: sets HEADROOM_FIREFOX to a Firefox that puppeteer can drive.
need_firefox() {
    if find_firefox; then return; fi
    if has apt-get; then
        say "installing Firefox (apt)"
        if logged apt apt_install firefox-esr && find_firefox; then return; fi
    fi
    give_up "there is no Firefox for the browser tests, and it could not be installed." \
        "Debian: sudo apt-get install firefox-esr" \
        "Elsewhere: install Firefox and name the program: HEADROOM_FIREFOX=/path/to/firefox scripts/check"
}

find_firefox() {
    if [ -n "${HEADROOM_FIREFOX:-}" ]; then
        has "$HEADROOM_FIREFOX" || give_up "HEADROOM_FIREFOX names no program: $HEADROOM_FIREFOX"
        return
    fi
    local program
    for program in firefox-esr firefox; do
        if has "$program"; then
            HEADROOM_FIREFOX=$(command -v "$program")
            export HEADROOM_FIREFOX
            return
        fi
    done
    return 1
}

# ---- the page ----------------------------------------------------------------------------------------------------

# wasm-opt is among the npm packages.
need_page() { need_trunk && need_wasm_bindgen && need_packages; }

# as_tested PROGRAM ARGUMENT...: one of the crate's programs, compiled as the tests compile it. With a test beside it: their dependencies have
# features of others, and without these all of the library would be compiled once more.
as_tested() { cargo build --quiet --locked --profile test --features ui --bin "$1" --test layers && "${CARGO_TARGET_DIR:-target}/debug/$1" "${@:2}"; }

as_usual() { cargo run --quiet --locked --features ui --bin "$1" -- "${@:2}"; }

# build_page [HOW]: the release page in dist/, with the first answer in it, written by a program that is compiled so, one style sheet, and the
# list of what it is without a network.
build_page() {
    # They would replace the flags of .cargo/config.toml.
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
    trunk build --release --offline --locked &&
        "${1:-as_usual}" prerender dist/index.html &&
        node scripts/styles.js dist &&
        node scripts/offline.js dist
}
