//! The views under the answer, and how a link says which of them is shown.

use crate::share;

/// What stands under the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Where the memory goes.
    #[default]
    Fit,
    /// What happens when.
    Timeline,
    /// What to change, which card, how far.
    Plan,
    /// Scenarios side by side.
    Compare,
    /// How right the answer is.
    Accuracy,
}

impl View {
    /// All of them, in the order of their tabs.
    pub const ALL: [View; 5] = [View::Fit, View::Timeline, View::Plan, View::Compare, View::Accuracy];

    /// Its name in links: frozen.
    pub const fn slug(self) -> &'static str {
        match self {
            View::Fit => "fit",
            View::Timeline => "timeline",
            View::Plan => "plan",
            View::Compare => "compare",
            View::Accuracy => "accuracy",
        }
    }

    /// Its name on its tab.
    pub const fn label(self) -> &'static str {
        match self {
            View::Fit => "Fit",
            View::Timeline => "Timeline",
            View::Plan => "Plan",
            View::Compare => "Compare",
            View::Accuracy => "Accuracy",
        }
    }

    /// The view that a link opens; the first where it names none, as links did before there were views.
    pub fn of(link: &str) -> View {
        let said = share::said(link, "view").unwrap_or_default();
        View::ALL.into_iter().find(|view| view.slug() == said).unwrap_or_default()
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
        for view in View::ALL {
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
