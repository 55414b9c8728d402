//! Attention by the package flash-attn: integrations/flash_attention.py and modeling_flash_attention_utils.py of
//! transformers 5.17 over flash-attn 2.8.

use super::Pass;
use super::self_attention::Heads;
use crate::dtype::Dtype;
use crate::model::blocks::Attention;
use crate::scenario::{AttentionKernel, Lengths, Mask};
use crate::step::ops::attention::{Arguments, Kernel, Scores, scaled_dot_product};
use crate::step::tensor::Tensor;
use crate::step::what::torch;

impl<'a> Pass<'_, 'a> {
    /// Whether attention is the package's.
    pub(super) fn is_flash_attn(&self) -> bool {
        self.member.attention == AttentionKernel::FlashAttn
    }

    /// `flash_attention_forward`: no mask and no repeated heads; the kernel is told where each text begins.
    pub(super) fn flash_attn(&self, attention: &Attention, heads: &Heads<'a>) -> Tensor<'a> {
        // queries that a rotary embedding in float32 made wide are cast back, and keys and values with them
        let wide = heads.q.value.dtype == Dtype::F32;
        let target = self.autocast.filter(|_| wide);
        let [q, k, v] = [&heads.q, &heads.k, &heads.v].map(|x| x.to(target.unwrap_or(x.value.dtype)));
        self.look_for_texts();
        let heads = Heads { q, k, v };
        if self.batch.mask == Mask::Padded {
            return self.between_paddings(attention, heads);
        }
        let texts = if self.sees_texts() { self.texts() } else { 0 };
        self.by_package(attention, &heads, texts)
    }

    fn by_package(&self, attention: &Attention, Heads { q, k, v }: &Heads<'a>, texts: u64) -> Tensor<'a> {
        let scores = Scores { texts, ..self.scores(attention, Kernel::Package, attention.kv_heads) };
        let dropout = self.attention_dropout(attention.dropout);
        let arguments = Arguments { q, k, v, mask: None, causal: attention.causal, dropout };
        scaled_dot_product(scores, &arguments).to_tokens()
    }

    /// `_upad_input`, the kernel, `pad_input`: rows that are no padding are picked, and put back among zeros. All rows are
    /// counted: the longest sequences have none to leave out.
    fn between_paddings(&self, attention: &Attention, heads: Heads<'a>) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let rows = self.of_tokens(tokens, Dtype::I64, &torch::INDICES);
        let pick = |x: &Tensor<'a>| x.rows_at(&rows, tokens, x.value.numel / tokens.max(1));
        let (k, v) = (pick(&heads.k), pick(&heads.v));
        let picked = Heads { q: pick(&heads.q), k, v };
        let output = self.by_package(attention, &picked, 1);
        output.placed_at(&rows)
    }

    /// Whether position ids that start anew are acted on: transformers takes several rows for ordinary sequences.
    fn sees_texts(&self) -> bool {
        self.batch.mask.is_packed() && self.batch.sequences == 1
    }

    /// How many texts share the row: at least one.
    fn texts(&self) -> u64 {
        let sequence = self.batch.length;
        let mean = match self.batch.lengths {
            Lengths::Equal => sequence,
            Lengths::Uniform => sequence / 2,
            Lengths::Spread { mean, .. } => mean,
        };
        sequence.checked_div(mean).unwrap_or(sequence).max(1)
    }

    /// `_is_packed_sequence(position_ids)` and, where it is, `prepare_fa_kwargs_from_position_ids`.
    fn look_for_texts(&self) {
        let sequence = self.batch.length;
        let indices = || self.of_positions(sequence, Dtype::I64, &torch::INDICES);
        let increasing = {
            let _range = indices();
            indices()
        };
        if self.batch.sequences == 1 {
            let difference = indices();
            let absolute = indices();
            drop((difference, absolute));
        }
        drop(increasing);
        if self.sees_texts() {
            drop(self.of_positions(sequence, Dtype::Bool, &torch::TEXT_STARTS));
        }
    }
}
