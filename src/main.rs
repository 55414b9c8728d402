//! The page: mounts the app and nothing else.

fn main() {
    headroom::ui::mount();
}
