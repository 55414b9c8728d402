use super::super::tests::{difference, sizes};
use super::*;

/// What PyTorch 2.11 generated (`tools/compiled_layers.py` with `"compile": "model"`).
const GENERATED: &str = include_str!("../../../../../../tests/fixtures/compiled/whole.txt");

fn whole(case: &serde_json::Value) -> Whole {
    let config = &case["config"];
    let number = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("{key} of {case}"));
    let [sequences, length] = ["batch", "seq"].map(|key| case[key].as_u64().expect("a number"));
    let layer = sizes(case, true);
    let cudnn = case["cc"] == "9.0";
    let room = if cudnn { length } else { length.div_ceil(32) * 32 };
    Whole {
        layer: Sizes { log_sums: sequences * layer.queries.heads * room, seeds: [1, 1], ..layer },
        layers: number("num_hidden_layers") as usize,
        vocabulary: number("vocab_size"),
        length,
        tied: config["tie_word_embeddings"] == true,
        checkpoints: case["gradient_checkpointing"] == "full",
        masked: case["attention_mask"] == "ones",
        cudnn,
    }
}

#[test]
fn the_code_of_a_whole_model_is_what_inductor_generates() {
    let models: Vec<&str> = GENERATED.split("layer ").filter(|model| !model.is_empty()).collect();
    assert_eq!(models.len(), 19);
    let mut wrong = Vec::new();
    for model in models {
        let (case, code) = model.split_once('\n').expect("a case and its code");
        let case: serde_json::Value = serde_json::from_str(case).expect("a case");
        let (first, second) = code.split_once("backward 0\n").expect("forward and backward");
        let forward_code: Vec<&str> = first.lines().skip(1).collect();
        let backward_code: Vec<&str> = second.lines().collect();
        let whole = whole(&case);
        for (graph, generated) in
            [(forward(&whole).graph, forward_code), (backward(&whole).graph, backward_code)]
        {
            if let Some(how) = difference(&graph, &generated) {
                wrong.push(format!("{case}: {how}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
