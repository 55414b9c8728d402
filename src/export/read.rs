//! What was understood of another project's configuration, as JSON.

use serde_json::{Value, json};

use crate::import::Understood;

/// What was understood of a text, as JSON: what it says, what its project does where it says nothing, what memory does not depend
/// on, and what was not followed; of a recorded run also what it took.
pub fn understood_json(understood: &Understood) -> Value {
    let Understood { format, taken, assumed, idle, left, took, scenario: _ } = understood;
    let applied = taken.iter().map(|one| json!({ "key": one.key, "value": one.value, "said": one.said }));
    let assumed = assumed.iter().map(|one| json!({ "key": one.key, "value": one.value, "why": one.why }));
    let left = left.iter().map(|one| json!({ "said": one.said, "why": one.why, "misread": one.is_misread }));
    let mut read = json!({
        "format": format.label(),
        "applied": applied.collect::<Vec<_>>(),
        "assumed": assumed.collect::<Vec<_>>(),
        "without_effect": idle,
        "not_understood": left.collect::<Vec<_>>(),
    });
    if let Some(took) = took {
        read["took"] = took.as_str().into();
    }
    read
}
