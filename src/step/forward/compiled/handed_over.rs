//! In which order the gradients of a compiled layer reach its parameters.

use super::draft::{ARGUMENTS, HIDDEN};

/// The parameters among a graph's arguments in the order in which autograd's engine gives them their gradients.
///
/// All that a function's gradients go to is put into the engine's queue first, argument by argument (torch/csrc/autograd/engine.cpp
/// `Engine::evaluate_function`). The queue is a heap (`std::priority_queue`): all parameters come before what the layer's input was
/// computed by, and are as urgent; which of these comes first is how libstdc++ moves a heap's elements.
pub(super) fn handed_over(gradients: &[Option<usize>; ARGUMENTS]) -> Vec<usize> {
    let mut order =
        all_handed_over((0..ARGUMENTS).filter(|argument| gradients[*argument].is_some()), Some(HIDDEN));
    order.retain(|argument| *argument != HIDDEN);
    order
}

/// The same of arguments of which one at most is no parameter.
pub(super) fn all_handed_over(arguments: impl Iterator<Item = usize>, other: Option<usize>) -> Vec<usize> {
    let is_less_urgent = |one: usize, than: usize| Some(one) == other && Some(than) != other;
    let mut heap: Vec<usize> = Vec::new();
    for argument in arguments {
        heap.push(argument);
        let last = heap.len() - 1;
        rise(&mut heap, last, &is_less_urgent);
    }
    let mut order = Vec::new();
    while let Some(first) = heap.first().copied() {
        order.push(first);
        pop(&mut heap, &is_less_urgent);
    }
    order
}

/// `std::__push_heap`.
fn rise(heap: &mut [usize], mut at: usize, is_less_urgent: &dyn Fn(usize, usize) -> bool) {
    while at > 0 && is_less_urgent(heap[(at - 1) / 2], heap[at]) {
        heap.swap(at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

/// `std::pop_heap`: the hole that the first leaves sinks to the end of the heap, the more urgent side each time, and the last element
/// rises from there.
fn pop(heap: &mut Vec<usize>, is_less_urgent: &dyn Fn(usize, usize) -> bool) {
    let Some(last) = heap.pop() else { return };
    if heap.is_empty() {
        return;
    }
    let mut hole = 0;
    loop {
        let (left, right) = (2 * hole + 1, 2 * hole + 2);
        let next = match heap.len() {
            length if right < length => {
                if is_less_urgent(heap[right], heap[left]) {
                    left
                } else {
                    right
                }
            }
            length if left < length => left,
            _ => break,
        };
        heap[hole] = heap[next];
        hole = next;
    }
    heap[hole] = last;
    rise(heap, hole, is_less_urgent);
}

#[cfg(test)]
mod tests {
    use super::super::draft::{DOWN, FIRST_NORM, GATE, KEY, OUTPUT, QUERY, SECOND_NORM, UP, VALUE};
    use super::*;

    #[test]
    fn llamas_parameters_have_theirs_as_was_measured() {
        let mut gradients = [None; ARGUMENTS];
        let parameters = [FIRST_NORM, QUERY, SECOND_NORM, DOWN, UP, OUTPUT, KEY, GATE, VALUE];
        for argument in parameters.into_iter().chain([HIDDEN]) {
            gradients[argument] = Some(argument);
        }
        assert_eq!(handed_over(&gradients), parameters);
    }
}
