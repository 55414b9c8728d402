"""axolotl's fused adapters for cases of the null-device harness (measure.py): importing this module adds them.

  fused_adapters  true: its autograd functions over a layer's projections and their adapters (lora_qkv_kernel, lora_o_kernel, lora_mlp_kernel), put in by
                  its own `patch_self_attn_lora` and `apply_lora_kernel_patches` (monkeypatch/lora_kernels.py). AXOLOTL names a checkout of its repository.
"""
import tempfile

import measure

measure.DEFAULTS.update(fused_adapters=False)
KERNELS = dict(lora_qkv_kernel=True, lora_o_kernel=True, lora_mlp_kernel=True, lora_embedding_kernel=True)


class Settings(dict):
    """axolotl's DictDefault: what is not there is None."""

    def __getattr__(self, name):
        return self.get(name)


def patched(config, build):
    """The adapted model that `build` makes of that config, with the functions in its modules."""
    import axolotl_source
    axolotl_source.packages("axolotl.kernels", "axolotl.utils.callbacks")
    from axolotl.monkeypatch import lora_kernels
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        settings = Settings(KERNELS, base_model=folder)
        lora_kernels.patch_self_attn_lora(settings)
    return lora_kernels.apply_lora_kernel_patches(build(), settings)


def build_model(case, device, build=measure.build_model):
    if not case["fused_adapters"]:
        return build(case, device)
    return patched(measure.build_config(case), lambda: build(case, device))


measure.build_model = build_model
