//! models/deberta_v2/modeling_deberta_v2.py: attention to contents and to relative positions, written out.

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Projection};
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::layer::Mixed;
use crate::step::forward::{BoundLayer, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::ops::matmul::{Product, Second};
use crate::step::ops::pointwise::{pass_backward, scale_backward};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static MIDDLE: What = What::own("middle", "half of the distances that are told apart", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `DebertaV2Embeddings`, and the mask, the relative positions and their table as `DebertaV2Encoder.forward` makes
    /// them.
    pub(in crate::step::forward) fn deberta_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let tokens = self.batch.tokens();
        let given = self
            .batch
            .mask
            .is_given()
            .then(|| Tensor { machine: self.machine, value: Value::plain(NOTHING, tokens, Dtype::I64) });
        let seen = given.unwrap_or_else(|| self.of_tokens(tokens, Dtype::F32, &torch::ATTENTION_MASK));
        let types = self.of_tokens(tokens, Dtype::I64, &torch::TOKEN_TYPES);
        let hidden = self.deberta_embeddings(&seen, &types);
        let square = self.batch.length.saturating_mul(self.batch.length);
        let mask =
            self.of_queries(square.saturating_mul(self.batch.sequences), seen.value.dtype, &torch::MASK);
        let positions = self.relative_positions(square);
        let table = self.relative_table();
        let shared = Shared { full: Some(mask), positions: Some(positions), alibi: table, ..Shared::none() };
        let locals = vec![seen, types];
        (Embedded { hidden, kept: true, positions: None, locals }, shared)
    }

    fn deberta_embeddings(&self, seen: &Tensor<'a>, types: &Tensor<'a>) -> Tensor<'a> {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.batch.tokens();
        let words = self.embed_tokens();
        let rows = match (&embeddings.positions, self.outside.positions) {
            (Some(table), Some(param)) => self.within(table.name, &roles::EMBEDDING, || {
                self.lookup(param, None, self.batch.length, table.width)
            }),
            // zeros that are not used
            _ => words.fresh(words.value.numel, words.value.dtype, &torch::ZEROS),
        };
        let mut hidden = words.clone();
        if embeddings.positions.is_some() {
            hidden = hidden.add_row(&rows);
        }
        if let (Some(table), Some(param)) = (&embeddings.token_types, self.outside.token_types) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                self.lookup(param, Some(types), tokens, table.width)
            });
            hidden = hidden.add(&rows);
        }
        if let Some(project) = &embeddings.project_in {
            hidden = hidden.through(&find(&self.outside.linears, |layer| layer.name == project.name));
        }
        hidden = self.embedding_norm(&hidden);
        let cast = seen.to(hidden.value.dtype);
        hidden = hidden.mul_rows(&cast);
        hidden = hidden.dropout(self.dropout(embeddings.dropout));
        drop(cast);
        drop(words);
        drop(rows);
        hidden
    }

    /// `build_relative_position`, in buckets that grow with the logarithm of the distance.
    fn relative_positions(&self, square: u64) -> Tensor<'a> {
        let make = |dtype| self.of_queries(square, dtype, &torch::RELATIVE_POSITION);
        let [longs, floats, bools] = [Dtype::I64, Dtype::F32, Dtype::Bool].map(|dtype| move || make(dtype));
        let ranges = [(); 2].map(|()| self.of_positions(self.batch.length, Dtype::I64, &torch::RANGE));
        let distance = longs();
        let sign = longs();
        let absolute = {
            let near = {
                let (below, above) = (bools(), bools());
                let both = bools();
                drop((below, above));
                both
            };
            let _middle = self.constant(1, Dtype::I64, &MIDDLE);
            let absolute = longs();
            let chosen = longs();
            drop(near);
            drop(absolute);
            chosen
        };
        let logarithm = {
            let mut value = floats();
            for _ in 0..5 {
                let next = floats();
                drop(std::mem::replace(&mut value, next));
            }
            value
        };
        let bucket = {
            let near = bools();
            let (close, far) = (floats(), floats());
            let bucket = floats();
            drop((near, close, far));
            bucket
        };
        drop((sign, absolute, logarithm));
        drop(distance);
        let result = longs();
        drop(bucket);
        drop(ranges);
        result
    }

    /// `get_rel_embedding`.
    fn relative_table(&self) -> Option<Tensor<'a>> {
        let param = self.outside.params.iter().find(|param| param.0 == "encoder.rel_embeddings")?.1;
        let table = self.machine.weight(param);
        let norm = self.outside.norms.iter().find(|norm| norm.name == "encoder.LayerNorm");
        Some(norm.map_or_else(|| table.clone(), |norm| table.normed(norm)))
    }

    /// `DisentangledSelfAttention`.
    pub(in crate::step::forward) fn deberta_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let Projection::Separate { q, k, v } = &attention.projection else {
            unreachable!("deberta's projections are apart")
        };
        let [q, k, v] = [q, k, v].map(|spec| x.through(&layer.linear(spec)).joined_heads());
        let batch = self.batch.sequences;
        let numel = q.value.numel / attention.head_dim.max(1) * self.batch.length;
        let shape = Product { numel, batch, groups: 1, second: Second::Keys };
        let mut scores = {
            let scaled = k.divided();
            self.machine.product(&q, &scaled, shape, self.autocast)
        };
        let mut _relative = None;
        let mut _table = None;
        if let (Some(table), Some(positions)) = (&shared.alibi, &shared.positions) {
            let table = table.dropout(self.residual_dropout(layer));
            let bias = self.disentangled_bias(layer, attention, [&q, &k], (positions, &table), numel);
            scores = scores.add(&bias);
            _relative = Some(bias);
            _table = Some(table);
        }
        let mut _mask = None;
        if let Some(mask) = &shared.full {
            let bools = self.of_queries(mask.value.numel, Dtype::Bool, &torch::MASK);
            let others = self.of_queries(mask.value.numel, Dtype::Bool, &torch::MASK);
            scores = scores.masked_fill(&others);
            _mask = Some(bools);
        }
        let mut weights = self.probabilities(|| scores.softmax());
        weights = self.probabilities(|| weights.dropout(self.dropout(attention.dropout)));
        let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
        let mut context = self.machine.product(&weights, &v, shape, self.autocast);
        context = context.to_tokens();
        drop((q, k, v));
        drop(scores);
        Mixed { output: context, weights: None }
    }

    /// `disentangled_attention_bias`: from contents to positions, and from positions to contents.
    fn disentangled_bias(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        [q, k]: [&Tensor<'a>; 2],
        (positions, table): (&Tensor<'a>, &Tensor<'a>),
        numel: u64,
    ) -> Tensor<'a> {
        let batch = self.batch.sequences;
        let own = |name: &str| layer.linears.iter().find(|linear| linear.name == name).copied();
        let project = |name: &str, shared: usize| {
            let linear = own(name).or_else(|| layer.linears.get(shared).copied());
            let heads = linear.map_or_else(|| table.clone(), |linear| table.through(&linear)).joined_heads();
            if batch > 1 { heads.repeat_heads(batch) } else { heads.copied() }
        };
        let (pos_key, pos_query) = if own("attention.self.pos_key_proj").is_some() {
            let key = project("attention.self.pos_key_proj", 1);
            (key, project("attention.self.pos_query_proj", 0))
        } else {
            let query = project("attention.self.pos_query_proj", 0);
            (project("attention.self.pos_key_proj", 1), query)
        };
        let rows = table.value.numel / attention.heads.saturating_mul(attention.head_dim).max(1);
        let wide = q.value.numel / attention.head_dim.max(1) * rows;
        let shape = Product { numel: wide, batch, groups: 1, second: Second::Transposed };
        let index = |steps: usize| {
            let mut value = positions.clone();
            for _ in 0..steps {
                value = positions.fresh(positions.value.numel, Dtype::I64, &torch::RELATIVE_POSITION);
            }
            value
        };
        let picked = |by: &Tensor<'a>, of: &Tensor<'a>, index: &Tensor<'a>| {
            let products = self.machine.product(by, of, shape, self.autocast);
            products.gathered(&index.expanded_to(numel))
        };
        let to_positions = index(2);
        let from_contents = picked(q, &pos_key, &to_positions);
        let mut score = from_contents.divided().add_number();
        let to_contents = index(3);
        let from_positions = picked(k, &pos_query, &to_contents);
        score = score.add_in_place(&from_positions.divided());
        drop((pos_query, pos_key));
        drop((from_contents, to_positions));
        drop((to_contents, from_positions));
        score
    }
}

impl<'m> Tensor<'m> {
    /// `x.view(batch, sequence, heads, head).permute(0, 2, 1, 3).contiguous()`.
    fn joined_heads(&self) -> Tensor<'m> {
        self.to_heads().apply(|state, x| {
            let node = state.node([x], pass_backward);
            let dense = Value { layout: Layout::Heads, ..*x };
            state.new_like(&dense, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }

    /// `x / scale`, where the scale is a tensor of one element.
    fn divided(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], scale_backward);
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, &torch::DIV, node.output(0))
        })
    }
}
