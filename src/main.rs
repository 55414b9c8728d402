//! The page: mounts the app and nothing else.

use leptos::prelude::*;

fn main() {
    console_error_panic_hook::set_once();
    mount_to_body(|| view! { <main><h1>"Headroom"</h1></main> });
}
