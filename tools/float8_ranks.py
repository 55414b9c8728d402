"""Measures rank 0 of a job of FSDP2 whose layers are torchao's Float8Linear: float8_ranks.py CASES.json

CASES.json is a list of cases as measure_multi.py takes them ("engine": "fsdp2"), with "id", the keys of float8_switches.py, and
"float8_precompute": true for `precompute_float8_dynamic_scale_for_fsdp` after each step of the optimizer. One row a line; layers are
converted before they are sharded. Runs on the null device with measure_multi.py and torchao's folder on PYTHONPATH.
"""
import json
import os
import subprocess
import sys

OWN = {"float8": None, "float8_filter": "accelerate", "float8_pad": False, "float8_gather": False, "float8_emulate": False, "float8_precompute": False}


def run(case):
    import float8_switches
    import measure_multi
    import torch
    from transformers import AutoModelForCausalLM
    own = {key: case.get(key, value) for key, value in OWN.items()}
    build, step, made = AutoModelForCausalLM.from_config, torch.optim.AdamW.step, []

    def converted(*given, **named):
        made.append(build(*given, **named))
        if own["float8"]:
            float8_switches.convert(own, made[0])
        return made[0]

    def stepped(optimizer, *given, **named):
        result = step(optimizer, *given, **named)
        if own["float8_precompute"]:
            from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
            precompute_float8_dynamic_scale_for_fsdp(made[0])
        return result
    AutoModelForCausalLM.from_config, torch.optim.AdamW.step = converted, stepped
    result = measure_multi.run({key: value for key, value in case.items() if key not in OWN})
    import torchao
    versions = dict(result["versions"], torchao=torchao.__version__)
    peak = {name: dict(result["peak"][name], where=max(("fwd", "bwd", "step"), key=result["peak"][name].get)) for name in ("first", "steady")}
    return dict(id=case["id"], source="null-device", versions=versions, device=dict(cc=os.environ["NULLCUDA_CC"]),
                case={key: value for key, value in case.items() if key != "id"},
                measured=dict(params=result["params"], peak=dict(peak, overall=result["peak"]["overall"]), reserved=result["reserved"]))


def main():
    if sys.argv[1] == "--one":
        print(json.dumps(run(json.loads(sys.argv[2])), separators=(",", ":")), flush=True)
        os._exit(0)
    for case in json.load(open(sys.argv[1])):
        env = dict(os.environ, DS_ACCELERATOR="cuda", LOCAL_RANK="0", RANK="0", WORLD_SIZE=str(case["world"]), MASTER_ADDR="localhost",
                   MASTER_PORT="29519", CUDA_HOME="/nonexistent")
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", json.dumps(case)], capture_output=True, text=True, env=env)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"id"')]
        print(lines[-1] if lines else case["id"] + " " + done.stderr[-500:], flush=True)


main()
