"""Opens a file that Headroom wrote for memory_viz with PyTorch's own code, and fails where that cannot read it.

Needs an environment with PyTorch:
    cargo run --example memory_viz -- 'method=qlora' step.pickle && python tools/open_memory_viz.py step.pickle
"""

import pickle
import sys

from torch.cuda import _memory_viz as viz


def main(path):
    with open(path, "rb") as file:
        data = pickle.load(file)
    # segsum raises where the blocks of a segment do not add up to it
    summary = viz.segsum(data)
    trace = viz.trace(data)
    events = data["device_traces"][0]
    assert trace.count("\n") > len(events) and "cudaMalloc" not in trace
    for plot in (viz.trace_plot(data), viz.segment_plot(data)):
        assert "snapshot.pickle" in plot
    flames = []
    for draw in (viz.segments, viz.memory):
        draw(data, format_flamegraph=flames.append)
    assert all(flames), "a flame graph is empty"
    print("\n".join(line for line in summary.splitlines() if line.startswith(("segments", "total"))))
    print(f"{len(events)} events")


if __name__ == "__main__":
    main(sys.argv[1])
