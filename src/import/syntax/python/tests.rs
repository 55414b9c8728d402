//! Python texts and the calls in them.

use super::*;
use serde_json::json;

#[track_caller]
fn calls(text: &str, expected: &[(&str, Value, Value)]) {
    let script = read(text, &|_| None);
    let found: Vec<_> = script
        .calls
        .into_iter()
        .map(|call| {
            let named: Map<String, Value> = call.named.into_iter().collect();
            (call.path, Value::Array(call.values), Value::Object(named))
        })
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(path, values, named)| (path.to_string(), values.clone(), named.clone()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn calls_with_their_arguments() {
    calls(
        "max_seq_length = 2048 # any\nargs = SFTConfig(\n    max_length = max_seq_length,\n    lr=2e-4, w = -1,\n    kw={\"use_reentrant\": False},\n    bf16 = not torch.cuda.is_bf16_supported(),\n)",
        &[
            ("torch.cuda.is_bf16_supported", json!([]), json!({})),
            (
                "SFTConfig",
                json!([]),
                json!({"max_length": 2048, "lr": 2e-4, "w": -1.0, "kw": {"use_reentrant": false}, "bf16": "not torch.cuda.is_bf16_supported()"}),
            ),
        ],
    );
    calls(
        "model, tok = F.from_pretrained('a' 'b', dtype=torch.bfloat16, m=['q', 'v',], q=B(x=(1)), **dict(z=3)).to(0)",
        &[
            ("B", json!([]), json!({"x": 1})),
            ("dict", json!([]), json!({"z": 3})),
            (
                "F.from_pretrained",
                json!(["ab"]),
                json!({"dtype": "torch.bfloat16", "m": ["q", "v"], "q": "B(x=(1))", "z": 3}),
            ),
            ("to", json!([0]), json!({})),
        ],
    );
}

/// `first, second = 1, 2` gives each its own; what is taken apart stands for nothing.
#[test]
fn several_names_are_given_their_values() {
    let script = read("A, B, C = 1, 'two', [3, 4]\nD, *E = f(x, y)\nG = 5\nH, I = 6\n", &|_| None);
    let given = [("A", json!(1)), ("B", json!("two")), ("C", json!([3, 4])), ("G", json!(5))];
    assert_eq!(script.given, given.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn places_are_given_values() {
    let script = read(
        "import os\nos.environ[\"A\"] = 'b:True'\nmodel.config.use_cache = False\nN: int = 1_000\n",
        &|_| None,
    );
    let given: Vec<_> = script.given.iter().map(|(place, value)| (place.as_str(), value.clone())).collect();
    assert_eq!(
        given,
        [
            ("os.environ[\"A\"]", json!("b:True")),
            ("model.config.use_cache", json!(false)),
            ("N", json!(1000))
        ]
    );
}

#[track_caller]
fn f_is_given(text: &str, expected: &[Value]) {
    let holds = |condition: &str| match condition {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    let script = read(text, &holds);
    let found: Vec<_> = script.calls.into_iter().flat_map(|call| call.values).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn branches_that_do_not_run_are_passed_over() {
    let differs = json!("x, which differs from case to case");
    f_is_given("x = 1\nif yes:\n    x = 2\nelse:\n    x = 3\nf(x)", &[json!(2)]);
    f_is_given("if no:\n    x = 2\n    f(9)\nelif no:\n  x = 4\nelse:\n    x = 3\nf(x)", &[json!(3)]);
    f_is_given("x = 1\nif no: x = 2\nf(x)", &[json!(1)]);
    f_is_given("if maybe:\n    x = 2\nelse:\n    x = 3\nf(x)", std::slice::from_ref(&differs));
    f_is_given("x = 1\nif maybe:\n    if yes:\n        x = 2\nf(x)", std::slice::from_ref(&differs));
    f_is_given("if maybe:\n    x = 2\nelif yes:\n    x = 3\nx = 4\nf(x)", &[json!(4)]);
    f_is_given("x = 1\nif maybe:\n    x = 1\nf(x)", &[json!(1)]);
    f_is_given("for y in z:\n    x = 1\nelse:\n    x = 2\nf(x)", &[json!(2)]);
    f_is_given(
        "f(1 if yes else 2, 1 if no else 2, a if maybe else b, 1 if maybe else 2, -1 if maybe else 2)",
        &[
            json!(1),
            json!(2),
            json!("a if maybe else b"),
            json!("1 if maybe else 2"),
            json!("-1 if maybe else 2"),
        ],
    );
}

#[test]
fn sums_and_products_are_worked_out() {
    f_is_given(
        "x = 2\nf(x * 4, 2**11, 64 // 8, 1 + 2 * x, 'a' * 2, y * 2, 2 *, 1 / 0, (1 + 2) * 3)",
        &[
            json!(8),
            json!(2048),
            json!(8),
            json!(5),
            json!("'a' * 2"),
            json!("y * 2"),
            json!("2 *"),
            json!("1 / 0"),
            json!(9),
        ],
    );
}

#[test]
fn members_of_a_table_are_given_values() {
    f_is_given("x = {'a': 1}\nx['b'] = 2\nx[\"a\"] = 3\nf(x)", &[json!({"a": 3, "b": 2})]);
    f_is_given("x = 1\nx['b'] = 2\nf(x)", &[json!(1)]);
}

#[test]
fn what_a_program_fills_in_is_no_literal() {
    f_is_given(
        "f(f'{a}/b', f\"b\", rf'{a}', r'{a}')",
        &[json!("f'{a}/b'"), json!("b"), json!("rf'{a}'"), json!("{a}")],
    );
}

/// Names that stand for much, and stand in many places, do not fill the memory.
#[test]
fn nothing_makes_it_grow_without_end() {
    let text = format!("a = '{}'\nb = f([{}])\n", "x".repeat(1_900), "a, ".repeat(20_000));
    let script = read(&text, &|_| None);
    assert!(script.calls.iter().flat_map(|call| &call.values).map(size).sum::<usize>() < 2 * MOST_COPIED);
}

#[test]
fn anything_ends() {
    for text in [
        "(",
        ")",
        "f(",
        "f(((",
        "{:",
        "'",
        "\"\"\"a",
        "f(**",
        "=\n=",
        "a[",
        "\\",
        "f(a=)",
        "x = ",
        ".",
        "-",
        "if",
        "if x",
        "else",
        "x if",
        "x if y else",
        "if a: if b: else: x",
    ] {
        read(text, &|_| None);
    }
    read(&"f(".repeat(50_000), &|_| None);
    read(&"[".repeat(50_000), &|_| None);
    read(&"a.b(c)".repeat(5_000), &|_| None);
    read(&"a if b else ".repeat(50_000), &|_| None);
    read(&"if a:\n".repeat(5_000), &|_| Some(true));
}
