#!/usr/bin/env python3
"""What inductor makes of layers that are compiled one by one, or with "compile": "model" of a whole model: the code that it generates, or the nodes of its scheduler.

  tools/compiled_layers.py [--nodes] CASE ...

Runs over the null device of tools/null_device, whose README says how it is set up (HARNESS names another folder, HARNESS_PYTHON
another Python). CASE is one as measure.py and more_switches.py take it, with "cc" for the compute capability (8.0 where it is left
out); its layers are compiled, and one forward and backward pass of it runs.

Prints for each case a line `layer CASE`, then every graph that was generated, in its order: a line `forward` or `backward` with the graph's
number among those of its kind, and the lines of its code that allocate (`make BUFFER ELEMENTS`, the elements that its memory has room
for), write one buffer over another (`take BUFFER FROM`) and free (`free BUFFER`). tests/fixtures/compiled/generated.txt and
whole.txt are made of that.

--nodes prints what the scheduler has before it looks for an order instead, which src/step/forward/compiled/graphs/ writes down: each buffer
with its elements, type and whether the graph returns it, then each node with its operations: what an operation makes, reads, and may
be written over (`~`).
"""
import json
import os
import re
import subprocess
import sys

import harness

PROGRAM = r"""
import json, sys
import torch
import measure, more_switches
import torch._inductor.memory as memory
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V

# compiled at run time, which the null device does not do; what weights hold changes nothing
torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor

def say(**found):
    print("FOUND", json.dumps(found), flush=True)

reorder = memory.reorder_for_peak_memory
def reordered(nodes, *rest):
    graph, scheduler = V.graph, V.graph.scheduler
    def size(name):
        layout = scheduler.name_to_buf[name].node.get_layout() if name in scheduler.name_to_buf else graph.graph_inputs[name].get_layout()
        return (json.loads(json.dumps(list(map(int, layout.size)))), str(layout.dtype).removeprefix("torch.")) if hasattr(layout, "size") else ([0], "tuple")
    users = {}
    for name, buffer in [*scheduler.name_to_buf.items(), *scheduler.name_to_donated_buffer.items()]:
        users[name] = {u.node.get_name() for u in buffer.users or [] if u.can_inplace and hasattr(u.node, "get_name")}
    returned = set(graph.get_output_names())
    listed = []
    for node in nodes:
        ops = []
        for op in node.get_nodes():
            reads = list(dict.fromkeys(d.name for d in op.read_writes.reads))
            ops.append(dict(op=op.get_name(), makes=[b.get_name() for b in op.get_outputs()],
                            reads=[r + ("~" if op.get_name() in users.get(r, ()) else "") for r in reads],
                            call=getattr(getattr(op, "node", None), "python_kernel_name", None) or type(op.node).__name__))
        listed.append(dict(kind=type(node).__name__, ops=ops))
    sizes = {}
    for name in [*graph.graph_inputs, *scheduler.name_to_buf]:
        try:
            sizes[name] = [*size(name), name in returned, name in scheduler.name_to_donated_buffer]
        except Exception:
            sizes[name] = [[0], "none", name in returned, False]
    out = reorder(nodes, *rest)
    say(nodes=listed, sizes=sizes, outputs=list(graph.get_output_names()))
    return out
memory.reorder_for_peak_memory = reordered

codegen = GraphLowering.codegen
def generated(self):
    code = codegen(self)
    text = code[0].value if hasattr(code[0], "value") else code[0]
    say(code=text, backward=bool(self.is_backward))
    return code
GraphLowering.codegen = generated

case = measure.merged(json.loads(sys.argv[1]))
measure.patch_value_reads(case, True)
measure.set_sdpa(case)
model = measure.build_model(case, "cuda")
ids = torch.zeros(case["batch"], case["seq"], dtype=torch.long, device="cuda")
amp = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16}.get(case["dtype"])
with torch.autocast("cuda", dtype=amp or torch.bfloat16, enabled=amp is not None):
    mask = dict(attention_mask=torch.ones_like(ids)) if case["attention_mask"] == "ones" else {}
    loss = model(input_ids=ids, labels=ids.clone(), **mask).loss
loss.backward()
print("DONE", flush=True)
measure.os._exit(0)
"""


def found(case):
    case = dict(dict(optimizer="sgd", compile="layers", head="causal", id="compiled"), **case)
    env = dict(os.environ, LD_PRELOAD=harness.LIBRARY, NULLCUDA_CC=case.pop("cc", "8.0"), HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error",
               PYTHONPATH=os.pathsep.join([harness.FOLDER, os.path.dirname(os.path.abspath(__file__))]), PYTORCH_NVML_BASED_CUDA_CHECK="1",
               NULLCUDA_REMEMBER="1", TRITON_LIBCUDA_PATH=harness.NULL, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
               TORCHINDUCTOR_COMPILE_THREADS="1")
    done = subprocess.run([harness.PYTHON, "-c", PROGRAM, json.dumps(case)], capture_output=True, text=True, env=env)
    if "DONE" not in done.stdout:
        sys.exit("the harness failed:\n" + done.stderr[-3000:])
    lines = [json.loads(line.removeprefix("FOUND ")) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    graphs = []
    for line in lines:
        if "nodes" in line:
            graphs.append(line)
        else:
            graphs[-1].update(line)
    return graphs


def numel(numbers):
    count = 1
    for number in numbers:
        count *= number
    return count


def events(code):
    """The lines of a graph's code that allocate, write over and free."""
    body = re.search(r"    def call\(self, args\):\n(.*?)\n        return ", code, re.S)[1]
    # made since the last launch
    out, fresh = [], set()
    for line in map(str.strip, body.splitlines()):
        take = re.match(r"(\w+) = .*; del (\w+)  # reuse", line)
        make = re.match(r"(\w+) = empty_strided_\w+\(\(([^)]*)\), \(([^)]*)\)", line)
        free = re.match(r"del (\w+)$", line)
        if take:
            # a mean that becomes a scale within one kernel was never there by itself
            if out and take[2] in fresh and out[-1].split()[1] == take[2]:
                kind, _, rest = out[-1].split()
                out[-1] = f"{kind} {take[1]} {rest}"
            else:
                out.append(f"take {take[1]} {take[2]}")
            fresh.add(take[1])
        elif make:
            sizes, strides = ([int(number) for number in re.findall(r"\d+", text)] for text in make.groups()[1:])
            out.append(f"make {make[1]} {1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))}")
            fresh.add(make[1])
        elif free:
            out.append(f"free {free[1]}")
        elif ".run(" in line or "extern_kernels" in line or "torch.ops" in line:
            fresh.clear()
    return out


def main():
    arguments = sys.argv[1:]
    nodes = arguments[:1] == ["--nodes"]
    cases = arguments[nodes:]
    if not cases:
        sys.exit(__doc__)
    for text in cases:
        print("layer", text)
        numbers = dict(forward=0, backward=0)
        for graph in found(json.loads(text)):
            kind = "backward" if graph["backward"] else "forward"
            print(kind, numbers[kind])
            numbers[kind] += 1
            if nodes:
                for name, (size, dtype, returned, donated) in graph["sizes"].items():
                    print(" ", name, "x".join(map(str, size)), dtype, *["returned"] * returned, *["saved"] * donated)
                for node in graph["nodes"]:
                    print("  node", node["kind"])
                    for op in node["ops"]:
                        print("   ", op["op"], op["call"], ",".join(op["makes"]), "<-", *op["reads"])
                print("  returns", *graph["outputs"])
            else:
                print("\n".join(events(graph["code"])))


if __name__ == "__main__":
    main()
