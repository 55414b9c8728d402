//! The compiled part of the npm package: text in, text out. `api.js` makes JavaScript of it.

use headroom::foreign;
use wasm_bindgen::prelude::*;

/// What a scenario needs, as JSON.
#[wasm_bindgen]
pub fn estimate(scenario: &str) -> Result<String, JsError> {
    foreign::estimate(scenario).map_err(|problem| JsError::new(&problem))
}

/// What to change so that a scenario fits, as JSON.
#[wasm_bindgen]
pub fn levers(scenario: &str) -> Result<String, JsError> {
    foreign::levers(scenario).map_err(|problem| JsError::new(&problem))
}

/// What is understood of a configuration of another project, as JSON.
#[wasm_bindgen]
pub fn read_configuration(text: &str, over: &str) -> Result<String, JsError> {
    foreign::read_configuration(text, over).map_err(|problem| JsError::new(&problem))
}

/// The scenarios of a share link, as JSON.
#[wasm_bindgen]
pub fn open_link(link: &str) -> String {
    foreign::open_link(link)
}
