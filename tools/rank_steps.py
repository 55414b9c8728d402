"""Prints every allocation and free of one rank of a many-GPU job: rank_steps.py ROW.json [--trace]

ROW.json is a row of data/measurements/multi.json, or its "case" alone. Needs the harness that these rows were measured with
(measure_multi.py, on PYTHONPATH) on its null device. --trace prints the last iteration as tools/compare_trace.py reads it: the
process is rank 0 of the job, its collectives return at once and move nothing, and all else is the engine's own code.
"""
import json
import os
import sys

os.environ.update(DS_ACCELERATOR="cuda", LOCAL_RANK="0", RANK="0", MASTER_ADDR="localhost", MASTER_PORT="29511", CUDA_HOME="/nonexistent")

import measure
import measure_multi
import torch


def main():
    row = json.load(open(sys.argv[1]))
    case = {**row.get("case", row), "id": "traced"}
    os.environ["WORLD_SIZE"] = str(case.get("world", 8))
    marks = []
    reset = torch.cuda.reset_peak_memory_stats

    def mark(*_):
        """The harness asks for this where a phase begins; the first time when the model is loaded."""
        torch.cuda.synchronize()
        torch._C._cuda_setMemoryMetadata("MARK:")
        block = torch.empty(1, device="cuda")
        marks.append(block.untyped_storage().data_ptr())
        torch._C._cuda_setMemoryMetadata("")
        del block
        reset()

    torch.cuda.reset_peak_memory_stats = mark
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
    result = measure_multi.run(case)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    # the phases of an iteration are those that the harness lists, by order
    phases = list(result["phases"])
    iterations = (len(marks) - 1) // len(phases)
    names = ["loaded"] + phases * iterations
    show(events, names, len(names) - len(phases), sys.argv[2:] == ["--trace"])
    print(json.dumps(result["peak"]), json.dumps(result["reserved"]), file=sys.stderr)
    sys.stderr.flush()
    os._exit(0)


def show(events, names, last, only_last):
    """The events; without --trace those of every iteration, from the making of the model on."""
    ids, current, number, phase = {}, 0, 0, -1
    out = []
    for event in events:
        kind, address = event["action"], event["addr"]
        shown = not only_last or phase >= last
        if kind == "alloc":
            if (event.get("user_metadata") or "").startswith("MARK:"):
                phase += 1
                if only_last and phase == last:
                    out.append("BASE %d" % current)
                if not only_last or phase >= last:
                    out.append("MARK %s %d" % (names[min(phase, len(names) - 1)], current))
                ids[address] = ("mark", 0)
                continue
            number += 1
            size = measure.rnd(event["size"])
            current += size
            ids[address] = (number, size)
            if shown:
                frames = " < ".join(measure.short_frame(event.get("frames")))
                out.append("A %d %d %d s%d %s" % (number, event["size"], current, event["stream"] % 100003, frames))
        elif kind == "free_requested":
            known, size = ids.pop(address, ("mark", 0))
            if known != "mark":
                current -= size
                if shown:
                    out.append("F %d %d %d" % (known, size, current))
    print("\n".join(out), flush=True)


if __name__ == "__main__":
    main()
