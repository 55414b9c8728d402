"""Tuners of peft other than LoRA for cases of the null-device harness: importing this module adds them (more_switches.py does).

  adapter   the tuner by its slug here, with underscores: "dora", "ia3", "vera", "loha", "lokr", "oft" (whose block size is "r"). Targets, rank and dropout are those of "lora" as
            far as the tuner's configuration has them; "qv" leaves the targets to peft's default for that tuner and family.
            "prompt", "prefix", "prefix_projected", "p_tuning" and "p_tuning_lstm" have neither: "r" is the number of virtual tokens.
"""
import measure

measure.DEFAULTS.setdefault("adapter", "lora")


def dora(peft, given, case):
    return peft.LoraConfig(use_dora=True, **given)


def targets(given, case):
    own = None if case["lora"]["targets"] == "qv" else given["target_modules"]
    return {"target_modules": own, "task_type": given["task_type"]}


def ia3(peft, given, case):
    return peft.IA3Config(**targets(given, case))


def vera(peft, given, case):
    return peft.VeraConfig(r=given["r"], vera_dropout=given["lora_dropout"], **targets(given, case))


def loha(peft, given, case):
    return peft.LoHaConfig(r=given["r"], alpha=given["r"], **targets(given, case))


def lokr(peft, given, case):
    return peft.LoKrConfig(r=given["r"], alpha=given["r"], **targets(given, case))


def oft(peft, given, case):
    return peft.OFTConfig(oft_block_size=given["r"], **targets(given, case))


def virtual(given):
    return {"num_virtual_tokens": given["r"], "task_type": given["task_type"]}


def prompt(peft, given, case):
    return peft.PromptTuningConfig(**virtual(given))


def prefix(peft, given, case):
    return peft.PrefixTuningConfig(**virtual(given))


def prefix_projected(peft, given, case):
    return peft.PrefixTuningConfig(prefix_projection=True, **virtual(given))


def p_tuning(peft, given, case):
    return peft.PromptEncoderConfig(**virtual(given))


def p_tuning_lstm(peft, given, case):
    return peft.PromptEncoderConfig(encoder_reparameterization_type="LSTM", **virtual(given))


TUNERS = {"dora": dora, "ia3": ia3, "vera": vera, "loha": loha, "lokr": lokr, "oft": oft, "prompt": prompt, "prefix": prefix,
          "prefix_projected": prefix_projected, "p_tuning": p_tuning, "p_tuning_lstm": p_tuning_lstm}


def let_go():
    """A checkpoint is loaded without a head that is tied and let go, as the harness makes one: its block is no place for the
    first product's workspace (DoRA's is made while the adapters are) or for matrices as large as VeRA's."""
    import gc

    import torch
    gc.collect()
    torch.cuda.empty_cache()


def build_model(case, device, build=measure.build_model):
    if case["adapter"] in TUNERS:
        import peft
        own, make = {name: getattr(peft, name) for name in dir(peft) if name.endswith("Config")}, TUNERS[case["adapter"]]

        class Own:
            """peft as it is, whatever stands in the place of its LoraConfig."""

            def __getattr__(self, name):
                return own[name]

        def config(**given):
            let_go()
            return make(Own(), given, case)
        peft.LoraConfig = config
    return build(case, device)


measure.build_model = build_model
