//! Light, dark, or as the system.

use super::browser;

/// Where the choice is stored; `boot.js` reads it before the first paint.
const KEY: &str = "headroom.theme";

/// What the visitor chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// As the system.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// What was chosen before.
    pub fn stored() -> Theme {
        match browser::stored(KEY).as_deref() {
            Some("light") => Theme::Light,
            Some("dark") => Theme::Dark,
            _ => Theme::System,
        }
    }

    const fn slug(self) -> Option<&'static str> {
        match self {
            Theme::System => None,
            Theme::Light => Some("light"),
            Theme::Dark => Some("dark"),
        }
    }

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Theme::System => "Auto",
            Theme::Light => "Light",
            Theme::Dark => "Dark",
        }
    }

    /// What the button turns to: away from what the system shows, then back.
    pub fn next(self) -> Theme {
        let dark = browser::system_is_dark();
        match (self, dark) {
            (Theme::System, true) => Theme::Light,
            (Theme::System, false) => Theme::Dark,
            (Theme::Light, true) | (Theme::Dark, false) => {
                if dark {
                    Theme::Dark
                } else {
                    Theme::Light
                }
            }
            (Theme::Light, false) | (Theme::Dark, true) => Theme::System,
        }
    }

    /// Shows and stores it.
    pub fn apply(self) {
        browser::mark_root("data-theme", self.slug());
        browser::store(KEY, self.slug());
    }
}
