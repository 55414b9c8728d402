"""Stands in for flash-attn's compiled extension on a machine without a GPU: allocates what its C++ allocates, and computes
nothing.

Source: csrc/flash_attn/flash_api.cpp of flash-attn 2.8.4 (`mha_fwd`, `mha_varlen_fwd`, `mha_bwd`, `mha_varlen_bwd`). The
package's own Python, which a checkout of it has, runs over it: put that checkout's folder and this one on PYTHONPATH.
"""
import math

import torch


def rounded(number, multiple):
    return -(-number // multiple) * multiple


def width(head):
    return rounded(head, 32 if head <= 128 else 64)


def floats(*shape):
    return torch.empty(shape, dtype=torch.float32, device="cuda")


def splits(blocks, multiprocessors, keys):
    """`num_splits_heuristic`."""
    if blocks >= 0.8 * multiprocessors:
        return 1
    most = min(128, multiprocessors, keys)
    eligible = [n for n in range(1, most + 1) if n == 1 or math.ceil(keys / n) != math.ceil(keys / (n - 1))]
    waves = {n: blocks * n / multiprocessors for n in eligible}
    efficiency = {n: waves[n] / math.ceil(waves[n]) for n in eligible}
    best = max(efficiency.values())
    return next(n for n in eligible if efficiency[n] >= 0.85 * best)


def seed():
    return torch.empty(2, dtype=torch.int64, device="cuda")


def fwd(q, k, v, out, alibi, p, scale, causal, left, right, softcap, return_softmax, generator):
    batch, sequence, heads, head = q.shape
    out = torch.empty_like(q)
    sums = floats(batch, heads, sequence)
    nothing = torch.empty(0, dtype=q.dtype, device=q.device)
    partial = None
    if p == 0:
        block = 256 if head <= 64 else 128 if head <= 128 else 64
        multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        count = splits(batch * heads * math.ceil(sequence / 64), 2 * multiprocessors, math.ceil(k.shape[1] / block))
        if count > 1:
            partial = floats(count, batch, heads, sequence), floats(count, batch, heads, sequence, width(head))
    state = seed()
    del partial
    return out, sums, nothing, state


def varlen_fwd(q, k, v, out, starts_q, starts_k, used, pad, table, alibi, longest_q, longest_k, p, scale, zeros, causal,
               left, right, softcap, return_softmax, generator, count=0):
    tokens, heads, _ = q.shape
    out = torch.empty_like(q)
    sums = floats(heads, tokens)
    nothing = torch.empty(0, dtype=q.dtype, device=q.device)
    return out, sums, nothing, seed()


def backward(q, k, dq, dk, dv, sums, accumulator):
    sums, accumulator = floats(*sums), floats(*accumulator)
    if q.shape[-2] != k.shape[-2]:
        # one gradient per head of queries, summed into those of their keys
        shape = (*k.shape[:-2], *q.shape[-2:])
        expanded = [torch.empty(shape, dtype=q.dtype, device=q.device) for _ in "kv"]
        del expanded
    del accumulator
    return dq, dk, dv, sums


def bwd(dout, q, k, v, out, sums, dq, dk, dv, alibi, p, scale, causal, left, right, softcap, deterministic, generator, state):
    batch, sequence, heads, head = q.shape
    rows = rounded(sequence, 128)
    return backward(q, k, dq, dk, dv, (batch, heads, rows), (batch, rows, heads, width(head)))


def varlen_bwd(dout, q, k, v, out, sums, dq, dk, dv, starts_q, starts_k, alibi, longest_q, longest_k, p, scale, zeros,
               causal, left, right, softcap, deterministic, generator, state):
    tokens, heads, head = q.shape
    rows = tokens + 128 * (starts_q.numel() - 1)
    return backward(q, k, dq, dk, dv, (heads, rows), (rows, heads, width(head)))
