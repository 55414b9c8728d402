#!/usr/bin/env python3
"""Writes which 4-bit products bitsandbytes runs in one kernel, by its own function: tests/fixtures/four-bit-kernels.tsv.

  tools/four_bit_kernels.py > tests/fixtures/four-bit-kernels.tsv       with a Python that has bitsandbytes and torch

A line: compute capability without its point, multiprocessors, type, input and output features, and of the rows in the first line which run
in one kernel, as a hexadecimal number whose lowest bit is of the first of them. Shapes are drawn near the bounds of the function, the same
in every run.
"""
import random

import bitsandbytes
import torch
from bitsandbytes.backends.cuda import ops

ROWS = [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 23, 24, 32, 33, 48, 49, 64, 65, 96, 97, 128, 129, 192, 193, 256, 257, 320, 321, 384, 385, 512, 513,
        1536, 1537]
# with the multiprocessors of a card of each, and of a small Ada
CARDS = [(70, 80), (75, 40), (80, 108), (86, 82), (87, 16), (89, 128), (89, 58), (90, 132), (100, 148), (110, 20), (120, 188), (120, 84), (121, 48)]
# of a card's multiprocessors, at which blocks of 64 output features change what is chosen
WAVES = [1 / 8, 1 / 4, 1 / 3, 1 / 2, 3 / 5, 3 / 4, 4 / 5, 1, 2, 3]
BLOCKS = [36, 48, 64, 128, 200]
EACH = 260


def shapes(multiprocessors, draw):
    """Input and output features."""
    blocks = [round(multiprocessors * wave) for wave in WAVES] + BLOCKS
    while True:
        outer = 64 * max(1, draw.choice(blocks) + draw.randint(-1, 1)) - draw.choice([0, 0, 0, 32])
        near = [outer, outer // 2, outer * 2, outer * 3, 320, 704, 1024, (4 << 20) // outer, multiprocessors * 320 // max(1, outer // 64), draw.randint(1, 20_000)]
        inner = 64 * max(1, draw.choice(near) // 64 + draw.randint(-1, 1))
        # a block of weights ends within a row
        yield (inner - draw.choice([0] * 19 + [32]), outer)


def runs_in_one(dtype, rows, outer, inner):
    # what asks for the function (bitsandbytes::gemm_4bit) sees to these itself
    return rows <= ops._gemm_4bit_custom_max_m and inner % 64 == 0 and ops._gemm_4bit_use_custom_cuda(0, dtype, rows, outer, inner)


def main():
    print(f"# bitsandbytes {bitsandbytes.__version__}\t{' '.join(map(str, ROWS))}")
    for capability, multiprocessors in CARDS:
        ops._gpu_dispatch_props = lambda _: (multiprocessors, *divmod(capability, 10))
        ops._gemm_4bit_use_custom_cuda.cache_clear()
        for name, dtype in [("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)]:
            # only Turing tells the two 16-bit types apart, and a type of 32 bits asks for nothing else
            if name != "bf16" and capability != 75 and (name, capability) != ("fp32", 80):
                continue
            draw, found = shapes(multiprocessors, random.Random(capability)), set()
            while len(found) < (EACH if capability not in (70, 87, 110) else 12):
                found.add(next(draw))
            for inner, outer in sorted(found):
                mask = sum(1 << index for index, rows in enumerate(ROWS) if runs_in_one(dtype, rows, outer, inner))
                print(capability, multiprocessors, name, inner, outer, f"{mask:x}", sep="\t")


main()
