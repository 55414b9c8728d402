"""The package as somebody uses it who installed the wheel: `python -m unittest discover packages/python/tests`."""

import contextlib
import doctest
import enum
import importlib.util
import io
import json
import pathlib
import tempfile
import unittest

import headroom


def examples():
    """What each of the README's examples prints, one after the other in one program."""
    readme = pathlib.Path(__file__).parents[1] / "README.md"
    names = {}
    for block in readme.read_text(encoding="utf-8").split("```python\n")[1:]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block.split("```")[0], str(readme), "exec"), names)  # noqa: S102
        yield said.getvalue().splitlines()


class Readme(unittest.TestCase):
    def test_its_first_example_runs(self):
        verdict, *changes = next(examples())
        self.assertRegex(verdict, r"^fits \d+ backward$")
        self.assertGreater(len(changes), 3)


class Notebook(unittest.TestCase):
    def test_the_notebook_runs_from_top_to_bottom(self):
        notebook = pathlib.Path(__file__).parents[3] / "examples" / "notebook.ipynb"
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        self.assertGreater(len(code), 3)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            for cell in code:
                exec(compile(cell, str(notebook), "exec"), names)  # noqa: S102
        self.assertIn("over: needs", said.getvalue())
        self.assertIn("Liger fused", said.getvalue())


class Estimate(unittest.TestCase):
    def test_the_readmes_figure(self):
        # PyTorch 2.11 and transformers 5.17 took 34,420,881,408 bytes (data/measurements/null-device.json)
        answer = headroom.estimate(
            model="meta-llama/Llama-3.2-1B",
            method="full",
            precision="bf16",
            optimizer="adamw",
            gradient_checkpointing="off",
            batch_size=4,
            seq_length=2048,
            gpu="a100-sxm-40gb",
        )
        self.assertAlmostEqual(answer["peak"]["bytes"], 34_420_881_408, delta=1 << 20)
        self.assertEqual(answer["verdict"], "fits")
        self.assertEqual(sum(answer["peak"]["parts"].values()), answer["peak"]["bytes"])

    def test_keys_have_hyphens_or_underscores_and_keywords_come_last(self):
        hyphens = headroom.estimate({"model": "gpt2", "seq-length": 512, "batch-size": 2})
        underscores = headroom.estimate({"model": "gpt2", "seq_length": 128, "batch_size": 2}, seq_length=512)
        self.assertEqual(hyphens, underscores)

    def test_an_answers_scenario_and_its_link_give_the_same_answer(self):
        answer = headroom.estimate(model="gpt2", method="full", batch_size=3)
        self.assertEqual(headroom.estimate(answer["scenario"]), answer)
        self.assertEqual(headroom.estimate(answer["link"]), answer)

    def test_what_is_wrong_says_what_would_be_right(self):
        with self.assertRaisesRegex(ValueError, "there is no key"):
            headroom.estimate(modell="gpt2")
        with self.assertRaisesRegex(ValueError, "qlora"):
            headroom.estimate(method="qlorra")
        with self.assertRaisesRegex(ValueError, "model="):
            headroom.estimate("openai-community/gpt2")
        with self.assertRaisesRegex(ValueError, "Micro-batch size"):
            headroom.estimate("m=gpt2&b=many")
        answer = headroom.estimate(model="nobody/nothing")
        self.assertNotIn("needed", answer)
        self.assertEqual(answer["issues"][0]["severity"], "error")

    def test_a_config_of_ones_own(self):
        config = {
            "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
        }
        answer = headroom.estimate(model={"name": "mine", "config": config}, method="full")
        self.assertEqual(answer["parameters"]["total"], 11_514_368)


def made(name, settings, *bases):
    """An object of a class of that name, as those of transformers and peft are: its settings come from `to_dict()`."""
    return type(name, bases, {"to_dict": lambda self: settings})()


class Objects(unittest.TestCase):
    """Objects of training scripts, by classes that only have their names and `to_dict()`."""

    ARGUMENTS = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True, "fp16": False,
        "gradient_checkpointing": True, "optim": enum.Enum("Optimizers", {"ADAMW": "adamw_torch"}).ADAMW,
        "max_grad_norm": 1.0, "use_cpu": True, "learning_rate": float("nan"), "torch_compile": True, "fsdp": [],
    }  # fmt: skip
    ADAPTERS = {"peft_type": "LORA", "r": 32, "target_modules": {"v_proj", "q_proj"}, "modules_to_save": None}

    def test_what_they_say_is_the_scenario(self):
        arguments = made("TrainingArguments", self.ARGUMENTS)
        answer = headroom.estimate(
            arguments, made("LoraConfig", self.ADAPTERS), model="Qwen/Qwen3-0.6B", gpu="rtx-4090", seq_length=512
        )
        self.assertEqual(answer["verdict"], "fits")
        wanted = {
            "model": "Qwen/Qwen3-0.6B", "method": "lora", "lora-rank": 32, "lora-targets": "q_proj,v_proj", "seq-length": 512,
            "batch-size": 2, "gradient-accumulation": 4, "gradient-checkpointing": "on", "optimizer": "adamw", "gpu": "rtx-4090",
            "precision": "amp-bf16-weights",
        }  # fmt: skip
        self.assertEqual({key: answer["scenario"][key] for key in wanted}, wanted)
        self.assertEqual([left["said"] for left in answer["not_understood"]], ["TrainingArguments(torch_compile=true)"])
        # a dictionary is what they are read over, a keyword has the last word
        over = headroom.estimate({"gpu": "t4"}, arguments, model="gpt2", batch_size=8)["scenario"]
        self.assertEqual((over["gpu"], over["batch-size"], over["method"]), ("t4", 8, "full"))
        self.assertIn("single", headroom.levers(arguments, model="gpt2"))

    def test_a_class_over_another_is_read_as_that_one_but_an_adapter_is_not(self):
        base = type(made("TrainingArguments", self.ARGUMENTS))
        answer = headroom.estimate(made("MyArguments", self.ARGUMENTS, base), model="gpt2")
        self.assertEqual(answer["scenario"]["gradient-accumulation"], 4)
        adapters = type(made("LoraConfig", self.ADAPTERS))
        with self.assertRaisesRegex(ValueError, "AdaLoraConfig is not read"):
            headroom.estimate(made("AdaLoraConfig", self.ADAPTERS, adapters), model="gpt2")

    def test_every_tuner_and_trainer_that_is_answered_is_read(self):
        for name, settings, adapter in (
            ("PromptTuningConfig", {"num_virtual_tokens": 20}, "prompt"),
            ("PromptEncoderConfig", {"num_virtual_tokens": 20, "encoder_reparameterization_type": "MLP"}, "p-tuning"),
            ("PrefixTuningConfig", {"num_virtual_tokens": 20}, "prefix"),
            ("PrefixTuningConfig", {"num_virtual_tokens": 20, "prefix_projection": True}, "prefix-projected"),
        ):
            scenario = headroom.estimate(made(name, {**settings, "task_type": "CAUSAL_LM"}), model="gpt2")["scenario"]
            self.assertEqual((scenario["method"], scenario["adapter"], scenario["lora-rank"]), ("lora", adapter, 20))
        for name, task in (("PPOConfig", "ppo"), ("DistillationConfig", "distil"), ("GKDConfig", "distil")):
            read = headroom.read(made(name, self.ARGUMENTS), over={"model": "Qwen/Qwen3-0.6B"})
            self.assertEqual(read["scenario"]["task"], task, name)

    def test_a_model_is_named(self):
        with self.assertRaisesRegex(ValueError, "name no model"):
            headroom.estimate(made("TrainingArguments", self.ARGUMENTS))
        named = {**self.ADAPTERS, "base_model_name_or_path": "openai-community/gpt2", "target_modules": ["c_attn"]}
        self.assertEqual(headroom.estimate(made("LoraConfig", named))["scenario"]["model"], "openai-community/gpt2")
        config = made("LlamaConfig", {
            "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
            "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
        })  # fmt: skip
        config.model_type = "llama"
        answer = headroom.estimate(made("TrainingArguments", self.ARGUMENTS), model=config)
        self.assertEqual(answer["parameters"]["total"], 11_514_368)

    def test_what_is_understood_is_told(self):
        read = headroom.read(made("LoraConfig", self.ADAPTERS), over={"model": "gpt2"})
        self.assertIn({"key": "lora-rank", "value": "32", "said": "LoraConfig(r=32)"}, read["applied"])
        read = headroom.read("base_model: gpt2\nmicro_batch_size: 3\nmagic: 1\n", over={"gpu": "t4"})
        self.assertEqual((read["format"], read["scenario"]["gpu"], read["scenario"]["batch-size"]), ("axolotl", "t4", 3))
        self.assertIn("magic: 1", [left["said"] for left in read["not_understood"]])
        with self.assertRaisesRegex(ValueError, "no project that is known"):
            headroom.read("one: 1")
        with self.assertRaisesRegex(ValueError, "to_dict"):
            headroom.read(3)


def missing(*names):
    return [name for name in names if importlib.util.find_spec(name) is None]


@unittest.skipIf(missing("transformers", "torch"), "transformers is not installed: stand-ins are read above")
class RealObjects(unittest.TestCase):
    """The same of the classes themselves: of their defaults nothing is left that is not understood."""

    def arguments(self, cls, **settings):
        # where there is no GPU, bf16 asks for use_cpu
        return cls(output_dir="out", use_cpu=True, report_to=[], **settings)

    def test_training_arguments(self):
        from transformers import AutoConfig, TrainingArguments

        arguments = self.arguments(
            TrainingArguments, per_device_train_batch_size=2, bf16=True, gradient_checkpointing=True, optim="adafactor"
        )
        config = AutoConfig.for_model("llama", hidden_size=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000)
        answer = headroom.estimate(arguments, model=config, gpu="t4")
        scenario = answer["scenario"]
        self.assertEqual(answer["not_understood"], [])
        wanted = (2, "on", "adafactor", "full", "amp-bf16-weights")
        keys = ("batch-size", "gradient-checkpointing", "optimizer", "method", "precision")
        self.assertEqual(tuple(scenario[key] for key in keys), wanted)
        self.assertGreater(answer["needed"], 0)

    @unittest.skipIf(missing("bitsandbytes"), "bitsandbytes is not installed")
    def test_quantised_weights(self):
        import torch
        from transformers import BitsAndBytesConfig, TrainingArguments

        quantised = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16
        )
        answer = headroom.estimate(self.arguments(TrainingArguments, bf16=True), quantised, model="gpt2")
        self.assertEqual((answer["scenario"]["method"], answer["scenario"]["double-quant"]), ("qlora", True))
        self.assertEqual(answer["not_understood"], [])

    @unittest.skipIf(missing("peft"), "peft is not installed")
    def test_adapters(self):
        from peft import AdaLoraConfig, IA3Config, LoraConfig
        from transformers import TrainingArguments

        arguments = self.arguments(TrainingArguments)
        lora = LoraConfig(r=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM", use_dora=True)
        answer = headroom.estimate(arguments, lora, model="Qwen/Qwen3-0.6B")
        keys = ("method", "adapter", "lora-rank", "lora-targets", "lora-dropout")
        wanted = ("lora", "dora", 32, "q_proj,v_proj", True)
        self.assertEqual(tuple(answer["scenario"][key] for key in keys), wanted)
        self.assertEqual(answer["not_understood"], [])
        other = headroom.estimate(arguments, IA3Config(task_type="CAUSAL_LM"), model="Qwen/Qwen3-0.6B")
        self.assertEqual(other["scenario"]["adapter"], "ia3")
        with self.assertRaisesRegex(ValueError, "AdaLoraConfig is not read"):
            headroom.estimate(arguments, AdaLoraConfig(total_step=10), model="gpt2")

    @unittest.skipIf(missing("trl", "peft"), "trl is not installed")
    def test_the_examples_of_the_readme(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            _, objects = examples()
        self.assertEqual(objects, ["over []"])

    @unittest.skipIf(missing("trl", "peft"), "trl is not installed")
    def test_trls_arguments(self):
        from peft import LoraConfig
        from trl import DPOConfig, SFTConfig

        fine_tuning = self.arguments(SFTConfig, max_length=512, packing=True, per_device_train_batch_size=4)
        answer = headroom.estimate(fine_tuning, LoraConfig(task_type="CAUSAL_LM"), model="Qwen/Qwen3-0.6B")
        keys = ("stack", "task", "seq-length", "mask", "batch-size", "precision", "gradient-checkpointing")
        wanted = ("trl", "sft", 512, "padding-free", 4, "amp-bf16", "on")
        self.assertEqual(tuple(answer["scenario"][key] for key in keys), wanted)
        self.assertEqual(answer["not_understood"], [])
        preferences = headroom.estimate(self.arguments(DPOConfig, max_length=256), model="Qwen/Qwen3-0.6B")
        self.assertEqual((preferences["scenario"]["task"], preferences["not_understood"]), ("dpo", []))


class Levers(unittest.TestCase):
    def test_what_to_change(self):
        found = headroom.levers(model="meta-llama/Llama-3.1-8B", method="full", gpu="rtx-4090")
        self.assertEqual(found["verdict"], "over")
        for lever in found["single"]:
            changed = headroom.estimate(lever["link"])
            self.assertEqual(lever["needed"], changed["needed"])
            self.assertEqual(lever["saved"], found["needed"] - lever["needed"])


class Documentation(unittest.TestCase):
    def test_the_examples_hold(self):
        self.assertEqual(doctest.testmod(headroom).failed, 0)


if __name__ == "__main__":
    unittest.main()
