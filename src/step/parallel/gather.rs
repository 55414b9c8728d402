//! How ZeRO-3 gathers parameters: what the module that runs needs, then, once a pass has been recorded, what comes next.
//!
//! Source: deepspeed/runtime/zero/partitioned_param_coordinator.py (`PartitionedParameterCoordinator`) of DeepSpeed 0.19.8.

mod handles;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::scenario::{Cluster, CpuOffload};
use crate::step::heap::{Heap, NOTHING, StorageId};
use crate::step::parallel::Module;
use crate::step::params::{ParamId, Params};
pub(super) use handles::{FLAT_OUTPUT, GATHERED};

/// How many elements lie between a use of a parameter and the next one that it is kept for (`stage3_max_reuse_distance`).
const REUSE_DISTANCE: u64 = 1_000_000_000;

/// Gathers a model's parameters and lets go of them.
pub(super) struct Gatherer {
    cluster: Cluster,
    world: u64,
    /// `stage3_prefetch_bucket_size`, `stage3_max_live_parameters` and `stage3_param_persistence_threshold`, in elements.
    prefetch: u64,
    live: i64,
    persistence: u64,
    stream: Stream,
    /// Whether partitions are in the CPU's memory.
    fetches: bool,
    params: Vec<Partitioned>,
    /// The number of the first parameter of the model.
    first: ParamId,
    /// Gathers whose parameters were not all needed yet.
    handles: Vec<Handle>,
    /// Elements that are gathered, as it counts them: from nothing in every pass.
    available: i64,
    trace: Trace,
    /// By step: which parameters of a module were kept that ran then. It is asked once and remembered, also where another pass is
    /// followed later (`lru_cache` of `__params_to_release`).
    kept: Vec<Vec<(Module, Vec<bool>)>>,
    /// The modules that ran forward while passes were recorded, each with its parameters and how many were running, itself among them.
    entered: Vec<(Module, Vec<usize>, usize)>,
    /// The modules whose forward runs, each inside the one before it (`FWD_MODULE_STACK`).
    forward: Vec<Module>,
    /// Parameters that a module's code reads though they are another module's (`register_external_parameter`).
    external: Vec<(Module, usize)>,
    /// Parameters that are no module's for the moment (`torch.nn.utils.parametrize`): the modules that it makes in their place have no hooks.
    moved: BTreeSet<usize>,
    /// Whether any ever was one.
    moves: bool,
    /// Whether what was fetched of a recorded pass is not what the module that runs needs: DeepSpeed stops ("tracing error at step").
    lost: bool,
    /// The modules that ran once more without gradients before their backward, whose end is seen by none then (`ds_grads_remaining`, which
    /// every forward pass begins anew).
    unseen: BTreeSet<Module>,
    /// The modules whose backward runs, each with what their recomputation gathered of frozen parameters.
    running: Vec<(Module, Vec<usize>)>,
}

/// A parameter of which every rank keeps a partition.
struct Partitioned {
    numel: u64,
    /// Elements of a partition.
    part: u64,
    dtype: Dtype,
    trained: bool,
    /// Whether it is kept whole where it may be.
    persists: bool,
    status: Status,
    /// The whole parameter.
    storage: StorageId,
    /// The modules that use it.
    active: Vec<Module>,
    /// The step at which it is used for the last time of those that it was fetched for.
    fetched_for: i64,
    /// The steps of the recorded pass that use it.
    uses: Vec<u32>,
    /// Whether DeepSpeed numbered it after the weights that it divided as they were read: an adapter's.
    late: bool,
    /// Whether it is in a module that is gathered whole. Such a one looks for its next use in all that is inside each module, others in
    /// a module's own parameters, of which it has none (`iter_params(module, recurse=z3_leaf_module(submodule_to_release))`).
    in_leaf: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Partitioned,
    /// It is being gathered, with that handle.
    InFlight(usize),
    Available,
}

/// A gather on its way.
struct Handle {
    /// What it gathers in: of each element type one tensor.
    outputs: Vec<StorageId>,
    /// Its parameters, until they are copied out.
    params: Vec<usize>,
    /// How many of its parameters were not waited for.
    left: usize,
}

/// The steps of a pass: a module that runs forward, once more, or backward is one.
#[derive(Default)]
struct Trace {
    mode: Mode,
    /// The module of each step.
    steps: Vec<Module>,
    /// Elements that all steps before each use, and those that are inside their modules.
    before: Vec<[u64; 2]>,
    /// Parameters in the order of their use, each with the step.
    order: Vec<(usize, i64)>,
    /// Those that are still to be fetched.
    queue: VecDeque<(usize, i64)>,
    /// The step that runs.
    step: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    /// No pass has begun, or one went another way than the one that was recorded.
    #[default]
    Invalid,
    /// The pass is being recorded.
    Record,
    /// What comes next is known.
    Complete,
}

impl Gatherer {
    /// Before there is a model.
    pub fn new(cluster: Cluster, stream: Stream) -> Gatherer {
        Gatherer {
            cluster,
            world: cluster.gpus,
            prefetch: cluster.deepspeed.prefetch_bucket,
            live: i64::try_from(cluster.deepspeed.live).unwrap_or(i64::MAX),
            persistence: cluster.deepspeed.persistence,
            stream,
            fetches: cluster.cpu == CpuOffload::All,
            params: Vec::new(),
            first: 0,
            handles: Vec::new(),
            available: 0,
            trace: Trace::default(),
            kept: Vec::new(),
            entered: Vec::new(),
            forward: Vec::new(),
            external: Vec::new(),
            moved: BTreeSet::new(),
            moves: false,
            lost: false,
            unseen: BTreeSet::new(),
            running: Vec::new(),
        }
    }

    /// One of the same settings for another model, whose engine has a stream of its own.
    pub fn another(&self) -> Gatherer {
        let stream = if self.stream == Stream::Gathers { Stream::OtherGathers } else { self.stream };
        Gatherer::new(self.cluster, stream)
    }

    /// Takes the parameters of a model, whose weights were divided as they were read or all at once.
    pub fn wrap(&mut self, params: &Params, own: &Range<usize>, divides_read: bool) {
        self.first = own.start as ParamId;
        let partitioned = params.of(own).iter().map(|param| Partitioned {
            numel: param.numel,
            part: param.kept.numel,
            dtype: param.kept.dtype,
            trained: param.trainable,
            late: divides_read && param.trainable,
            persists: param.numel <= self.persistence,
            status: Status::Partitioned,
            storage: NOTHING,
            active: Vec::new(),
            fetched_for: i64::MIN,
            uses: Vec::new(),
            in_leaf: false,
        });
        self.params = partitioned.collect();
    }

    fn index(&self, id: ParamId) -> Option<usize> {
        id.checked_sub(self.first).map(|index| index as usize).filter(|index| *index < self.params.len())
    }

    /// Whether a parameter is there whole; none of other models'.
    pub fn is_there(&self, id: ParamId) -> Option<bool> {
        Some(self.params[self.index(id)?].status == Status::Available)
    }

    /// The storage of a whole parameter, where one was made for it and is there; none of other models'.
    pub fn storage(&self, id: ParamId) -> Option<StorageId> {
        let param = &self.params[self.index(id)?];
        Some(if param.status == Status::Available { param.storage } else { NOTHING })
    }

    /// Whether what was fetched of a recorded pass is not what a module needed.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a parameter is in a module that is gathered whole.
    pub fn is_in_leaf(&self, id: ParamId) -> bool {
        self.index(id).is_some_and(|index| self.params[index].in_leaf)
    }

    /// The parameters of a module: its own, then those that it reads of others.
    fn own(&self, module: Module) -> Vec<usize> {
        if let Some([first, last]) = module.whole() {
            return (first..=last).filter_map(|id| self.index(id)).collect();
        }
        let own = module.own().into_iter().flatten().filter_map(|id| self.index(id));
        let own = own.filter(|index| !self.moved.contains(index));
        let read = self.external.iter().filter(|(reader, _)| *reader == module).map(|(_, read)| *read);
        own.chain(read).collect()
    }

    /// A module's code reads a parameter of another module (`ZeROOrderedDict.__getitem__`): where it is not there it is gathered, and is a
    /// parameter of the module whose forward runs from then on.
    pub fn read(&mut self, heap: &mut Heap, id: ParamId) {
        let Some(index) = self.index(id) else { return };
        if self.params[index].status != Status::Partitioned {
            return;
        }
        if let Some(module) = self.forward.last() {
            self.external.push((*module, index));
        }
        self.gather_alone(heap, index);
    }

    /// A parameter is taken out of its module, or put back.
    pub fn parametrize(&mut self, id: ParamId, begins: bool) {
        let Some(index) = self.index(id) else { return };
        if begins {
            self.moves = true;
            self.moved.insert(index);
        } else {
            self.moved.remove(&index);
        }
    }

    /// Waits for what is on its way, in the order in which it was asked for, and lets go of it (`_clean_inflight_param_registry`).
    fn land(&mut self, heap: &mut Heap) {
        let mut underway: Vec<(usize, usize)> = Vec::new();
        for (index, param) in self.params.iter().enumerate() {
            if let Status::InFlight(handle) = param.status {
                underway.push((handle, index));
            }
        }
        underway.sort_unstable();
        for (_, index) in underway {
            self.wait(heap, index);
            self.let_go(heap, index);
        }
    }

    /// `trace_prologue`: a pass that goes another way than the one that was recorded is followed by its trace no longer.
    fn compare(&mut self, heap: &mut Heap, module: Module) {
        if self.trace.mode != Mode::Complete || self.trace.steps.get(self.trace.step) == Some(&module) {
            return;
        }
        self.trace = Trace { step: self.trace.step, ..Trace::default() };
        for param in &mut self.params {
            param.fetched_for = i64::MIN;
            param.uses.clear();
        }
        self.land(heap);
    }

    /// A forward pass begins (`reset_step`): the one before it was recorded, or nothing was.
    pub fn begin(&mut self, heap: &mut Heap) {
        self.land(heap);
        self.forward.clear();
        match self.trace.mode {
            Mode::Invalid => self.trace.mode = Mode::Record,
            Mode::Record => {
                self.trace.mode = Mode::Complete;
                self.learn();
            }
            Mode::Complete => {}
        }
        self.trace.queue = self.trace.order.iter().copied().collect();
        self.trace.step = 0;
        self.available = 0;
        self.params.iter_mut().for_each(|param| param.fetched_for = i64::MIN);
    }

    /// The recorded pass as an order of parameters (`construct_parameter_trace_from_module_trace`).
    fn learn(&mut self) {
        let inside = self.inside();
        let mut before = [0u64; 2];
        for step in 0..self.trace.steps.len() {
            self.trace.before.push(before);
            let module = self.trace.steps[step];
            let mut own = self.own(module);
            own.sort_unstable();
            for index in own {
                self.trace.order.push((index, step as i64));
                if module.whole().is_none() {
                    self.params[index].uses.push(step as u32);
                    before[0] = before[0].saturating_add(self.params[index].numel);
                }
            }
            for index in inside.get(&module).into_iter().flatten() {
                let param = &mut self.params[*index];
                if param.in_leaf {
                    param.uses.push(step as u32);
                }
                before[1] = before[1].saturating_add(param.numel);
            }
        }
        self.trace.before.push(before);
    }

    /// What is inside each module, where any is gathered whole.
    fn inside(&self) -> BTreeMap<Module, BTreeSet<usize>> {
        let mut inside = BTreeMap::new();
        if !self.params.iter().any(|param| param.in_leaf) {
            return inside;
        }
        let mut running = Vec::new();
        for (module, own, depth) in &self.entered {
            running.truncate(depth.saturating_sub(1));
            running.push(*module);
            for around in &running {
                inside.entry(*around).or_insert_with(BTreeSet::new).extend(own);
            }
        }
        inside
    }

    /// A module runs in forward, with gradients or without.
    pub fn expect_backward(&mut self, module: Module, with_gradients: bool) {
        if with_gradients {
            self.unseen.remove(&module);
        } else {
            self.unseen.insert(module);
        }
    }

    /// Whether the end of a module's backward is seen.
    pub fn sees_backward(&self, module: Module) -> bool {
        !self.unseen.contains(&module)
    }

    /// `fetch_sub_module`: gathers what a module needs, then what comes next.
    pub fn fetch(&mut self, heap: &mut Heap, module: Module, backward: bool) {
        self.compare(heap, module);
        let own = self.own(module);
        if self.trace.mode == Mode::Record {
            self.trace.steps.push(module);
        }
        if !backward {
            self.forward.push(module);
        }
        // a recomputation that stops early does not leave its modules
        if self.trace.mode == Mode::Record && !backward && !heap.in_backward {
            self.entered.push((module, own.clone(), self.forward.len()));
        }
        if module.whole().is_some() {
            own.iter().for_each(|index| self.params[*index].in_leaf = true);
        }
        let recomputing = !backward && heap.in_backward;
        if backward && !self.running.iter().any(|(running, _)| *running == module) {
            self.running.push((module, Vec::new()));
        }
        let missing =
            |gatherer: &Gatherer, index: &usize| gatherer.params[*index].status == Status::Partitioned;
        let needed: Vec<usize> = own.iter().copied().filter(|index| missing(self, index)).collect();
        self.gather(heap, needed);
        for index in own.iter().copied() {
            if !self.params[index].active.contains(&module) {
                self.params[index].active.push(module);
            }
            if recomputing
                && !self.params[index].trained
                && let Some((running, recomputed)) = self.running.last_mut()
            {
                // `update_recompute_parameters`
                recomputed.push(index);
                self.params[index].active.push(*running);
            }
            if let Status::InFlight(_) = self.params[index].status {
                self.wait(heap, index);
            }
        }
        if self.trace.mode == Mode::Complete {
            self.prefetch(heap, &own);
        }
        self.trace.step += 1;
    }

    /// What is needed now leaves the queue; behind it, so many elements are gathered ahead.
    fn prefetch(&mut self, heap: &mut Heap, own: &[usize]) {
        let step = self.trace.step as i64;
        let needed: BTreeSet<usize> =
            own.iter().copied().filter(|index| self.params[*index].fetched_for < step).collect();
        let mut passed = BTreeSet::new();
        while passed.len() < needed.len() {
            let Some((index, used)) = self.trace.queue.pop_front() else { break };
            self.params[index].fetched_for = used;
            passed.insert(index);
        }
        self.lost |= self.moves && passed != needed;
        let room =
            self.live.saturating_sub(self.available).min(i64::try_from(self.prefetch).unwrap_or(i64::MAX));
        let (mut ahead, mut numel) = (BTreeSet::new(), 0i64);
        while numel < room {
            let Some((index, used)) = self.trace.queue.pop_front() else { break };
            let param = &mut self.params[index];
            param.fetched_for = param.fetched_for.max(used);
            if param.status == Status::Partitioned && ahead.insert(index) {
                numel = numel.saturating_add(i64::try_from(param.numel).unwrap_or(i64::MAX));
            }
        }
        self.gather(heap, ahead.into_iter().collect());
    }

    /// `release_sub_module`: what a module used goes, unless another module uses it or it is used again soon.
    pub fn release(&mut self, heap: &mut Heap, module: Module, backward: bool) {
        let own = self.own(module);
        if !backward {
            self.forward.pop();
        }
        let kept = match self.trace.mode {
            Mode::Complete => self.kept_of(module, &own),
            Mode::Invalid | Mode::Record => vec![false; own.len()],
        };
        for (index, is_kept) in own.into_iter().zip(kept) {
            self.params[index].active.retain(|active| *active != module);
            if !is_kept {
                self.let_go(heap, index);
            }
        }
        if backward && let Some(at) = self.running.iter().position(|(running, _)| *running == module) {
            for index in self.running.remove(at).1 {
                self.params[index].active.retain(|active| *active != module);
                if !self.params[index].persists {
                    self.let_go(heap, index);
                }
            }
        }
    }

    /// `__params_to_release`, of a recorded pass: which of a module's parameters are kept.
    fn kept_of(&mut self, module: Module, own: &[usize]) -> Vec<bool> {
        let step = self.trace.step;
        if let Some((_, kept)) = self.kept.get(step).and_then(|at| at.iter().find(|(own, _)| *own == module))
        {
            return kept.clone();
        }
        let kept: Vec<bool> = own.iter().map(|index| self.is_used_soon(*index)).collect();
        if self.kept.len() <= step {
            self.kept.resize_with(step + 1, Vec::new);
        }
        self.kept[step].push((module, kept.clone()));
        kept
    }

    fn is_used_soon(&self, index: usize) -> bool {
        let (param, step) = (&self.params[index], self.trace.step);
        if param.persists || param.fetched_for > step as i64 {
            return true;
        }
        let next = param.uses.partition_point(|used| (*used as usize) < step);
        let before =
            |step: usize| self.trace.before.get(step).map_or(u64::MAX, |all| all[usize::from(param.in_leaf)]);
        let distance = |next: &u32| before(*next as usize).saturating_sub(before(step));
        param.uses.get(next).is_some_and(|next| distance(next) < REUSE_DISTANCE)
    }

    /// `__release_param`.
    fn let_go(&mut self, heap: &mut Heap, index: usize) {
        let param = &mut self.params[index];
        if param.status == Status::Available && param.active.is_empty() {
            param.status = Status::Partitioned;
            heap.release(std::mem::replace(&mut param.storage, NOTHING));
            self.available = self.available.saturating_sub(i64::try_from(param.numel).unwrap_or(i64::MAX));
        }
    }

    /// `release_backward_leftovers`: modules whose backward ended unseen, as their inputs need no gradient.
    pub fn release_leftovers(&mut self, heap: &mut Heap) {
        while let Some((module, recomputed)) = self.running.pop() {
            let own = self.own(module);
            for index in own.into_iter().chain(recomputed) {
                self.params[index].active.retain(|active| *active != module);
                if !self.params[index].persists {
                    self.let_go(heap, index);
                }
            }
        }
    }

    /// `release_and_reset_all`.
    pub fn release_all(&mut self, heap: &mut Heap) {
        for index in 0..self.params.len() {
            self.wait(heap, index);
            self.params[index].active.clear();
            self.let_go(heap, index);
        }
    }

    /// Gathers every parameter for a moment, one after the other (`GatheredParameters` of each module). Meanwhile none is kept whole
    /// (`checkpoint_event_prologue`).
    pub fn gather_one_by_one(&mut self, heap: &mut Heap) {
        self.release_all(heap);
        for index in 0..self.params.len() {
            self.gather_alone(heap, index);
            self.let_go(heap, index);
        }
        self.gather_persistent(heap);
    }

    /// Gathers the parameters that are kept whole, each by itself.
    pub fn gather_persistent(&mut self, heap: &mut Heap) {
        for index in 0..self.params.len() {
            let Partitioned { persists, status, .. } = &self.params[index];
            if *persists && *status == Status::Partitioned {
                self.gather_alone(heap, index);
            }
        }
    }
}
