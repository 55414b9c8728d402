//! What a bar of memory is made of: the categories inside PyTorch's allocator, and the driver's share outside it.

use crate::memory::{Category, Memory};
use crate::units::Bytes;

/// One part of what a card must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Tensors of a category.
    Tensors(Category),
    /// The CUDA context.
    Context,
}

impl Part {
    /// Every part, in the order of charts and tables everywhere.
    pub fn all() -> impl Iterator<Item = Part> {
        Category::ALL.into_iter().map(Part::Tensors).chain([Part::Context])
    }

    /// Which of them it is, from 0.
    pub fn place(self) -> usize {
        Part::all().position(|other| other == self).unwrap_or_default()
    }

    /// The part that an element of these classes is of: `part part-weights faded`.
    pub fn of_class(classes: &str) -> Option<Part> {
        Part::all().find(|part| classes.split_ascii_whitespace().any(|class| class == part.class()))
    }

    /// The category whose tensors it is; the driver's share has none.
    pub const fn category(self) -> Option<Category> {
        match self {
            Part::Tensors(category) => Some(category),
            Part::Context => None,
        }
    }

    /// The class that colours it.
    pub fn class(self) -> String {
        format!("part-{}", self.slug())
    }

    /// Its name in classes and ids.
    pub const fn slug(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.slug(),
            Part::Context => "context",
        }
    }

    /// Its name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.label(),
            Part::Context => "Driver context",
        }
    }

    /// Why it is there.
    pub const fn help(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.help(),
            Part::Context => {
                "What the driver takes for the process before the first tensor, on NVIDIA's cards the CUDA context and the \
                 kernels. It lies outside PyTorch's allocator."
            }
        }
    }

    /// Its bytes at the peak.
    pub fn at_peak(self, memory: &Memory) -> Bytes {
        match self {
            Part::Tensors(category) => memory.peak().1.parts.get(category),
            Part::Context => memory.context,
        }
    }
}
