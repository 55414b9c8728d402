//! Megatron-core's schedules: the micro-batches of a step on their way through the stages of a pipeline, as one rank runs them.
//! Forward passes whose backward has not come hold their activations; how many there are differs from stage to stage.
//!
//! Source: megatron/core/pipeline_parallel/schedules.py and p2p_communication.py of Megatron-core 0.16.1. Variables are those of
//! the Python: what one holds goes when it is given something else.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::autograd::Aside;
use super::forward::stacks::megatron::{Share, Shared};
use super::heap::NOTHING;
use super::iteration::Rounds;
use super::line::{Ends, Input, Line, Received, table};
use super::machine::Machine;
use super::tensor::{Tensor, Value};
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::memory::{Category, Phase, Stage};
use crate::step::what::{Source, What};
use crate::work::Group;

const SCHEDULES: Source = Source::At("Megatron-core, megatron/core/pipeline_parallel/schedules.py");

static RECEIVED: What = What::own(
    "received hidden states",
    "what the stage before made of a micro-batch, held until its backward is through",
    SCHEDULES,
);
static RECEIVED_GRADIENT: What =
    What::own("received gradient", "the gradient of what was handed to the next stage", SCHEDULES);

/// A forward pass whose backward has not come.
struct Flight<'a> {
    given: Input<'a>,
    output: Tensor<'a>,
    shared: Shared,
    aside: Aside,
}

impl<'a> Flight<'a> {
    /// `deallocate_output_tensor`: the graph needs no more of an output that was sent than that it was there.
    fn let_output_go(&mut self) {
        self.output =
            Tensor { machine: self.output.machine, value: Value { storage: NOTHING, ..self.output.value } };
    }

    /// Its output, with what that holds once backward is through.
    fn made(&self) -> (Tensor<'a>, Input<'a>) {
        (self.output.clone(), self.given.clone())
    }
}

/// The variables of a schedule: what they hold goes when they are given something else.
#[derive(Default)]
struct Held<'a> {
    input: Input<'a>,
    /// With what it was made of: the leaf that its graph begins with.
    output: Option<(Tensor<'a>, Input<'a>)>,
    output_gradient: Option<Tensor<'a>>,
    input_gradient: Option<Tensor<'a>>,
}

impl<'a> Held<'a> {
    /// `input_tensors.pop(0)` and `output_tensors.pop(0)`.
    fn take_back(&mut self, flight: &Flight<'a>) {
        self.input = flight.given.clone();
        self.output = Some(flight.made());
    }
}

/// A step on its way.
struct Run<'r, 'a> {
    rounds: &'r Rounds<'a>,
    machine: &'a Machine,
    act: u16,
    member: usize,
    batch: Batch,
    line: Line,
    /// What each part was given last (`set_input_tensor`).
    inputs: Vec<Input<'a>>,
    /// The losses of the step (`forward_data_store`).
    losses: Vec<Tensor<'a>>,
    phase: Option<Phase>,
    /// Whether outputs go once they are sent.
    deallocates: bool,
}

impl<'a> Rounds<'a> {
    /// The micro-batches of a step, of which it says how many were run. Parts go on holding what they were given last.
    pub(super) fn schedule(&mut self, act: u16, member: usize, batch: Batch, times: u64) -> u64 {
        let line = self.line(member);
        let mut inputs = std::mem::take(&mut self.last_inputs);
        inputs.resize_with(line.part.times, || None);
        let mut run = Run {
            rounds: self,
            machine: self.machine(),
            act,
            member,
            batch,
            line,
            inputs,
            losses: Vec::new(),
            phase: None,
            deallocates: self.machine().with(|state| state.parallel.deallocates_outputs()),
        };
        run.enter(Stage::Forward);
        let count = line.micro_batches(times);
        if line.interleaved {
            run.interleaved(count)
        } else {
            run.one_forward_one_backward(count)
        }
        run.leave();
        let (inputs, losses) = (run.inputs, run.losses);
        drop(losses);
        self.last_inputs = inputs;
        count as u64
    }
}

impl<'a> Run<'_, 'a> {
    fn enter(&mut self, stage: Stage) {
        self.leave();
        let phase = Phase { act: self.act, stage };
        self.rounds.begin(phase);
        self.phase = Some(phase);
    }

    fn leave(&mut self) {
        if let Some(phase) = self.phase.take() {
            self.rounds.end(phase);
        }
    }

    /// `forward_backward_pipelining_without_interleaving`, and with one stage `forward_backward_no_pipelining`.
    fn one_forward_one_backward(&mut self, count: usize) {
        let Share { is_first, is_last, .. } = self.line.part;
        let warm_up = self.line.warm_up(count);
        let mut flights: VecDeque<Flight<'a>> = VecDeque::with_capacity(warm_up + 1);
        let mut held = Held::default();
        for _ in 0..warm_up {
            held.input = self.receive(!is_first);
            let mut flight = self.forward(0, held.input.clone());
            self.sent(&mut flight, &mut held.output, true);
            flights.push_back(flight);
        }
        if count > warm_up {
            held.input = self.receive(!is_first);
        }
        for number in warm_up..count {
            let mut flight = self.forward(0, held.input.clone());
            held.output = Some(flight.made());
            held.output_gradient = self.receive_gradient(!is_last);
            self.sent(&mut flight, &mut held.output, !is_last);
            flights.push_back(flight);
            let Some(flight) = flights.pop_front() else { return };
            held.take_back(&flight);
            held.input_gradient = self.backward(0, flight, held.output_gradient.clone());
            held.input = if number + 1 == count { None } else { self.receive(!is_first) };
        }
        for flight in flights {
            held.take_back(&flight);
            held.output_gradient = self.receive_gradient(!is_last);
            held.input_gradient = self.backward(0, flight, held.output_gradient.clone());
        }
    }

    /// `forward_backward_pipelining_with_interleaving`, without `overlap_p2p_comm`.
    fn interleaved(&mut self, count: usize) {
        let Line { stages, part, .. } = self.line;
        let Share { times: parts, is_first, is_last, .. } = part;
        let total = count.saturating_mul(parts);
        let warm_up = self.line.warm_up(total);
        let left = total - warm_up;
        let table = table(count, parts, stages);
        let part_of = |number: usize, forward: bool| {
            let part = table.get(number).map_or(0, |(_, part)| *part);
            if forward { part } else { parts - 1 - part }
        };
        let stage = Ends { is_first, is_last, stages, parts };
        let mut inputs: Vec<VecDeque<Input<'a>>> = vec_of(parts);
        let mut flights: Vec<VecDeque<Flight<'a>>> = vec_of(parts);
        let mut gradients: Vec<VecDeque<Option<Tensor<'a>>>> = vec_of(parts);
        let mut done = vec![0; parts];
        let mut held = Held::default();
        let forward = |run: &mut Self,
                       inputs: &[VecDeque<Input<'a>>],
                       flights: &mut [VecDeque<Flight<'a>>],
                       done: &[usize],
                       number: usize| {
            let (micro_batch, part) = table[number];
            let given = inputs[part].get(micro_batch.saturating_sub(done[part])).cloned().flatten();
            let flight = run.forward(part, given);
            let made = (!(is_last && part + 1 == parts)).then(|| flight.made());
            flights[part].push_back(flight);
            made
        };
        inputs[0].push_back(self.receive(!is_first));
        for number in 0..warm_up {
            let next = stage.receives(number, true, &part_of).filter(|_| number + 1 < total);
            held.output = forward(self, &inputs, &mut flights, &done, number);
            held.input = self.receive(next.is_some());
            if number + 1 == warm_up && left > 0 {
                held.output_gradient = self.receive_gradient(!is_last);
                gradients[parts - 1].push_back(held.output_gradient.clone());
            }
            self.sent_by_part(&mut flights[table[number].1], &mut held.output);
            if let Some(next) = next {
                inputs[next].push_back(held.input.clone());
            }
        }
        for number in 0..total {
            let forwards = number < left;
            if forwards {
                held.output = forward(self, &inputs, &mut flights, &done, number + warm_up);
            } else if number == left && warm_up == total {
                gradients[parts - 1].push_back(self.receive_gradient(!is_last));
            }
            let part = part_of(number, false);
            inputs[part].pop_front();
            let Some(flight) = flights[part].pop_front() else { return };
            let given = gradients[part].pop_front().flatten();
            done[part] += 1;
            held.input_gradient = self.backward(part, flight, given).filter(|_| !(is_first && part == 0));
            let next = stage.receives(number + warm_up, true, &part_of).filter(|_| number + 1 < left);
            let before = stage.receives(number, false, &part_of).filter(|_| number + 1 < total);
            held.input = self.receive(next.is_some());
            held.output_gradient = self.receive_gradient(before.is_some());
            if forwards {
                self.sent_by_part(&mut flights[table[number + warm_up].1], &mut held.output);
            }
            if let Some(next) = next {
                inputs[next].push_back(held.input.clone());
            }
            if let Some(before) = before {
                gradients[before].push_back(held.output_gradient.clone());
            }
        }
    }

    /// An output was sent to the next stage: Transformer Engine's layers run as Megatron-LM trains, which lets it go then
    /// (`deallocate_pipeline_outputs`, core_transformer_config_from_args of megatron/training/arguments.py).
    fn sent(&self, flight: &mut Flight<'a>, variable: &mut Option<(Tensor<'a>, Input<'a>)>, sends: bool) {
        if sends && self.deallocates {
            // the variable holds the same tensor
            *variable = None;
            flight.let_output_go();
        }
        *variable = Some(flight.made());
    }

    /// The same of the last output of a part, unless it was the loss.
    fn sent_by_part(
        &self,
        flights: &mut VecDeque<Flight<'a>>,
        variable: &mut Option<(Tensor<'a>, Input<'a>)>,
    ) {
        let sends = variable.is_some();
        if let Some(flight) = flights.back_mut().filter(|_| sends) {
            self.sent(flight, variable, sends);
        }
    }

    /// `forward_step`.
    fn forward(&mut self, number: usize, given: Input<'a>) -> Flight<'a> {
        self.enter(Stage::Forward);
        self.inputs[number] = given.clone();
        self.machine.with(|state| state.category = Category::Activations);
        let pass = self.rounds.pass(self.member, self.batch);
        let tensor = given.as_ref().map(|received| {
            received.tensor.with(|value| value.edge = self.machine.with(|state| state.entry()))
        });
        let made = pass.megatron(number, tensor.as_ref());
        drop(tensor);
        if self.is_end(number) {
            self.losses.push(made.output.detach());
        }
        let params = self.rounds.params(self.member);
        let aside = self.machine.with(|state| state.put_aside(&params));
        Flight { given, output: made.output, shared: made.shared, aside }
    }

    /// `backward_step`: returns the gradient of what the part was given.
    fn backward(
        &mut self,
        number: usize,
        flight: Flight<'a>,
        gradient: Option<Tensor<'a>>,
    ) -> Option<Tensor<'a>> {
        self.enter(Stage::Backward);
        let Flight { given, output, shared, aside } = flight;
        let params = self.rounds.params(self.member);
        self.machine.with(|state| {
            state.keep_stand_ins();
            state.take_up(aside, &params);
            state.category = Category::Temporaries;
        });
        let pass = self.rounds.pass(self.member, self.batch);
        let gradient = if self.is_end(number) { None } else { gradient };
        self.machine.backward_from(&output, gradient.as_ref(), &|layer, input| {
            pass.megatron_again(layer, input, &shared);
        });
        let entered = self.machine.with(|state| state.graph.take_entered());
        let given = given?;
        let value = Value { storage: entered, ..given.tensor.value };
        let own = Tensor { machine: self.machine, value };
        *given.gradient.borrow_mut() = Some(own.clone());
        Some(own)
    }

    /// Whether a part's output is the loss.
    fn is_end(&self, number: usize) -> bool {
        self.line.part.is_last && number + 1 == self.line.part.times
    }

    /// `torch.empty(tensor_shape, …)` for what comes from the stage before.
    fn receive(&mut self, receives: bool) -> Input<'a> {
        receives.then(|| {
            let tensor = self.empty(Category::Activations, &RECEIVED);
            Rc::new(Received { tensor, gradient: RefCell::default() })
        })
    }

    /// The same for the gradient that comes from the next one.
    fn receive_gradient(&mut self, receives: bool) -> Option<Tensor<'a>> {
        receives.then(|| self.empty(Category::Temporaries, &RECEIVED_GRADIENT))
    }

    fn empty(&self, category: Category, what: &'static What) -> Tensor<'a> {
        let tokens = self.batch.tokens() / self.machine.with(|state| state.parallel.shares_tokens());
        let numel = tokens.saturating_mul(self.rounds.hidden(self.member));
        self.machine.tensor(|state| {
            state.module = "";
            let bytes = numel.saturating_mul(Dtype::Bf16.bytes());
            let storage = state.alloc_as(category, bytes, Dtype::Bf16, what);
            // what a stage receives it sends on, one way or the other
            state.send(Group::Stages, bytes);
            let dims = state.by_tokens();
            state.note_dims(storage, dims);
            Value::plain(storage, numel, Dtype::Bf16)
        })
    }
}

fn vec_of<T>(count: usize) -> Vec<VecDeque<T>> {
    (0..count).map(|_| VecDeque::new()).collect()
}
