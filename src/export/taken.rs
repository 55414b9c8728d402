//! What a written file says of the memory that it takes, in a comment.

use crate::plan::Answer;
use crate::scenario::Scenario;
use crate::share;

/// What the run needs of its card, of each where it has several, and how to ask for more: a line of a comment.
pub(super) fn taken(scenario: &Scenario) -> String {
    // a link has no quotes, line breaks or backslashes: they are escaped in it
    let link = share::encode(std::slice::from_ref(scenario));
    let of_card = Answer::of_tensors(scenario.clone()).fit().zip(scenario.gpu().ok());
    let told = of_card.map(|(fit, gpu)| {
        let fits = if fit.fits() { "" } else { ": it does not fit" };
        format!("{} by its tensors, of {} ({}){fits}; ", fit.needed, fit.capacity, gpu.name)
    });
    format!("# What it takes of a GPU: {}headroom estimate '{link}'\n", told.unwrap_or_default())
}
