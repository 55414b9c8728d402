//! Code that needs no gradients, where its memory is planned: buffers have places in a few allocations.
//!
//! Source: torch/_inductor/codegen/memory_planning.py, with `config.memory_pool = "none"`: no pool grows.

use super::code::Line;
use super::graph::{Buffer, Graph, Origin};
use crate::dtype::Dtype;

/// What a place in a pool is a multiple of (torch/_inductor/utils.py `ALIGN_BYTES`).
const PLACE: u64 = 64;

/// Buffers that have the same memory, one after the other (`BufferGroup`).
struct Group {
    bytes: u64,
    /// From when until when there is one of them.
    begin: usize,
    end: usize,
    returned: bool,
    pool: usize,
}

/// A part of a pool (`AllocationTreeNode`).
enum Part {
    Group(usize),
    /// Room that is left.
    Empty(u64),
    /// Parts that are there at different times.
    Turns(Vec<Part>),
    /// Two parts beside each other.
    Beside(Box<[Part; 2]>),
}

/// Gives the buffers of those lines places in pools.
pub(super) fn planned(graph: &mut Graph, lines: Vec<Line>) -> Vec<Line> {
    let (mut groups, of_buffer, times) = grouped(graph, &lines);
    let mut pools: Vec<Part> = Vec::new();
    let length = |group: &Group| group.end - group.begin;
    let (mut returned, mut own): (Vec<usize>, Vec<usize>) =
        (0..groups.len()).partition(|group| groups[*group].returned);
    returned.sort_by_key(|group| (groups[*group].bytes, std::cmp::Reverse(length(&groups[*group]))));
    own.sort_by_key(|group| std::cmp::Reverse((groups[*group].bytes, length(&groups[*group]))));
    for group in returned {
        groups[group].pool = pools.len();
        pools.push(Part::Turns(vec![Part::Group(group)]));
    }
    for group in own {
        let found = pools.iter_mut().position(|pool| pool.place(group, &groups));
        groups[group].pool = found.unwrap_or(pools.len());
        if found.is_none() {
            pools.push(Part::Turns(vec![Part::Group(group)]));
        }
    }
    let first = graph.buffers.len();
    for (number, pool) in pools.iter().enumerate() {
        let bytes = pool.size(&groups);
        graph.buffers.push(Buffer {
            name: format!("pool{number}"),
            numel: bytes,
            storage_size: bytes,
            dtype: Dtype::U8,
            origin: Origin::Pool,
            returned: false,
            of_any_tokens: true,
        });
    }
    let pool_of = |buffer: usize| of_buffer[buffer].map(|group| groups[group].pool);
    let mut last = vec![None; pools.len()];
    for (at, line) in lines.iter().enumerate() {
        if let Line::Free(buffer) = line
            && let Some(pool) = pool_of(*buffer)
        {
            last[pool] = Some(at);
        }
    }
    let mut made = vec![false; pools.len()];
    let mut code = Vec::new();
    for (at, line) in lines.into_iter().enumerate() {
        match line {
            Line::Make(buffer) | Line::Take { made: buffer, .. } if pool_of(buffer).is_some() => {
                if let Some(pool) = pool_of(buffer).filter(|pool| !std::mem::replace(&mut made[*pool], true))
                {
                    code.push(Line::Make(first + pool));
                }
                code.push(Line::Place(buffer));
            }
            Line::Free(buffer) if pool_of(buffer).is_some() => {
                let ends = |pool: &usize| {
                    let end = pools[*pool].ranges(&groups).last().map_or(0, |(_, end)| *end);
                    last[*pool] == Some(at) && end <= times[at]
                };
                code.extend(pool_of(buffer).filter(ends).map(|pool| Line::Free(first + pool)));
            }
            line => code.push(line),
        }
    }
    let returned = (0..of_buffer.len()).filter(|buffer| graph.buffers[*buffer].returned);
    code.extend(returned.filter_map(|made| Some(Line::Take { made, from: first + pool_of(made)? })));
    code
}

/// The groups of some lines' buffers, by buffer its group, and by line its time: each line that makes a buffer has its own, as a comment
/// on what is computed stands before it, and buffers that go at once have one together (`compute_live_ranges`).
fn grouped(graph: &Graph, lines: &[Line]) -> (Vec<Group>, Vec<Option<usize>>, Vec<usize>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut of_buffer = vec![None; graph.buffers.len()];
    let (mut time, mut in_frees) = (0, false);
    let mut times = Vec::with_capacity(lines.len());
    for line in lines {
        match *line {
            Line::Make(made) => {
                time += 1;
                in_frees = false;
                let buffer = &graph.buffers[made];
                of_buffer[made] = Some(groups.len());
                let bytes = buffer.storage_size.saturating_mul(buffer.dtype.bytes());
                groups.push(Group { bytes, begin: time, end: time, returned: buffer.returned, pool: 0 });
            }
            Line::Take { made, from } => {
                time += 1;
                in_frees = false;
                of_buffer[made] = of_buffer[from];
                if let Some(group) = of_buffer[made] {
                    groups[group].returned |= graph.buffers[made].returned;
                }
            }
            // arguments go by lines of another kind
            Line::Free(gone) if graph.buffers[gone].origin == Origin::Argument => {}
            Line::Free(gone) => {
                time += usize::from(!std::mem::replace(&mut in_frees, true));
                if let Some(group) = of_buffer[gone] {
                    groups[group].end = time;
                }
            }
            Line::Run(_) | Line::Place(_) => in_frees = false,
        }
        times.push(time);
    }
    for group in groups.iter_mut().filter(|group| group.returned) {
        group.end = time + 1;
    }
    (groups, of_buffer, times)
}

impl Part {
    /// Gives a group a place, if there is one.
    fn place(&mut self, group: usize, groups: &[Group]) -> bool {
        let room = self.room(groups);
        match self {
            Part::Group(_) | Part::Empty(_) => false,
            Part::Beside(parts) => parts.iter_mut().any(|part| part.place(group, groups)),
            Part::Turns(parts) => {
                let own = &groups[group];
                if own.bytes > room {
                    return false;
                }
                let beside = |part: &Part| {
                    part.ranges(groups).iter().any(|(begin, end)| *begin < own.end && own.begin < *end)
                };
                let mut overlapping = (0..parts.len()).filter(|at| beside(&parts[*at]));
                match (overlapping.next(), overlapping.next()) {
                    (Some(_), Some(_)) => false,
                    (Some(at), None) => parts[at].place(group, groups),
                    (None, _) => {
                        if matches!(parts[..], [Part::Empty(_)]) {
                            parts.clear();
                        }
                        let place = Part::Group(group);
                        parts.push(match room - own.bytes {
                            0 => place,
                            left => Part::Beside(Box::new([
                                Part::Turns(vec![place]),
                                Part::Turns(vec![Part::Empty(left)]),
                            ])),
                        });
                        true
                    }
                }
            }
        }
    }

    /// When there is something in it, in order.
    fn ranges(&self, groups: &[Group]) -> Vec<(usize, usize)> {
        let parts: &[Part] = match self {
            Part::Group(group) => return vec![(groups[*group].begin, groups[*group].end)],
            Part::Empty(_) => return Vec::new(),
            Part::Turns(parts) => parts,
            Part::Beside(parts) => &parts[..],
        };
        let mut all: Vec<(usize, usize)> = parts.iter().flat_map(|part| part.ranges(groups)).collect();
        all.sort_by_key(|(begin, _)| *begin);
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (begin, end) in all {
            match joined.last_mut() {
                Some(last) if last.1 >= begin => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        joined
    }

    /// The bytes that there is room for (`get_size_hint`).
    fn room(&self, groups: &[Group]) -> u64 {
        match self {
            Part::Group(group) => groups[*group].bytes,
            Part::Empty(bytes) => *bytes,
            Part::Turns(parts) => parts.iter().map(|part| part.room(groups)).max().unwrap_or(0),
            Part::Beside(parts) => {
                let [left, right] = parts.each_ref().map(|part| part.room(groups));
                left.next_multiple_of(PLACE).saturating_add(right)
            }
        }
    }

    /// The bytes that are allocated (`get_symbolic_size` of what `finalize` leaves).
    fn size(&self, groups: &[Group]) -> u64 {
        match self {
            Part::Group(group) => groups[*group].bytes,
            Part::Empty(_) => 0,
            Part::Turns(parts) => parts.iter().map(|part| part.size(groups)).max().unwrap_or(0),
            Part::Beside(parts) => {
                let [left, right] = parts.each_ref().map(|part| part.size(groups));
                if parts[1].is_empty() { left } else { left.next_multiple_of(PLACE).saturating_add(right) }
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Part::Empty(_) => true,
            Part::Turns(parts) => matches!(&parts[..], [one] if one.is_empty()),
            Part::Group(_) | Part::Beside(_) => false,
        }
    }
}
