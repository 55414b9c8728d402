//! A part opened level by level: its modules, the layers of each, the tensors of one of them. What has but one thing inside
//! is that thing.

use serde::{Deserialize, Serialize};

use super::layers::{named, numbers};
use super::{Line, line, what};
use crate::memory::Category;
use crate::scenario::{Scenario, Stack};
use crate::step::{Pass, TensorGroup};
use crate::units::Bytes;

/// A module, layers that are alike, or a kind of tensor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Level {
    /// What it is (`mlp.down_proj`, `layers 0 to 31`, `linear`) and the bytes of all of it, with a tensor's sum and reason and the
    /// sources of all that is inside.
    pub line: Line,
    /// How many layers what is inside stands for: it is told of one of them.
    pub times: u64,
    /// What it is made of, the largest first; nothing in a tensor.
    pub inside: Vec<Level>,
}

/// A part's modules, of tensors that are grouped [by layer](crate::step::Recording::tensors_by_layer): together they are the part.
pub fn zoom(tensors: &[TensorGroup], category: Category, scenario: &Scenario) -> Vec<Level> {
    let own: Vec<&TensorGroup> = tensors.iter().filter(|group| group.category == category).collect();
    let mut levels = Vec::new();
    for groups in own.chunk_by(|one, next| one.module == next.module) {
        let module = groups[0].module;
        let mut own = of_layers(module, groups, scenario.stack);
        if module.is_empty() || own.len() == 1 {
            own.drain(..).for_each(|level| insert(&mut levels, level));
        } else {
            insert(&mut levels, of(module.to_owned(), 1, own));
        }
    }
    levels
}

/// The largest comes first.
fn insert(levels: &mut Vec<Level>, level: Level) {
    let place = levels.partition_point(|other| other.line.bytes >= level.line.bytes);
    levels.insert(place, level);
}

/// Layers by their numbers, and what each of them has.
type Alike = (Vec<u32>, Vec<TensorGroup>);

/// The layers of a module, those that are alike together; where that is all there is, it bears the module's name.
fn of_layers(module: &str, groups: &[&TensorGroup], stack: Stack) -> Vec<Level> {
    let mut layers: Vec<Alike> = Vec::new();
    for group in groups {
        let group = (*group).clone();
        let bare = TensorGroup { layer: 0, ..group.clone() };
        match layers.iter_mut().find(|(layers, _)| layers[0] == group.layer) {
            Some((_, groups)) => groups.push(bare),
            None => layers.push((vec![group.layer], vec![bare])),
        }
    }
    let mut alike: Vec<Alike> = Vec::new();
    for (layer, groups) in layers {
        match alike.iter_mut().find(|(layers, others)| layer[0] > 0 && layers[0] > 0 && *others == groups) {
            Some((layers, _)) => {
                let place = layers.partition_point(|other| *other < layer[0]);
                layers.insert(place, layer[0]);
            }
            None => alike.push((layer, groups)),
        }
    }
    let shown = if alike.len() == 1 { module } else { "" };
    let mut levels = Vec::new();
    for (layers, groups) in alike {
        let (times, at) = (layers.len() as u64, numbers(&layers));
        let tensors = groups.iter().map(|group| leaf(group, stack));
        if let [group] = &groups[..] {
            let all = TensorGroup { count: group.count.saturating_mul(times), ..group.clone() };
            let mut level = leaf(&all, stack);
            let operation = what(shown, group.what.name, group.pass == Pass::Recomputation);
            level.line.what = named(operation, at);
            levels.push(level);
        } else if module.is_empty() && at.is_empty() {
            // operations outside of modules and layers have nothing in common
            levels.extend(tensors);
        } else {
            let name = if module.is_empty() { "outside of modules" } else { shown };
            levels.push(of(named(name.to_owned(), at), times, tensors.collect()));
        }
    }
    levels
}

/// So many times what is inside.
fn of(what: String, times: u64, unsorted: Vec<Level>) -> Level {
    let mut inside = Vec::new();
    unsorted.into_iter().for_each(|level| insert(&mut inside, level));
    let one = inside.iter().map(|level| level.line.bytes.0).fold(0, u64::saturating_add);
    let mut source = String::new();
    for own in inside.iter().flat_map(|level| level.line.source.split("; ")) {
        if !source.contains(own) {
            source += if source.is_empty() { "" } else { "; " };
            source += own;
        }
    }
    let category = inside[0].line.category;
    let bytes = Bytes(one.saturating_mul(times));
    let line = Line { category, what, formula: String::new(), bytes, why: String::new(), source };
    Level { line, times, inside }
}

/// The tensors of a group, by their operation.
fn leaf(group: &TensorGroup, stack: Stack) -> Level {
    let bare = TensorGroup { module: "", ..group.clone() };
    Level { line: line(&bare, stack), times: 1, inside: Vec::new() }
}
