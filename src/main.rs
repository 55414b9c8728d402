//! The page: mounts the app and nothing else.

fn main() {}
