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
