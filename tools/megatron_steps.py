"""Measures one rank of a Megatron-core job, or prints its allocations and frees: megatron_steps.py CASE.json [--trace | --all]

CASE.json is a row of data/measurements/megatron.json, or its "case" alone. Needs tools/null_device
(measure_megatron.py, on PYTHONPATH, and megatron-core beside it) and its null device: the process is any one rank of the job, its
collectives return at once and move nothing, and all else is Megatron's own code. --trace prints every allocation and free of the last
iteration, as tools/compare_trace.py reads them, --all those of the whole run.
"""
import json
import os
import sys


def short(frames, depth=5):
    """The innermost functions of the project's own files."""
    named = []
    for frame in frames or []:
        name = frame["filename"]
        if "/torch/" in name and "nn/functional" not in name and "optim" not in name:
            continue
        named.append("%s:%d:%s" % (name.rsplit("/", 1)[-1], frame["line"], frame["name"]))
    return " < ".join(named[:depth])


def run(row, show):
    import measure_megatron
    import torch
    case = row.get("case", row)
    marks = []
    reset = torch.cuda.reset_peak_memory_stats

    def mark(*_):
        """The harness asks for this where forward and backward begin, and the optimizer's step."""
        torch._C._cuda_setMemoryMetadata("MARK:")
        block = torch.empty(1, device="cuda")
        marks.append(block.untyped_storage().data_ptr())
        torch._C._cuda_setMemoryMetadata("")
        del block
        reset()

    if not show:
        print(json.dumps(measure_megatron.run(case)))
        sys.stdout.flush()
        os._exit(0)
    torch.cuda.reset_peak_memory_stats = mark
    torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=20000000)
    stats, traced = torch.cuda.memory_stats, []

    def last(*_):
        """The harness asks for this at its end, while all of the job is still there."""
        traced.extend(torch.cuda.memory._snapshot()["device_traces"][0])
        return stats()

    torch.cuda.memory_stats = last
    measure_megatron.run(case)
    names = ["forward", "step"] * (len(marks) // 2)
    print_events(traced, names, len(names) - 2, show == "--trace")
    sys.stdout.flush()
    os._exit(0)


def print_events(events, names, last, only_last):
    ids, current, number, phase = {}, 0, 0, -1
    for event in events:
        kind, address = event["action"], event["addr"]
        shown = not only_last or phase >= last
        if kind == "alloc":
            if (event.get("user_metadata") or "").startswith("MARK:"):
                phase += 1
                if only_last and phase == last:
                    print("BASE %d" % current)
                if not only_last or phase >= last:
                    print("MARK %s %d" % (names[phase], current))
                ids[address] = ("mark", 0)
                continue
            number += 1
            size = (event["size"] + 511) // 512 * 512
            current += size
            ids[address] = (number, size)
            if shown:
                print("A %d %d %d %s" % (number, event["size"], current, short(event.get("frames"))))
        elif kind == "free_completed":
            known, size = ids.pop(address, ("mark", 0))
            if known != "mark":
                current -= size
                if shown:
                    print("F %d %d %d" % (known, size, current))


if __name__ == "__main__":
    run(json.load(open(sys.argv[1])), sys.argv[2] if len(sys.argv) > 2 else "")
