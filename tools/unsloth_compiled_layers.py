#!/usr/bin/env python3
"""What inductor makes of the layers that Unsloth compiles: the lines of the code that allocate, write over and free.

  tools/unsloth_compiled_layers.py ROW.json ...

ROW.json is one as tools/unsloth_steps.py takes it, whose packages this needs, on PYTHONPATH beside the null device's folder; LD_PRELOAD and the rest as
tools/null_device/README.md says. Prints for each a line `layer CASE`, then the graphs in the order in which they are generated (forward, its backward, and
`answered`: forward without gradients), in the form of tools/compiled_layers.py with sizes in numbers; a pool's are its bytes. What is let go of is printed of buffers
that a graph makes, and of pools. tests/fixtures/compiled/unsloth.txt is made of that.
"""
import json
import os
import re
import subprocess
import sys

import compiled_layers

PROGRAM = r"""
import json, os, sys
os.environ["UNSLOTH_COMPILE_DISABLE"] = "0"
import unsloth_steps
from torch._inductor.graph import GraphLowering
codegen = GraphLowering.codegen
def generated(self):
    code = codegen(self)
    print("FOUND", json.dumps(code[0].value if hasattr(code[0], "value") else code[0]), flush=True)
    return code
GraphLowering.codegen = generated
unsloth_steps.main()
os._exit(0)
"""


def numbers(code, case):
    """The code with its symbols and sizes as numbers."""
    symbols = list(dict.fromkeys(re.findall(r"^ +(s\d+) = (?:primals|arg)", code, re.M)))
    for symbol, size in zip(symbols, [case["batch"], case["seq"]][-len(symbols):]):
        code = re.sub(rf"\b{symbol}\b", str(size), code)
    names = dict(max=max, align=lambda size: -(-size // 64) * 64)

    def evaluated(match):
        *shapes, _ = eval(f"({match[2]}, None)", names)
        return f"{match[1]}({', '.join(map(str, shapes))}, {match[3]}"

    return re.sub(r"(empty_strided_cuda)\((.*), (torch\.\w+\))", evaluated, code)


def events(code, case):
    lines = compiled_layers.events(numbers(code, case))
    return [line for line in lines if not line.startswith("free") or re.match(r"free buf\d", line)]


def pooled(code, case):
    """The same of code whose buffers have places in pools."""
    body = re.search(r"    def call\(self, args\):\n(.*?)\n        return ", numbers(code, case), re.S)[1]
    lines = []
    for line in map(str.strip, body.splitlines()):
        make = re.match(r"(pool\d+) = empty_strided_\w+\((\(.*?\)), (\(.*?\)), torch\.(\w+)\)", line)
        if make:
            count = compiled_layers.numel(eval(make[2]))
            lines.append(f"make {make[1]} {count * dict(uint8=1, bfloat16=2, float16=2, float32=4)[make[4]]}")
        free = re.match(r"del (pool\d+|buf\d+)", line)
        if free:
            lines.append(f"free {free[1]}")
    return lines


def main():
    for path in sys.argv[1:] or sys.exit(__doc__):
        row = json.load(open(path))
        case = row.get("case", row)
        done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, env=dict(os.environ, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", TORCHINDUCTOR_COMPILE_THREADS="1"))
        codes = [json.loads(line.removeprefix("FOUND ")) for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        if not codes:
            sys.exit(done.stderr[-2000:])
        print("layer", json.dumps(case))
        for kind, code in zip(("forward", "backward", "answered"), codes):
            print(kind)
            print("\n".join((pooled if kind == "answered" else events)(code, case)))


if __name__ == "__main__":
    main()
