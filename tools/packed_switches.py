"""Packed texts and the package flash-attn for the null-device harness (measure.py): importing this module adds them to its
cases, as more_switches.py does.

  attention    "flash_attention_2" too: the package flash-attn over flash_attn_2_cuda.py of this folder. Its own Python
               files are needed; FLASH_ATTN names a checkout of flash-attn 2.8.4.
  packed       so many texts in every sequence: position ids that start anew at each, and no attention mask.
"""
import os
import sys

import measure

measure.DEFAULTS["packed"] = 0


def patch_value_reads(case, null, patch=measure.patch_value_reads):
    """The null device reads zeros, from which transformers would conclude nothing about packed sequences."""
    patch(case, null)
    if case["attention"] == "flash_attention_2":
        offer_flash_attn()
    if case["packed"] and null:
        see_packed(case)
    if case["attention_mask"] == "padded" and null:
        see_padded()


def see_padded():
    """As many rows are padding as a batch of one sequence as long as all others has: none."""
    import torch
    from transformers import modeling_flash_attention_utils as flash

    def get_unpad_data(attention_mask):
        lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
        rows = torch.arange(attention_mask.numel(), device=attention_mask.device)
        starts = torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
        return rows, starts, attention_mask.shape[-1]
    flash._get_unpad_data = get_unpad_data


def text_lengths(case):
    each, rest = divmod(case["seq"], case["packed"])
    return [each + (rest if i == 0 else 0) for i in range(case["packed"])]


def see_packed(case):
    import torch
    from transformers import masking_utils
    from transformers import modeling_flash_attention_utils as flash

    def find_packed_sequence_indices(position_ids):
        first = position_ids[:, :1] - 1
        diff = torch.diff(position_ids, prepend=first, dim=-1)
        return (diff != 1).cumsum(-1)

    def is_packed_sequence(position_ids, batch_size):
        if position_ids is None:
            return False
        increasing = torch.arange(position_ids.shape[1], device=position_ids.device) + position_ids.min()
        return batch_size == 1 and (increasing - position_ids).abs().sum().bool() is not None

    def prepare_fa_kwargs_from_position_ids(position_ids):
        position_ids = position_ids.reshape(-1)
        starts = (position_ids == position_ids.min())
        starts = torch.zeros(case["packed"], dtype=torch.int64, device=position_ids.device)
        sizes = dict(dtype=torch.int32, device=position_ids.device)
        starts = torch.cat((starts.to(**sizes), torch.tensor(position_ids.size(), **sizes)))
        return (starts, starts), (max(text_lengths(case)),) * 2
    masking_utils.find_packed_sequence_indices = find_packed_sequence_indices
    flash._is_packed_sequence = is_packed_sequence
    flash.prepare_fa_kwargs_from_position_ids = prepare_fa_kwargs_from_position_ids


def offer_flash_attn():
    sys.path[:0] = [os.environ["FLASH_ATTN"], os.path.dirname(os.path.abspath(__file__))]
    from transformers import modeling_flash_attention_utils as flash
    flash.is_flash_attn_2_available = lambda *a, **k: True
    about = flash.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]
    about["general_availability_check"] = about["pkg_availability_check"] = lambda *a, **k: True
    usual = measure.model_class

    class Flash:
        def __init__(self, case):
            self.usual = usual(case)

        def from_config(self, config, attn_implementation=None, **kwargs):
            return self.usual.from_config(config, attn_implementation="flash_attention_2", **kwargs)
    measure.model_class = Flash


def set_sdpa(case, choose=measure.set_sdpa):
    if case["attention"] != "flash_attention_2":
        choose(case)


def build_model(case, device, build=measure.build_model):
    """The position ids are a tensor of the batch, which the harness makes itself: a hook adds them."""
    model = build(case, device)
    if case["packed"]:
        import torch
        row = torch.cat([torch.arange(length) for length in text_lengths(case)])
        ids = []

        def add(module, args, kwargs):
            if not ids:
                ids.append(row.expand(case["batch"], -1).contiguous().to(device))
            return args, dict(kwargs, position_ids=ids[0])
        model.register_forward_pre_hook(add, with_kwargs=True)
    return model


measure.patch_value_reads = patch_value_reads
measure.set_sdpa = set_sdpa
measure.build_model = build_model
