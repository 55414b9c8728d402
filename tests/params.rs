//! Every model of the catalogue counts exactly, tensor by tensor.

use std::collections::HashMap;

use headroom::model::catalogue::{self, Entry};
use headroom::model::{Architecture, read};

fn data(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The config file as it lies in the folder, not as the build packs it.
fn whole(entry: &Entry) -> Result<Architecture, String> {
    let text = data(&format!("data/models/{}.json", entry.id.replacen('/', "__", 1)));
    read::parse(&text).map_err(|issue| issue.to_string())
}

/// Collects what is wrong with each model and fails with all of it.
#[track_caller]
fn check(what: impl Fn(&Entry) -> Result<(), String>) {
    let entries = catalogue::entries();
    let wrong: Vec<String> = entries
        .iter()
        .filter_map(|entry| what(entry).err().map(|message| format!("{}: {message}", entry.id)))
        .collect();
    assert!(entries.len() >= 250, "the catalogue has {} models", entries.len());
    assert!(wrong.is_empty(), "{} of {} models:\n{}", wrong.len(), entries.len(), wrong.join("\n"));
}

fn same(what: &str, have: u64, want: u64) -> Result<(), String> {
    match i128::from(have) - i128::from(want) {
        0 => Ok(()),
        difference => Err(format!("{difference} {what} of difference")),
    }
}

#[test]
fn every_model_counts_exactly() {
    check(|entry| same("parameters", whole(entry)?.parameters(), entry.parameters));
}

/// What docs/formulas.md says of the catalogue's numbers beside those that were published.
#[test]
fn the_document_counts_whose_number_was_published() {
    let table = data("data/models.csv");
    let mut lines = table.lines();
    let column =
        |name: &str, titles: &str| titles.split(',').position(|title| title == name).expect("a column");
    let titles = lines.next().expect("titles");
    let (own, published) = (column("parameters", titles), column("published", titles));
    let [mut same, mut other, mut none] = [0; 3];
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        match fields[published] {
            "" => none += 1,
            number if number == fields[own] => same += 1,
            _ => other += 1,
        }
    }
    let said = format!(
        "of the {} models of the catalogue {same} have exactly what their checkpoint was published to have; {other} differ",
        same + other + none
    );
    assert!(data("docs/formulas.md").contains(&said), "{said}");
    assert!(data("docs/formulas.md").contains(&format!("of {none} no exact number was published")), "{none}");
}

#[test]
fn the_packed_catalogue_reads_as_the_files_do() {
    check(|entry| {
        let packed = entry.architecture().map_err(|issue| issue.to_string())?;
        if whole(entry)? == *packed { Ok(()) } else { Err("the packed config reads differently".to_owned()) }
    });
}

/// `data/models.csv` lists the parameters of the language model alone where there is more.
#[test]
fn text_parameters_count_exactly() {
    let table = data("data/models.csv");
    let text: HashMap<&str, u64> = table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(',');
            Some((fields.next()?, fields.nth(7)?.parse().ok()?))
        })
        .collect();
    assert!(text.len() > 20, "{} models list text parameters", text.len());
    check(|entry| {
        let model = whole(entry)?;
        let want = text.get(entry.id).copied().unwrap_or(entry.parameters);
        same("text parameters", model.text_parameters(), want)
    });
}

/// Number, shapes and order of the tensors are those of transformers 5.17 (`tools/compare_tensors.py --table`). Left
/// out: models whose published weights hold a head that transformers 5 ties, and one that transformers does not have.
#[test]
fn tensors_are_those_of_transformers() {
    let table = data("tests/tensors.csv");
    let rows: HashMap<&str, (&str, &str)> = table
        .lines()
        .filter_map(|line| line.split_once(',').and_then(|(id, rest)| Some((id, rest.split_once(',')?))))
        .collect();
    check(|entry| {
        let Some((tensors, digest)) = rows.get(entry.id) else { return Ok(()) };
        let (mut count, mut hash) = (0u64, 0xcbf2_9ce4_8422_2325u64);
        whole(entry)?.visit(&mut |param| {
            count += 1;
            let shape: Vec<String> = param.shape.iter().map(u64::to_string).collect();
            for byte in format!("{};", shape.join("x")).bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        });
        same("tensors", count, tensors.parse().unwrap_or(0))?;
        if format!("{hash:016x}") == *digest { Ok(()) } else { Err("shapes in another order".to_owned()) }
    });
}

/// Active parameters as the model cards give them, in billions.
#[test]
fn experts_that_rest_are_not_active() {
    for (id, billions) in [
        ("Qwen/Qwen3-30B-A3B", 3.3),
        ("Qwen/Qwen3-235B-A22B", 22.0),
        ("mistralai/Mixtral-8x7B-v0.1", 12.9),
        ("deepseek-ai/DeepSeek-V3", 37.0),
        ("meta-llama/Meta-Llama-3-8B", 8.03),
    ] {
        let active = catalogue::architecture(id).unwrap().active_parameters() as f64 / 1e9;
        assert!((active / billions - 1.0).abs() < 0.02, "{id}: {active} billion");
    }
}
