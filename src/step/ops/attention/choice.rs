//! The choice of kernel.
//!
//! Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.

use super::arguments::Kernel;
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::scenario::AttentionKernel;

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
    /// Tokens of a sequence that ask, and that are looked at.
    pub sequence: u64,
    pub keys: u64,
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
                let widest = match self.device.capability {
                    90..=99 => 256,
                    // latent attention's
                    100..=109 if (self.head_dim, self.value_dim) == (192, 128) => 192,
                    _ => 128,
                };
                let fits = |dim: u64| dim <= widest && dim.is_multiple_of(8);
                self.dtype.is_half()
                    && self.device.capability >= 80
                    && fits(self.head_dim)
                    && fits(self.value_dim)
                    && self.keys > 1
                    && (self.sequence > 1 || !self.dropout)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::units::Bytes;

    /// Causal attention of Llama's shape in a training step. All that these tests say is what PyTorch 2.11's own function answered over the null device
    /// with cuDNN 9.19 (`torch._fused_sdp_choice`).
    fn usual(capability: u32) -> Choice {
        let device = Device { capability, ..Device::of(&Gpu::custom(Bytes::gib(24.0))) };
        Choice {
            wanted: AttentionKernel::Sdpa,
            dtype: Dtype::Bf16,
            device,
            masked: false,
            strided_mask: false,
            grouped: false,
            enable_gqa: false,
            head_dim: 128,
            value_dim: 128,
            sequence: 512,
            keys: 512,
            dropout: false,
            recorded: true,
        }
    }

    fn heads(choice: Choice, head_dim: u64) -> Choice {
        Choice { head_dim, value_dim: head_dim, ..choice }
    }

    /// `check_prefer_cudnn_attention`, `check_flash_attention_hardware_support` and `check_tensor_dtype` of sdp_utils.cpp.
    #[test]
    fn the_first_kernel_that_the_card_and_the_type_allow_runs() {
        use Kernel::{Cudnn, Efficient, Flash, Math};
        for (capability, bf16, f16, f32) in [
            (75, Math, Efficient, Efficient),
            (80, Flash, Flash, Efficient),
            (86, Flash, Flash, Efficient),
            (89, Flash, Flash, Efficient),
            (90, Cudnn, Cudnn, Efficient),
            (100, Cudnn, Cudnn, Efficient),
            (103, Cudnn, Cudnn, Efficient),
            (120, Flash, Flash, Efficient),
            (121, Flash, Flash, Efficient),
        ] {
            for (dtype, kernel) in [(Dtype::Bf16, bf16), (Dtype::F16, f16), (Dtype::F32, f32)] {
                let choice = Choice { dtype, ..usual(capability) };
                assert_eq!(choice.kernel(), kernel, "{capability} {dtype:?}");
            }
        }
    }

    /// `check_cudnn_tensor_shapes`, `check_head_dim_size_flash`, `minimum_gemm_alignment`.
    #[test]
    fn a_head_may_be_too_wide_or_odd_for_a_kernel() {
        use Kernel::{Cudnn, Efficient, Flash, Math};
        for (capability, head_dim, kernel) in [
            (90, 256, Cudnn),
            (90, 264, Efficient),
            (90, 100, Flash),
            (100, 128, Cudnn),
            (100, 136, Flash),
            (100, 256, Flash),
            (80, 256, Flash),
            // flash pads what is no multiple of eight, the memory-efficient kernel does not
            (80, 20, Flash),
            (80, 257, Math),
            (80, 264, Efficient),
            (80, 260, Math),
        ] {
            assert_eq!(heads(usual(capability), head_dim).kernel(), kernel, "{head_dim} on {capability}");
        }
        // in float32 tensor cores take four at a time, of which Turing has none for it
        for (capability, head_dim, kernel) in
            [(80, 20, Efficient), (80, 18, Math), (75, 18, Efficient), (75, 5, Efficient)]
        {
            let choice = Choice { dtype: Dtype::F32, ..heads(usual(capability), head_dim) };
            assert_eq!(choice.kernel(), kernel, "{head_dim} on {capability}");
        }
        let f16 = |head_dim| Choice { dtype: Dtype::F16, ..heads(usual(75), head_dim) };
        assert_eq!([f16(24), f16(20)].map(Choice::kernel), [Efficient, Math]);
        // latent attention's values are narrower: flash wants them alike, the others do not
        let latent = |capability, value_dim| Choice { head_dim: 192, value_dim, ..usual(capability) };
        assert_eq!([latent(90, 128), latent(80, 128)].map(Choice::kernel), [Cudnn, Efficient]);
        assert_eq!([latent(100, 128), latent(103, 128)].map(Choice::kernel), [Cudnn, Cudnn]);
        assert_eq!([latent(100, 120), latent(120, 128)].map(Choice::kernel), [Efficient, Efficient]);
        assert_eq!([latent(90, 100), latent(80, 100)].map(Choice::kernel), [Math, Math]);
    }

    /// `check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`.
    #[test]
    fn flash_has_no_backward_for_some_wide_heads_on_small_cards() {
        for (head_dim, dropout, runs) in [
            (192, true, true),
            (193, false, false),
            (224, false, false),
            (225, false, true),
            (256, false, true),
            (225, true, false),
            (256, true, false),
        ] {
            for capability in [86, 89, 120, 121] {
                let choice =
                    Choice { wanted: AttentionKernel::Flash, dropout, ..heads(usual(capability), head_dim) };
                let kernel = if runs { Kernel::Flash } else { Kernel::Math };
                assert_eq!(choice.kernel(), kernel, "{head_dim} {dropout} on {capability}");
                // without a graph there is none to come
                assert_eq!(Choice { recorded: false, ..choice }.kernel(), Kernel::Flash);
            }
            for capability in [80, 90, 100] {
                let choice =
                    Choice { wanted: AttentionKernel::Flash, dropout, ..heads(usual(capability), head_dim) };
                assert_eq!(choice.kernel(), Kernel::Flash, "{head_dim} {dropout} on {capability}");
            }
        }
    }

    /// `check_cudnn_tensor_shapes`: a token that looks back is cuDNN's on Hopper and after it, one that is alone is not.
    #[test]
    fn a_single_query_is_as_good_as_many() {
        use Kernel::{Cudnn, Efficient, Flash};
        let decoding = |capability| Choice { sequence: 1, keys: 100, recorded: false, ..usual(capability) };
        for capability in [90, 100] {
            let one = decoding(capability);
            let grouped = Choice { grouped: true, enable_gqa: true, ..one };
            let masked = Choice { masked: true, ..one };
            assert_eq!([one, grouped, masked].map(Choice::kernel), [Cudnn; 3]);
            assert_eq!(Choice { dropout: true, ..one }.kernel(), Flash);
            let alone = Choice { keys: 1, ..one };
            assert_eq!([alone, Choice { masked: true, ..alone }].map(Choice::kernel), [Flash, Efficient]);
        }
        assert_eq!(decoding(80).kernel(), Flash);
    }

    /// `check_for_attn_mask`, `check_batch_size_and_num_heads_dense`, and what a caller allows alone (`sdpa_kernel`).
    #[test]
    fn masks_and_shared_heads_decide_too() {
        use Kernel::{Cudnn, Efficient, Flash, Math};
        let (ampere, hopper) = (usual(80), usual(90));
        let masked = |choice| Choice { masked: true, ..choice };
        assert_eq!([masked(ampere), masked(hopper)].map(Choice::kernel), [Efficient, Cudnn]);
        let strided = |choice| Choice { strided_mask: true, ..masked(choice) };
        assert_eq!([strided(ampere), strided(hopper)].map(Choice::kernel), [Math, Math]);
        let grouped = |choice, enable_gqa| Choice { grouped: true, enable_gqa, ..choice };
        assert_eq!([grouped(ampere, true), grouped(hopper, true)].map(Choice::kernel), [Flash, Cudnn]);
        assert_eq!([grouped(ampere, false), grouped(hopper, false)].map(Choice::kernel), [Math, Math]);
        // the memory-efficient kernel knows no shared heads
        assert_eq!(masked(grouped(ampere, true)).kernel(), Math);
        let wanted = |wanted| Choice { wanted, ..hopper }.kernel();
        assert_eq!(
            [AttentionKernel::Flash, AttentionKernel::Efficient, AttentionKernel::Cudnn].map(wanted),
            [Flash, Efficient, Cudnn]
        );
        assert_eq!(
            [AttentionKernel::Math, AttentionKernel::Eager, AttentionKernel::FlashAttn].map(wanted),
            [Math, Kernel::Eager, Kernel::Package]
        );
        // cuDNN may be asked for on Ampere, where it is not the first; before it runs nowhere
        let asked = |capability| Choice { wanted: AttentionKernel::Cudnn, ..usual(capability) };
        let turing = Choice { dtype: Dtype::F16, ..asked(75) };
        assert_eq!([asked(80), asked(89), turing].map(Choice::kernel), [Cudnn, Cudnn, Math]);
        assert_eq!(heads(asked(89), 136).kernel(), Math);
    }
}
