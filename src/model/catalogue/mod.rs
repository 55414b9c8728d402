//! The models that Headroom knows by name: a folder of real `config.json` files.

mod entries;
mod search;

use std::sync::Arc;

use super::architecture::Architecture;
use super::dimensions::Dimensions;
use super::error::ModelError;
use crate::text::short;

pub(crate) use entries::published;
pub use entries::{Entry, aliases, context, entries, find};
pub use search::{Found, among, search};

/// The architecture of a model of the catalogue.
///
/// # Errors
/// A [`ModelError`] where there is no such model; it offers the nearest names.
///
/// ```
/// let model = headroom::model::catalogue::architecture("qwen2.5-7b").unwrap();
/// assert_eq!(model.parameters(), 7_615_616_512);
/// ```
pub fn architecture(id: &str) -> Result<Arc<Architecture>, ModelError> {
    match entries::architecture_of(id) {
        Some(architecture) => architecture,
        None => Err(ModelError::new(format!("no model is called {:?}", short(id))).with_fix(similar(id))),
    }
}

/// What may have been meant.
fn similar(id: &str) -> String {
    let mut near: Vec<&str> = search(id).into_iter().map(|found| found.id).collect();
    if near.is_empty() {
        near = search::nearest(id).into_iter().map(|found| found.id).collect();
    }
    // somebody's copy is called as what it is a copy of
    let copied = id.rsplit('/').next().and_then(|name| Some(published(name, find(name)?)));
    if let Some(copied) = &copied {
        near.retain(|other| other != copied);
        near.insert(0, copied);
    }
    match near.get(..near.len().min(3)) {
        None | Some([]) => {
            "use a Hub id such as meta-llama/Llama-3.1-8B, a size such as 7b, or a config.json".to_owned()
        }
        Some(near) => format!("perhaps {}", near.join(", ")),
    }
}

/// A llama-shaped architecture of about that many billion parameters; see [`Dimensions::of_size`].
///
/// # Errors
/// A [`ModelError`] where the size is not a number that a shape can be found for.
pub fn architecture_of_size(billions: f64) -> Result<Arc<Architecture>, ModelError> {
    Dimensions::of_size(billions)?.architecture().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_is_of_is_offered_first() {
        for (asked, first) in
            [("unsloth/Llama-3.2-1B", "meta-llama/Llama-3.2-1B"), ("somebody/Qwen3-8B", "Qwen/Qwen3-8B")]
        {
            let error = architecture(asked).expect_err("it is nowhere").to_string();
            assert!(error.contains(&format!("perhaps {first}")), "{error}");
        }
    }
}
