"""The package as somebody uses it who installed the wheel: `python -m unittest discover packages/python/tests`."""

import contextlib
import doctest
import io
import json
import pathlib
import unittest

import headroom


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
        with self.assertRaisesRegex(ValueError, "batch-size"):
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
