//! The page and its worker, which are one module.

fn main() {
    headroom::ui::start();
}
