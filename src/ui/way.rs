//! The ways to bring a model of one's own, and what the page knows of the dialog in which it is brought.

use std::sync::Arc;

use leptos::prelude::*;

use super::browser;
use super::hub;
use crate::import::Understood;
use crate::issue::Issue;

/// How a model is brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By its id on the Hub.
    Hub,
    /// By the text of its `config.json`.
    File,
    /// By its dimensions.
    Dimensions,
    /// With all settings, as a configuration of another project.
    Configuration,
}

impl Way {
    /// All, in the order in which they are offered.
    pub const ALL: [Way; 4] = [Way::Hub, Way::File, Way::Dimensions, Way::Configuration];

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Way::Hub => "From the Hub",
            Way::File => "config.json",
            Way::Dimensions => "Dimensions",
            Way::Configuration => "Configuration",
        }
    }

    /// The id of the control that its part begins with.
    pub const fn first_control(self) -> &'static str {
        match self {
            Way::Hub => "own-id",
            Way::File => "own-config",
            Way::Dimensions => "own-hidden",
            Way::Configuration => "own-settings",
        }
    }
}

/// The dialog: what of it is open, and what was typed into it.
#[derive(Clone, Copy)]
pub struct Own {
    /// Whether it is there at all.
    pub drawn: RwSignal<bool>,
    /// Whether it is open.
    pub open: RwSignal<bool>,
    /// Which of its parts is shown, by its place in [`Way::ALL`].
    pub way: RwSignal<usize>,
    /// The id on the Hub.
    pub id: RwSignal<String>,
    /// What the model is to be called; empty for a name by its kind.
    pub name: RwSignal<String>,
    /// What was understood of the configuration that was read last.
    pub read: RwSignal<Option<Arc<Understood>>>,
    /// What was wrong with a file that was handed over or an id that was asked for.
    pub problem: RwSignal<Vec<Issue>>,
}

impl Own {
    /// Not asked for yet.
    pub fn new() -> Own {
        Own {
            drawn: RwSignal::new(false),
            open: RwSignal::new(false),
            way: RwSignal::new(0),
            id: RwSignal::new(String::new()),
            name: RwSignal::new(String::new()),
            read: RwSignal::new(None),
            problem: RwSignal::new(Vec::new()),
        }
    }

    /// Opens the dialog as it was left, or at some part of it.
    pub fn show(self, way: Option<Way>) {
        if let Some(way) = way {
            self.turn(way);
        }
        // Drawn again, it would have forgotten everything.
        if !self.drawn.get_untracked() {
            self.drawn.set(true);
        }
        self.open.set(true);
    }

    /// Shows one of the parts; what was wrong in another is said no longer.
    pub fn turn(self, way: Way) {
        if way as usize != self.way.get_untracked() {
            self.problem.set(Vec::new());
        }
        self.way.set(way as usize);
    }

    /// Goes on with the text of the file, under the name that was asked for.
    pub fn paste_instead(self) {
        if let Some(id) = self.id.with_untracked(|typed| hub::id(typed)) {
            self.name.set(id);
        }
        self.problem.set(Vec::new());
        self.turn(Way::File);
        request_animation_frame(|| browser::focus(Way::File.first_control()));
    }

    /// Whether that part is shown.
    pub fn shows(self, way: Way) -> bool {
        self.way.get() == way as usize
    }

    /// Opens the dialog with an id, ready to be asked for.
    pub fn show_id(self, id: &str) {
        self.id.set(id.to_owned());
        self.problem.set(Vec::new());
        self.show(Some(Way::Hub));
    }

    /// Says what is wrong.
    pub fn complain(self, issue: &Issue) {
        self.problem.set(vec![issue.clone()]);
    }

    /// The part that is shown.
    pub fn way(self) -> Way {
        Way::ALL[self.way.get().min(Way::ALL.len() - 1)]
    }
}
