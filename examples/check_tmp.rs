fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let report = headroom::check::check(&text, false).unwrap();
    println!("{}", serde_json::to_string(&report).unwrap());
}
