//! Prints every parameter tensor of a `config.json`: name, shape, role. `tools/compare_tensors.py` holds the list
//! against transformers' own.
//!
//! `cargo run --example tensors FILE...`

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut status = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        let result = std::fs::read_to_string(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| headroom::model::read::parse(&text).map_err(|issue| issue.to_string()));
        match result {
            Err(message) => {
                eprintln!("{path}: {message}");
                status = ExitCode::from(2);
            }
            Ok(model) => {
                let mut lines = format!("# {path}\t{}\n", model.parameters());
                for note in &model.notes {
                    lines.push_str(&format!("! {note}\n"));
                }
                model.visit(&mut |param| {
                    lines.push_str(&format!("{}\t{:?}\t{:?}\n", param.name, param.shape, param.role));
                });
                if out.write_all(lines.as_bytes()).is_err() {
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    status
}
