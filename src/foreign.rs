//! What the packages for Python and JavaScript call (`packages/`): text in, text out, so that both give the same answers by
//! construction. A scenario is JSON with the keys of a scenario file.

use crate::export::{self, Answer};
use crate::import;
use crate::plan;
use crate::scenario::Scenario;
use crate::share;

/// What a scenario needs: the JSON of `headroom estimate --json`.
///
/// ```
/// let answer = headroom::foreign::estimate(r#"{"model": "gpt2", "method": "full", "gpu": "rtx-4090", "seq-length": 512}"#)?;
/// assert!(answer.contains(r#""verdict":"fits""#), "{answer}");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A sentence on what is wrong with the text. A scenario that is understood and has no answer is none: its `issues` say why.
pub fn estimate(scenario: &str) -> Result<String, String> {
    Ok(export::json(&Answer::of(read(scenario)?)).to_string())
}

/// What to change so that a scenario fits, and what the room is good for where it does: the JSON of `headroom levers --json`.
///
/// # Errors
/// A sentence on what is wrong with the text, or on why the scenario has no answer.
pub fn levers(scenario: &str) -> Result<String, String> {
    let found = plan::levers(&read(scenario)?).map_err(|issue| issue.to_string())?;
    Ok(export::levers_json(&found).to_string())
}

/// What is understood of a configuration of another project, read over a scenario: the JSON of `headroom import --json` for one
/// file, with the `scenario` and its `link`.
///
/// ```
/// let read = headroom::foreign::read_configuration("base_model: gpt2\nmicro_batch_size: 3\n", r#"{"gpu": "t4"}"#)?;
/// assert!(read.contains(r#""format":"axolotl""#) && read.contains(r#""batch-size":3"#), "{read}");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A sentence on what is wrong with the scenario, or on why the text is no configuration that is known.
pub fn read_configuration(text: &str, over: &str) -> Result<String, String> {
    let understood = import::read(text, &read(over)?).map_err(|not_read| not_read.to_string())?;
    let mut told = export::understood_json(&understood);
    told["link"] = share::encode(std::slice::from_ref(&understood.scenario)).into();
    told["scenario"] = serde_json::json!(understood.scenario);
    Ok(told.to_string())
}

/// What a share link holds: `scenarios`, each with every key, and `notices` on what could not be followed.
pub fn open_link(link: &str) -> String {
    let shared = share::decode(link);
    let notices: Vec<_> = shared.notices.iter().map(ToString::to_string).collect();
    serde_json::json!({ "scenarios": shared.scenarios, "notices": notices }).to_string()
}

fn read(text: &str) -> Result<Scenario, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_a_sentence() {
        for (text, words) in [
            (r#"{"modell": "gpt2"}"#, "there is no key \"modell\""),
            (r#"{"batch-size": "many"}"#, "batch-size"),
            ("m=gpt2", "expected"),
        ] {
            let problem = estimate(text).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
        // understood, and no answer
        let answer = estimate(r#"{"model": "nobody/nothing"}"#).unwrap();
        assert!(answer.contains(r#""severity":"error""#), "{answer}");
        assert!(levers(r#"{"model": "nobody/nothing"}"#).unwrap_err().contains("nobody/nothing"));
    }

    #[test]
    fn a_link_is_opened_as_the_page_opens_it() {
        let opened = open_link("m=gpt2&method=full&b=4&s=none");
        assert!(
            opened.contains(r#""batch-size":4"#) && opened.contains("Sequence length is 2,048"),
            "{opened}"
        );
    }
}
