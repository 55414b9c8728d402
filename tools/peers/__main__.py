#!/usr/bin/env python3
"""Asks other calculators about the published rows of data/measured.tsv, by their own code, and writes data/peers.tsv (runs of one GPU) and
data/peers-many.tsv (of several, under Megatron-LM).

    pip install fitcheck-llm==0.3.1 ftuneai==0.4.1 pyyaml fire
    pip install --no-deps llm-analysis==0.2.2
    pip install accelerate==1.15.0 transformers==5.17.0 torch==2.11.0
    npm install esbuild@0.25.12 decimal.js@10.4.3
    tools/peers --gpu-poor DIR --unsloth DIR --cookbook DIR --llmvram DIR --megatron DIR --simumax DIR

The folders are checkouts: RahulSChand/gpu_poor@ad2fc0e, unslothai/unsloth@015bdef, EleutherAI/cookbook@827ee3b, fjacquet/llmvram@ace8852,
NVIDIA/Megatron-LM@d98e8a6 and MooreThreads/SimuMax@4dcaae5; a file of another content is refused. llmvram needs esbuild and decimal.js in the working folder's node_modules. Calculators that are not there are
left as they are in the file, so that they may be asked in several environments; `--only KEY` asks one.

What each is told of a row, and what it has no input for, stands with it in python_peers.py, node_peers.py and, for several GPUs, many.py. Where it has none for something
that the row states it gives no number, and the cell names what. Of what has no place in any of them (dropout, texts of different lengths, the
training library, float16's scaler) nothing is said, to none of them. Every reading is the most favourable one that is reasonable.
"""
import argparse
import hashlib
import sys
from pathlib import Path

import many
import node_peers
import python_peers
import rows

ROOT = Path(__file__).resolve().parents[2]

# In the order of the columns: the key, the name, the code as it was run.
NAMED = [
    ("fitcheck", "fitcheck 0.3.1", "https://pypi.org/project/fitcheck-llm/0.3.1/"),
    ("unsloth", "Unsloth Studio 015bdef",
     "https://github.com/unslothai/unsloth/blob/015bdef/studio/backend/utils/hardware/vram_estimation.py"),
    ("gpu_poor", "gpu_poor ad2fc0e", "https://github.com/RahulSChand/gpu_poor/tree/ad2fc0e"),
    ("llmvram", "llmvram ace8852", "https://github.com/fjacquet/llmvram/tree/ace8852"),
    ("ftune", "ftune 0.4.1", "https://pypi.org/project/ftuneai/0.4.1/"),
    ("llm_analysis", "llm-analysis 0.2.2", "https://pypi.org/project/llm-analysis/0.2.2/"),
    ("accelerate", "accelerate 1.15.0", "https://pypi.org/project/accelerate/1.15.0/"),
    ("cookbook", "EleutherAI cookbook 827ee3b", "https://github.com/EleutherAI/cookbook/tree/827ee3b"),
    ("megatron", "Megatron-LM d98e8a6",
     "https://github.com/NVIDIA/Megatron-LM/blob/d98e8a6/megatron/training/theoretical_memory_usage.py"),
    ("simumax", "SimuMax 1.2", "https://github.com/MooreThreads/SimuMax/blob/4dcaae5/docs/b200/b200_release_v1.2_summary.json"),
]


def blob(path):
    """What Git calls the content of a file."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def kept(file):
    """The cells of a file as it is: by row, by calculator."""
    cells, keys = {}, []
    for line in file.read_text().splitlines() if file.exists() else []:
        first, *others = line.split("\t")
        if first == "row":
            keys = others
        elif first not in ("peer", "reason") and keys:
            cells[first] = dict(zip(keys, others))
    return cells


def answers(peer, asked, paths):
    """What a calculator says of each row, if it is there."""
    if not peer.have(paths):
        print(f"{peer.key}: left as it was", file=sys.stderr)
        return None
    if hasattr(peer, "blob") and blob(Path(peer.have(paths)) / peer.file) != peer.blob:
        sys.exit(f"{peer.file} is not the one whose figures are kept")
    calculator = peer(paths)
    said = calculator.predict_all(asked) if hasattr(peer, "predict_all") else {row.id: answer(calculator, row) for row in asked}
    print(f"{peer.key}: asked about {len(asked)}", file=sys.stderr)
    return {id: str(one if isinstance(one, rows.CannotSay) else round(one)) for id, one in said.items()}


def answer(calculator, row):
    """What it says of a row: bytes, or what it has no input for."""
    try:
        return calculator.predict(row)
    except rows.CannotSay as error:
        return error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gpu-poor", "unsloth", "cookbook", "llmvram", "megatron", "simumax"):
        parser.add_argument(f"--{name}", metavar="DIR", help="a checkout of it")
    parser.add_argument("--only", metavar="KEY", help="ask one calculator: " + ", ".join(key for key, *_ in NAMED))
    paths = parser.parse_args()

    write(ROOT / "data/peers.tsv", list(rows.read(ROOT)), python_peers.PEERS + node_peers.PEERS, paths)
    write(ROOT / "data/peers-many.tsv", list(many.read(ROOT)), many.PEERS, paths)


def write(file, asked, peers, paths):
    """Writes what calculators say of rows; of those that are not asked, what the file has."""
    before = kept(file)
    found = {peer.key: paths.only in (None, peer.key) and answers(peer, asked, paths) for peer in peers}
    named = [one for one in NAMED if one[0] in found]
    cells = {row.id: before.get(row.id, {}) | {key: said[row.id] for key, said in found.items() if said} for row in asked}
    told = {cell for row in cells.values() for cell in row.values()}
    lines = [("peer", *one) for one in named]
    lines += [("reason", *reason) for reason in rows.REASONS.items() if reason[0] in told]
    lines += [("row", *(key for key, *_ in named))]
    lines += [(id, *(row.get(key, "") for key, *_ in named)) for id, row in cells.items()]
    file.write_text("".join("\t".join(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
