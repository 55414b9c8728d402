"""Runs steps of training with what stands beside them (loading before, saving after a step, merging at the end) and prints what they took:
spike_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/spikes.json, or its "case" alone. Needs what evaluation_steps.py needs, whose cases it takes. Of the spikes there are

  saving    "on": the trainer's checkpoint after every step (`save_strategy="steps"`): weights or adapters, and the optimizer's state. What is written is as large as
            the model: TMPDIR names a disk that has room. "full", with trl's "engine" and "world": whole weights, FULL_STATE_DICT of FSDP2 and
            stage3_gather_16bit_weights_on_model_save of ZeRO-3
  merging   "gpu": `trainer.model.merge_and_unload()` after training

What is printed of each is its highest point beside that of the run. --trace prints every allocation and free of the merging, as tools/compare_trace.py reads
them.
"""
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("PYTORCH_JIT", "0")

import evaluation_steps
import measure
import torch
import transformers
import trl_steps

OWN = dict(saving="off", merging="off")


class Host:
    """The most that the process's own memory (pages that no file backs) grows by."""

    def __init__(self):
        self.most, self.running = 0, True
        self.before = self.now()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    @staticmethod
    def now():
        lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        return int(lines["RssAnon"].split()[0]) * 1024

    def watch(self):
        while self.running:
            self.most = max(self.most, self.now() - self.before)
            time.sleep(0.002)

    def end(self):
        self.running = False
        self.thread.join()
        return self.most


class Spikes:
    """The highest points of the run and of what stands beside it; the events of one of them where they are asked for."""

    def __init__(self, trace):
        self.peaks, self.reserved, self.host, self.trace = {}, 0, {}, trace

    def note(self, name):
        stats = torch.cuda.memory_stats()
        self.peaks[name] = max(self.peaks.get(name, 0), stats["allocated_bytes.all.peak"])
        self.reserved = max(self.reserved, stats["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()

    def run(self, name, what):
        self.note("run")
        if self.trace:
            evaluation_steps.Evaluations.begin(self)
        host = Host()
        result = what()
        self.host[name] = max(self.host.get(name, 0), host.end())
        if self.trace:
            evaluation_steps.Evaluations.end(self)
        self.note(name)
        return result


def saves(trainer, spikes):
    """The trainer makes a checkpoint after every step, of which the last one stays."""
    args = trainer.args
    args.save_strategy, args.save_steps, args.save_total_limit = transformers.trainer_utils.SaveStrategy("steps"), 1, 1
    trainer.state.save_steps = 1
    real = trainer._save_checkpoint
    trainer._save_checkpoint = lambda *given, **named: spikes.run("save", lambda: real(*given, **named))


def gather(case):
    """Joins the ranks of several GPUs, and says what of the weights is saved."""
    if not case["engine"]:
        return
    trl_steps.join(case)
    if case["saving"] == "full" and case["engine"] == "fsdp2":
        os.environ["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
    if case["saving"] == "full" and case["engine"] == "zero3":
        case["ds"] = {**case["ds"], "stage3_gather_16bit_weights_on_model_save": True}


def main():
    row = json.loads(Path(sys.argv[1]).read_text())
    case = {**measure.DEFAULTS, **trl_steps.OWN, **evaluation_steps.OWN, "evaluation": "off", **OWN, **row.get("case", row)}
    case["lora"] = {**measure.DEFAULTS["lora"], **(case["lora"] or {})}
    gather(case)
    kept = evaluation_steps.answer_as_data_would(case)
    measure.set_sdpa(case)
    spikes = Spikes("--trace" in sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        trainer = evaluation_steps.make_trainer(case, folder)
        if case["saving"] != "off":
            saves(trainer, spikes)
        if case["engine"] != "fsdp2":
            # as trl_steps.py has it
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
        if case["merging"] == "gpu":
            merged = spikes.run("merge", lambda: trainer.model.merge_and_unload())
    del kept
    spikes.note("run")
    if "--trace" not in sys.argv:
        beside = {name: peak for name, peak in spikes.peaks.items() if name != "run"}
        print(json.dumps({"peak": {"steady": beside, "overall": max(spikes.peaks.values())}, "reserved": {"peak_stat": spikes.reserved}, "host": spikes.host}))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
