//! The views under the answer, and how a link says which of them is shown.

use crate::scenario::choices::{Choice, choices};
use crate::share;

choices! {
    /// What stands under the answer.
    #[derive(Default)]
    View {
        #[default]
        Fit = "fit", "Fit", "Where the memory goes.";
        Timeline = "timeline", "Timeline", "What happens when.";
        Plan = "plan", "Plan", "What to change, which card, how far.";
        Compare = "compare", "Compare", "Scenarios side by side.";
        Accuracy = "accuracy", "Accuracy", "How right the answer is.";
    }
}

impl View {
    /// The view that a link opens; the first where it names none, as links did before there were views.
    pub fn of(link: &str) -> View {
        let said = share::said(link, share::page::VIEW).unwrap_or_default();
        View::from_slug(&said).unwrap_or_default()
    }

    /// What a link says of it, to be put behind the scenarios.
    pub fn written(self) -> String {
        if self == View::default() { String::new() } else { format!("&view={}", self.slug()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_link_opens_the_view_that_it_names_and_fit_otherwise() {
        let link = share::encode(&[Scenario { batch: 4, ..Scenario::default() }]);
        for &view in View::ALL {
            let link = format!("{link}{}", view.written());
            assert_eq!(View::of(&link), view, "{link}");
            let shared = share::decode(&link);
            assert_eq!((shared.scenarios[0].batch, shared.notices.len()), (4, 0));
        }
        for link in ["", "v=1&b=4", "#v=1&view=nothing", "?view="] {
            assert_eq!(View::of(link), View::Fit, "{link}");
        }
    }
}
