//! Scaled dot-product attention: which kernel PyTorch picks, and what each keeps and needs.
//!
//! Sources: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (choice), cuda/attention.cu and
//! cuda/attention_backward.cu (flash, memory-efficient, cuDNN), attention.cpp `_scaled_dot_product_attention_math`;
//! transformers 5.17 integrations/sdpa_attention.py and the models' `eager_attention_forward`.

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::AttentionKernel;
use crate::step::autograd::{Grad, INPUTS, Input};
use crate::step::backward::{Op, Results};
use crate::step::device::Device;
use crate::step::heap::NOTHING;
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Layout, Tensor, Value};

/// The kernels of `scaled_dot_product_attention`, and the Python that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Kernel {
    Eager,
    Flash,
    Efficient,
    Cudnn,
    Math,
    /// The package flash-attn.
    Package,
}

/// The shape of an attention's scores, as its kernels need it.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Scores {
    pub kernel: Kernel,
    pub batch: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub sequence: u64,
    pub head_dim: u64,
    /// Elements of a head's value.
    pub value_dim: u64,
    /// Whether the caller passes `enable_gqa`, where there are fewer heads of keys than of queries.
    pub enable_gqa: bool,
    /// How many texts share the row, where the kernel is told where each begins; otherwise 0.
    pub texts: u64,
    /// The mask, where it gets a gradient of the kernel (t5's zeros under checkpointing).
    pub bias: Option<Input>,
}

impl Scores {
    /// Elements of the output.
    pub fn outputs(&self) -> u64 {
        self.rows().saturating_mul(self.value_dim)
    }

    /// Elements of the score matrix.
    pub fn numel(&self) -> u64 {
        self.rows().saturating_mul(self.sequence)
    }

    /// Rows of the score matrix: one per query and head.
    pub fn rows(&self) -> u64 {
        self.batch.saturating_mul(self.heads).saturating_mul(self.sequence)
    }
}

/// What the choice of kernel depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Choice {
    pub wanted: AttentionKernel,
    pub dtype: Dtype,
    pub device: Device,
    pub masked: bool,
    /// Whether the mask's last dimension does not lie one after the other, which no kernel takes.
    pub strided_mask: bool,
    /// Whether queries have more heads than keys as the kernel sees them.
    pub grouped: bool,
    /// Whether the caller passes `enable_gqa` with that.
    pub enable_gqa: bool,
    pub head_dim: u64,
    /// Elements of a head's value.
    pub value_dim: u64,
    pub sequence: u64,
    pub dropout: bool,
    /// Whether a graph is recorded.
    pub recorded: bool,
}

impl Choice {
    /// The kernel that runs.
    pub fn kernel(self) -> Kernel {
        match self.wanted {
            AttentionKernel::Eager => Kernel::Eager,
            AttentionKernel::Flash => self.only(Kernel::Flash),
            AttentionKernel::Efficient => self.only(Kernel::Efficient),
            AttentionKernel::Cudnn => self.only(Kernel::Cudnn),
            AttentionKernel::Math => Kernel::Math,
            AttentionKernel::FlashAttn => Kernel::Package,
            AttentionKernel::Sdpa => {
                let order: &[Kernel] = if (90..=109).contains(&self.device.capability) {
                    &[Kernel::Cudnn, Kernel::Flash, Kernel::Efficient]
                } else {
                    &[Kernel::Flash, Kernel::Efficient]
                };
                order.iter().copied().find(|kernel| self.can_run(*kernel)).unwrap_or(Kernel::Math)
            }
        }
    }

    /// Where the only kernel that is allowed cannot run PyTorch stops; `support::attended` says so of a run that came here.
    fn only(self, kernel: Kernel) -> Kernel {
        if self.can_run(kernel) { kernel } else { Kernel::Math }
    }

    fn can_run(self, kernel: Kernel) -> bool {
        if self.grouped && !self.enable_gqa || self.strided_mask {
            return matches!(kernel, Kernel::Math | Kernel::Eager);
        }
        match kernel {
            // a size that is no multiple of 8 is padded to one
            Kernel::Flash => {
                self.dtype.is_half()
                    && !self.masked
                    && self.device.capability >= 80
                    && self.head_dim <= 256
                    && self.head_dim == self.value_dim
                    && !self.lacks_flash_backward()
            }
            Kernel::Efficient => {
                let alignment = match (self.dtype.is_half(), self.device.capability) {
                    (true, _) => 8,
                    (false, 80..) => 4,
                    (false, _) => 1,
                };
                !self.grouped
                    && self.head_dim.is_multiple_of(alignment)
                    && self.value_dim.is_multiple_of(alignment)
                    && (self.dtype != Dtype::Bf16 || self.device.capability >= 80)
            }
            Kernel::Cudnn => {
                let widest = if (90..=99).contains(&self.device.capability) { 256 } else { 128 };
                let fits = |dim: u64| dim <= widest && dim.is_multiple_of(8);
                self.dtype.is_half()
                    && self.device.capability >= 80
                    && fits(self.head_dim)
                    && fits(self.value_dim)
                    && self.sequence > 1
            }
            Kernel::Math | Kernel::Eager | Kernel::Package => true,
        }
    }

    /// `check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`: where there is little shared memory the flash
    /// kernel has no backward for some wide heads.
    fn lacks_flash_backward(self) -> bool {
        self.recorded
            && matches!(self.device.capability, 86..=89 | 120..=121)
            && (self.head_dim > 224 && self.dropout || (193..=224).contains(&self.head_dim))
    }
}

/// Attention's arguments: queries, keys and values shaped by heads.
pub(in crate::step) struct Arguments<'t, 'm> {
    pub q: &'t Tensor<'m>,
    pub k: &'t Tensor<'m>,
    pub v: &'t Tensor<'m>,
    /// The mask, shared by all heads.
    pub mask: Option<&'t Tensor<'m>>,
    pub causal: bool,
    pub dropout: bool,
}

/// `F.scaled_dot_product_attention` with the chosen kernel: `[batch, heads, sequence, head]`.
pub(in crate::step) fn scaled_dot_product<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    match scores.kernel {
        Kernel::Math | Kernel::Eager => math(scores, given),
        Kernel::Flash | Kernel::Efficient | Kernel::Cudnn | Kernel::Package => fused(scores, given),
    }
}

fn fused<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    let machine = given.q.machine;
    // autocast casts the arguments from the last to the first
    let target = machine.state.borrow().autocast;
    let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
    let mask = float_mask(given.mask, cast);
    let (v, k) = (cast(given.v), cast(given.k));
    let q = cast(given.q);
    let bias = mask.map(|mask| additive_mask(machine, &mask, scores, q.value.dtype));
    let unpadded = scores.outputs();
    let padded = scores.head_dim.div_ceil(FLASH_ALIGNMENT).saturating_mul(FLASH_ALIGNMENT);
    let (scores, [q, k, v]) = if scores.kernel == Kernel::Flash && padded != scores.head_dim {
        let wider = |tensor: Tensor<'m>| {
            tensor.padded_to((tensor.value.numel / scores.head_dim.max(1)).saturating_mul(padded))
        };
        (Scores { head_dim: padded, value_dim: padded, ..scores }, [wider(q), wider(k), wider(v)])
    } else {
        (scores, [q, k, v])
    };
    let mut state = machine.state.borrow_mut();
    let wanting = bias.as_ref().map(|bias| Input::from(&bias.value)).filter(Input::wants);
    let scores = Scores { bias: wanting, ..scores };
    state.graph.scores.push(scores);
    let known = state.graph.scores.len() as u32 - 1;
    let node = state.node(Op::Attention(known), [(&q.value).into(), (&k.value).into(), (&v.value).into()]);
    state.expect_gradient(scores.bias);
    // saved variables are named in alphabetical order: attn_bias, key, query, value; the package's in its own
    let operands = if scores.kernel == Kernel::Package { [&q, &k, &v] } else { [&k, &q, &v] };
    for tensor in bias.iter().chain(operands) {
        state.save_view(node, &tensor.value);
    }
    let seeds = |state: &mut State| [(); 2].map(|()| state.alloc(1, Dtype::I64, "attention (seed)"));
    let mut drawn = [NOTHING; 2];
    if scores.kernel == Kernel::Cudnn {
        drawn = seeds(&mut state);
    }
    if scores.texts > 0 {
        let starts = state.alloc(scores.texts.saturating_add(1), Dtype::I32, "text starts");
        state.save(node, starts);
        state.release(starts);
    }
    // flash and cuDNN lay their output out as the queries are, the memory-efficient kernel token after token
    let layout = if scores.kernel == Kernel::Efficient { Layout::Tokens } else { q.value.layout };
    let output = Value { layout, numel: scores.outputs(), ..q.value };
    let value = state.new_like(&output, q.value.dtype, "attention", node.output(0));
    let rows = match scores.kernel {
        Kernel::Efficient => {
            let padded = scores.sequence.div_ceil(32).saturating_mul(32);
            scores.batch.saturating_mul(scores.heads).saturating_mul(padded)
        }
        _ => scores.rows(),
    };
    // `should_compute_logsumexp`: flash makes it always, the others where there will be a backward
    let recorded =
        state.graph.is_recorded() && [&q, &k, &v].into_iter().any(|tensor| tensor.value.requires_grad());
    let sums = match scores.kernel {
        Kernel::Efficient | Kernel::Cudnn if !recorded => NOTHING,
        Kernel::Flash
        | Kernel::Package
        | Kernel::Efficient
        | Kernel::Cudnn
        | Kernel::Math
        | Kernel::Eager => state.alloc(rows, Dtype::F32, "attention (log-sum-exp)"),
    };
    if scores.kernel == Kernel::Efficient && scores.head_dim > 128 && q.value.dtype.is_half() {
        state.scratch(scores.outputs().saturating_mul(4), "attention (sums of the output)");
    }
    match scores.kernel {
        Kernel::Flash => {
            split_scratch(&mut state, scores, given.dropout);
            drawn = seeds(&mut state);
        }
        Kernel::Package => {
            split_scratch(&mut state, scores, given.dropout || scores.texts > 0);
            drawn[0] = state.alloc(2, Dtype::I64, "attention (seed)");
            state.save_view(node, &value);
        }
        Kernel::Efficient | Kernel::Cudnn | Kernel::Math | Kernel::Eager => {}
    }
    state.save(node, sums);
    if scores.kernel != Kernel::Package {
        state.save_view(node, &value);
    }
    state.release(sums);
    for seed in drawn.into_iter().filter(|seed| *seed != NOTHING) {
        state.save(node, seed);
        state.release(seed);
    }
    drop(state);
    Tensor { machine, value }.slice(unpadded)
}

/// `pad_last_dim<8>` of attention.cpp: the flash kernel's heads are of a multiple of so many elements.
const FLASH_ALIGNMENT: u64 = 8;

/// The mask as autocast hands it over: cast where it is one of numbers.
fn float_mask<'m>(mask: Option<&Tensor<'m>>, cast: impl Fn(&Tensor<'m>) -> Tensor<'m>) -> Option<Tensor<'m>> {
    mask.map(|mask| if mask.value.dtype == Dtype::Bool { mask.clone() } else { cast(mask) })
}

/// Partial results of the flash kernel where it splits keys and values over more blocks than there are queries for.
///
/// Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp `set_params_splitkv`.
fn split_scratch(state: &mut State, scores: Scores, dropout: bool) {
    let splits = if dropout { 1 } else { scores.splits(state.device.multiprocessors * 2) };
    if splits <= 1 {
        return;
    }
    let rows = scores.rows().saturating_mul(splits);
    let width = scores.head_dim.div_ceil(32).saturating_mul(32);
    let sums = state.alloc(rows, Dtype::F32, "attention (partial log-sum-exp)");
    let output = state.alloc(rows.saturating_mul(width), Dtype::F32, "attention (partial output)");
    state.release(output);
    state.release(sums);
}

/// `convert_boolean_attn_mask`: a boolean mask becomes an additive one of the queries' element type, one per sequence of
/// the batch (the boolean one is expanded over the batch without a copy).
fn additive_mask<'m>(machine: &'m Machine, mask: &Tensor<'m>, scores: Scores, dtype: Dtype) -> Tensor<'m> {
    if mask.value.dtype != Dtype::Bool {
        return mask.clone();
    }
    let square = scores.sequence.saturating_mul(scores.sequence);
    let whole = Value { numel: square.saturating_mul(scores.batch), ..mask.value };
    let value = machine.state.borrow_mut().new_like(&whole, dtype, "additive mask", mask.value.edge);
    Tensor { machine, value }
}

/// The reference implementation, operation by operation: ATen/native/transformers/attention.cpp
/// `_scaled_dot_product_attention_math`. autocast casts its arguments and is off inside.
fn math<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    let machine = given.q.machine;
    machine.state.borrow_mut().graph.math |= scores.kernel == Kernel::Math;
    let target = machine.state.borrow_mut().autocast.take();
    let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
    let mask = float_mask(given.mask, cast);
    let (v, k) = (cast(given.v), cast(given.k));
    let q = cast(given.q);
    let given = Arguments { mask: mask.as_ref(), ..*given };
    let output = math_of(scores, &given, [&q, &k, &v]);
    machine.state.borrow_mut().autocast = target;
    output
}

fn math_of<'m>(scores: Scores, given: &Arguments<'_, 'm>, [q, k, v]: [&Tensor<'m>; 3]) -> Tensor<'m> {
    let machine = q.machine;
    let origin = q.value.dtype;
    let mut additive = given.mask.map(|mask| additive_mask(machine, mask, scores, origin));
    // half precision is computed in float32 (`allowFP16BF16ReductionMathSDP` is off)
    let up = |tensor: &Tensor<'m>| tensor.to(Dtype::F32);
    let (q, k, v) = (up(q), up(k), up(v));
    let scaled = q.scale();
    if additive.is_none() && given.causal {
        additive = Some(causal_mask(machine, scores.sequence));
    }
    // `enable_gqa` repeats keys and values, otherwise the products broadcast them
    let groups = scores.heads / scores.kv_heads.max(1);
    let (repeats, broadcasts) = if scores.enable_gqa { (groups, 1) } else { (1, groups) };
    let product = Product { numel: 0, batch: scores.batch, groups: broadcasts, transposed: false };
    let k_all = k.repeat_heads(repeats);
    let v_all = v.repeat_heads(repeats);
    let products = {
        let k_scaled = k_all.scale();
        let product = Product { numel: scores.numel(), transposed: true, ..product };
        let value = machine.state.borrow_mut().matmul(&scaled.value, &k_scaled.value, product);
        Tensor { machine, value }
    };
    // the mask is added in place
    let products = match &additive {
        Some(bias) if bias.value.requires_grad() => {
            let biased = products.biased_in_place(bias);
            drop(products);
            biased
        }
        _ => products,
    };
    let mut weights = products.softmax();
    {
        // `_safe_softmax` looks for rows that are masked throughout
        let mut state = machine.state.borrow_mut();
        let masked = state.alloc(scores.numel(), Dtype::Bool, "masked");
        let rows = state.alloc(scores.rows(), Dtype::Bool, "masked rows");
        state.release(rows);
        state.release(masked);
    }
    drop(products);
    weights = weights.dropout(given.dropout);
    // both are returned in the arguments' type, the weights first
    let returned = weights.to(origin);
    let result = {
        let product = Product { numel: scores.outputs(), ..product };
        let value = machine.state.borrow_mut().matmul(&weights.value, &v_all.value, product);
        Tensor { machine, value }.to(origin)
    };
    drop(weights);
    drop((k_all, v_all));
    drop(additive);
    drop(scaled);
    drop((q, k, v));
    drop(returned);
    result
}

/// The causal mask that `is_causal` makes: ones, tril, then an additive one of float32.
fn causal_mask(machine: &Machine, sequence: u64) -> Tensor<'_> {
    let numel = sequence.saturating_mul(sequence);
    let mut state = machine.state.borrow_mut();
    let ones = state.alloc(numel, Dtype::Bool, "ones");
    let lower = state.alloc(numel, Dtype::Bool, "tril");
    state.release(ones);
    let storage = state.alloc(numel, Dtype::F32, "additive mask");
    state.release(lower);
    drop(state);
    let value = Value::plain(storage, numel, Dtype::F32);
    Tensor { machine, value }
}

impl Machine {
    /// `torch.matmul(a, b)` under the running autocast.
    pub fn product<'m>(
        &'m self,
        a: &Tensor<'m>,
        b: &Tensor<'m>,
        product: Product,
        autocast: Option<Dtype>,
    ) -> Tensor<'m> {
        let b = b.to(autocast.unwrap_or(b.value.dtype));
        let a = a.to(autocast.unwrap_or(a.value.dtype));
        let value = self.state.borrow_mut().matmul(&a.value, &b.value, product);
        Tensor { machine: self, value }
    }

    /// `bias.baddbmm(a, b)` of heads that lie one after the other, under the running autocast.
    pub fn biased_product<'m>(
        &'m self,
        bias: Option<&Tensor<'m>>,
        a: &Tensor<'m>,
        b: &Tensor<'m>,
        numel: u64,
    ) -> Tensor<'m> {
        let target = self.state.borrow().autocast;
        let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
        let (b, a) = (cast(b), cast(a));
        let bias = bias.map(cast);
        let mut state = self.state.borrow_mut();
        let node = state.node(Op::Baddbmm, [Input::NONE, (&a.value).into(), (&b.value).into()]);
        if b.value.requires_grad() {
            state.save_view(node, &a.value);
        }
        if a.value.requires_grad() {
            state.save_view(node, &b.value);
        }
        let storage = state.alloc_product(numel, a.value.dtype, "baddbmm");
        drop(state);
        drop(bias);
        let heads = Value { layout: Layout::Heads, shape: Layout::Heads, ..a.value };
        Tensor { machine: self, value: Value { storage, numel, edge: node.output(0), ..heads } }
    }
}

/// The shape of a batched product.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Product {
    /// Elements of the result.
    pub numel: u64,
    /// Sequences of the batch.
    pub batch: u64,
    /// Heads of the first operand for each of the second.
    pub groups: u64,
    /// Whether the second is a transposed view, as keys are.
    pub transposed: bool,
}

impl State {
    /// Heads as a batch of matrices: operands that lie token after token are copied (unless the batch is one sequence,
    /// where the view needs no copy).
    pub fn dense(&mut self, value: &Value, batch: u64) -> Value {
        if value.layout == Layout::Heads || batch <= 1 {
            self.retain(value.storage);
            return *value;
        }
        let node = self.node(Op::Pass, [value.into(), Input::NONE, Input::NONE]);
        let like = Value { layout: Layout::Heads, ..*value };
        self.new_like(&like, value.dtype, "contiguous", node.output(0))
    }

    /// `torch.matmul` of four-dimensional tensors: a batched product over `batch · heads` matrices.
    pub fn matmul(&mut self, a: &Value, b: &Value, product: Product) -> Value {
        let Product { numel, batch, groups, transposed } = product;
        let a = self.dense(a, batch);
        let b = if groups > 1 {
            let node = self.node(Op::Expand, [b.into(), Input::NONE, Input::NONE]);
            let whole = Value { numel: b.numel.saturating_mul(groups), layout: Layout::Heads, ..*b };
            if batch > 1 {
                self.new_like(&whole, b.dtype, "contiguous", node.output(0))
            } else {
                // one sequence's one head for all: a view will do
                self.retain(b.storage);
                whole.at(node.output(0))
            }
        } else {
            self.dense(b, batch)
        };
        let second = match (transposed, batch > 1) {
            (false, _) => Layout::Heads,
            (true, false) => Layout::Tokens,
            (true, true) => Layout::Columns,
        };
        let node = self.node(Op::Bmm { second }, [(&a).into(), (&b).into(), Input::NONE]);
        if a.requires_grad() {
            let layout = if transposed { Layout::Columns } else { b.layout };
            self.save_view(node, &Value { layout, ..b });
        }
        if b.requires_grad() {
            self.save_view(node, &a);
        }
        let storage = self.alloc_product(numel, a.dtype, "matmul");
        let (dtype, layout, shape) = (a.dtype, Layout::Heads, Layout::Heads);
        let product = Value { layout, shape, ..Value::plain(storage, numel, dtype) }.at(node.output(0));
        let view = self.node(Op::Unbatched { batch }, [(&product).into(), Input::NONE, Input::NONE]);
        self.release(b.storage);
        self.release(a.storage);
        product.at(view.output(0))
    }
}

/// The gradients of queries, keys and values from a fused kernel.
pub(in crate::step) fn backward(state: &mut State, inputs: [Input; INPUTS], scores: u32) -> Results {
    let scores = state.graph.scores[scores as usize];
    let dtype = inputs[0].dtype;
    let [q, k, v] = inputs.map(|input| input.numel);
    let make = |state: &mut State, numel: u64, layout: Layout| {
        let storage = state.alloc(numel, dtype, "attention (gradient)");
        Grad { view: true, ..Grad::new(storage, numel, dtype, layout) }
    };
    // the flash kernel reads its output token after token
    let copies = scores.kernel == Kernel::Flash && inputs[0].layout != Layout::Tokens;
    let output = if copies { state.alloc(q, dtype, "attention (output)") } else { NOTHING };
    let [lq, lk, lv] = inputs.map(|input| input.layout);
    let results = [make(state, q, lq), make(state, k, lk), make(state, v, lv)];
    let biased = scores.bias.map(|bias| (bias, make(state, scores.numel(), Layout::Heads)));
    let accumulator = q.saturating_mul(4);
    match scores.kernel {
        Kernel::Flash | Kernel::Package => {
            let padded = match scores.texts {
                0 => scores.sequence.div_ceil(128).saturating_mul(128),
                texts => scores.sequence.saturating_add(texts.saturating_mul(128)),
            };
            let widest = if scores.kernel == Kernel::Flash { 192 } else { 128 };
            let dims = if scores.head_dim <= widest { 32 } else { 64 };
            let dims = scores.head_dim.div_ceil(dims).saturating_mul(dims);
            let rows = scores.batch.saturating_mul(scores.heads).saturating_mul(padded);
            let delta = state.alloc(rows, Dtype::F32, "attention (delta)");
            let partial = state.alloc(rows.saturating_mul(dims), Dtype::F32, "attention (dq)");
            if scores.heads != scores.kv_heads {
                let expanded =
                    [state.alloc(q, dtype, "attention (dk)"), state.alloc(q, dtype, "attention (dv)")];
                expanded.into_iter().rev().for_each(|storage| state.release(storage));
            }
            state.release(partial);
            state.release(delta);
        }
        Kernel::Efficient => {
            let product =
                if dtype.is_half() { NOTHING } else { state.alloc(scores.outputs(), dtype, "grad · out") };
            let delta = state.alloc(scores.rows(), Dtype::F32, "attention (delta)");
            let delta = if product == NOTHING {
                delta
            } else {
                let transposed = state.alloc(scores.rows(), Dtype::F32, "attention (delta)");
                state.release(delta);
                transposed
            };
            state.release(product);
            let workspace = scores.staged(dtype.is_half(), state.device.capability);
            let workspace =
                state.alloc_as(Category::Temporaries, workspace, Dtype::U8, "attention (workspace)");
            state.release(delta);
            state.release(workspace);
        }
        Kernel::Cudnn => {
            state.scratch(
                accumulator.saturating_add(scores.rows().saturating_mul(4)),
                "attention (workspace)",
            );
        }
        Kernel::Math | Kernel::Eager => {}
    }
    if let Some((bias, mut grad)) = biased {
        if grad.numel > bias.numel {
            let sum = state.alloc(bias.numel, dtype, "sum");
            state.release(grad.storage);
            grad = Grad::new(sum, bias.numel, dtype, Layout::Tokens);
        }
        state.give(bias.edge, grad);
    }
    state.release(output);
    let mut wanted: Results = [None; INPUTS];
    for ((input, result), slot) in inputs.iter().zip(results).zip(&mut wanted) {
        if input.wants() {
            *slot = Some(result);
        } else {
            state.release(result.storage);
        }
    }
    wanted
}
