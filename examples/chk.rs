fn main() {
    let f = std::env::args().nth(1).unwrap();
    let pat = std::env::args().nth(2).unwrap_or_default();
    let r = headroom::check::check(&std::fs::read_to_string(f).unwrap(), true).unwrap();
    let mut rows: Vec<_> = r.rows.iter().filter(|x| x.id.contains(&pat)).collect();
    rows.sort_by(|a, b| b.error_pct.abs().total_cmp(&a.error_pct.abs()));
    for x in &rows {
        println!(
            "{:50} {:10} {:>14} {:>14} {:+.3}",
            x.id,
            x.metric.slug(),
            x.measured.0,
            x.predicted.0,
            x.error_pct
        );
    }
    for u in &r.unsupported {
        println!("UNSUPPORTED {} {}", u.id, u.reason);
    }
    println!("{:#?}", r.summary);
}
