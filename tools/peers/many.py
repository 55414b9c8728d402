"""The published rows of Megatron-LM on several GPUs, and the calculators that know of several.

The rows are SimuMax's ranks of 8 B200 (`clusters`) and Megatron-LM's own tests (`megatron-lm`). A calculator that has one number for all
GPUs means the first stage of a pipeline: of others' stages it says nothing. Reserved memory is SimuMax's alone.
"""
import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import python_peers
import rows
from rows import CannotSay

MIB = 1 << 20
GIB = 1 << 30
FILES = ("clusters", "megatron-lm")


@dataclass
class Row:
    """A figure of one rank, and the run that it is of."""

    id: str
    metric: str
    config: dict
    case: str
    tensor: int
    pipeline: int
    stage: int
    context: int
    experts: int
    gpus: int
    sequence_parallel: bool
    distributed: bool
    checkpoint: bool
    batch: int
    micro_batches: int
    length: int

    def is_of_first_stage(self):
        """Stops where one number for the first stage, of GPUs that do not divide sequences, has nothing to say."""
        if self.metric == "reserved":
            raise CannotSay("reserved")
        if self.stage > 1:
            raise CannotSay("stage")
        if self.context > 1:
            raise CannotSay("context")

    @property
    def data(self):
        return self.gpus // (self.tensor * self.pipeline * self.context)


def dense(config):
    """The dimensions in llama's keys; gpt2's layers have two matrices in the feed-forward."""
    if config["model_type"] != "gpt2":
        return config | {"gated": True}
    return {
        "model_type": "gpt2",
        "gated": False,
        "hidden_size": config["n_embd"],
        "intermediate_size": config["n_inner"],
        "num_hidden_layers": config["n_layer"],
        "num_attention_heads": config["n_head"],
        "num_key_value_heads": config["num_query_groups"],
        "vocab_size": config["vocab_size"],
        "tie_word_embeddings": config["tie_word_embeddings"],
    }


def read(root):
    """The rows of both files that data/measured.tsv has."""
    measured = {line["run"] for line in rows.measured(root) if line["file"] in FILES}
    for file in FILES:
        for row in json.loads((Path(root) / f"data/measurements/{file}.json").read_text()):
            scenario = row["reading"]["scenario"]
            if row["id"] not in measured:
                continue
            yield Row(
                id=row["id"],
                metric=row["reading"]["metric"],
                config=dense(scenario["model"]["config"]),
                case=row["source"]["key"].partition("case=")[2].partition("]")[0],
                tensor=scenario["tp"],
                pipeline=scenario["pp"],
                stage=scenario["pipeline-stage"],
                context=scenario.get("cp", 1),
                experts=scenario.get("expert-parallel", 1),
                gpus=scenario["gpus"],
                sequence_parallel=scenario["sequence-parallel"],
                distributed=scenario["shard"] == "dist-opt",
                checkpoint=scenario["gradient-checkpointing"] == "on",
                batch=scenario["batch-size"],
                micro_batches=scenario["gradient-accumulation"],
                length=scenario["seq-length"],
            )


class SimuMax:
    """SimuMax 1.2: not run, but as its authors published it beside what they measured, to four digits of a GiB.

    `peak_alloc_by_stage_gib` is set beside the ranks of that stage, `perf_peak_reserved_gib` beside what all ranks reserved. The file's notes
    say that the predictions were refreshed after the model was corrected, with the measurements at hand.
    """

    key = "simumax"
    file = "docs/b200/b200_release_v1.2_summary.json"
    blob = "1aaf0ee39889fc37ea599dfaa660fef5a34be6e3"

    @staticmethod
    def have(paths):
        return paths.simumax

    def __init__(self, paths):
        found = json.loads((Path(paths.simumax) / self.file).read_text())
        self.cases = {row["case"]: row for row in found["rows"]}

    def predict(self, row):
        if row.case not in self.cases:
            raise CannotSay("unpublished")
        case = self.cases[row.case]
        if row.metric == "reserved":
            return case["perf_peak_reserved_gib"] * GIB
        return case["peak_alloc_by_stage_gib"]["first_stage" if row.stage == 1 else "last_stage"] * GIB


class Megatron:
    """Megatron-LM's theoretical_memory_usage.py, through report_theoretical_memory with the arguments that a run's command has.

    Read: dimensions, latent attention, experts, tensor, pipeline and expert parallelism, sequence parallelism, distributed optimizer,
    micro-batches, micro-batch, length. No input: recomputed layers, context parallelism. It chooses its formula by selective recomputation,
    which under flash attention drops nothing: where sequences are shared it is told of it, as its other formula knows none.
    """

    key = "megatron"
    file = "megatron/training/theoretical_memory_usage.py"
    blob = "ee398d3bf66907fef73f154334a4b49f5ac3661e"

    @staticmethod
    def have(paths):
        return paths.megatron

    def __init__(self, paths):
        package, utils = ModuleType("megatron_training"), ModuleType("megatron_training.utils")
        package.__path__, utils.print_rank_0, utils.is_hybrid_model = [], lambda *_: None, lambda _: False
        sys.modules |= {"megatron_training": package, "megatron_training.utils": utils}
        self.module = python_peers.load(Path(paths.megatron) / self.file, "megatron_training.theoretical")

    def predict(self, row):
        row.is_of_first_stage()
        if row.checkpoint:
            raise CannotSay("recomputing")
        config = row.config
        heads, is_latent, experts = config["num_attention_heads"], "kv_lora_rank" in config, config.get("n_routed_experts")
        first_dense = config.get("first_k_dense_replace", 0)
        args = SimpleNamespace(
            hidden_size=config["hidden_size"],
            kv_channels=config.get("head_dim") or config["hidden_size"] // heads,
            num_attention_heads=heads,
            group_query_attention=not is_latent,
            num_query_groups=config["num_key_value_heads"],
            multi_latent_attention=is_latent,
            q_lora_rank=config.get("q_lora_rank"),
            kv_lora_rank=config.get("kv_lora_rank"),
            qk_head_dim=config.get("qk_nope_head_dim"),
            qk_pos_emb_head_dim=config.get("qk_rope_head_dim"),
            v_head_dim=config.get("v_head_dim"),
            num_experts=experts,
            moe_layer_freq=[int(layer >= first_dense) for layer in range(config["num_hidden_layers"])],
            moe_ffn_hidden_size=config.get("moe_intermediate_size"),
            moe_shared_expert_intermediate_size=config["n_shared_experts"] * config["moe_intermediate_size"] if experts else None,
            moe_router_topk=config.get("num_experts_per_tok"),
            moe_latent_size=None,
            mtp_num_layers=None,
            num_layers=config["num_hidden_layers"],
            ffn_hidden_size=config["intermediate_size"],
            swiglu=config["gated"],
            add_bias_linear=not config["gated"],
            normalization="RMSNorm" if config["gated"] else "LayerNorm",
            padded_vocab_size=config["vocab_size"],
            untie_embeddings_and_output_weights=not config["tie_word_embeddings"],
            world_size=row.gpus,
            tensor_model_parallel_size=row.tensor,
            expert_tensor_parallel_size=1,
            expert_model_parallel_size=row.experts,
            pipeline_model_parallel_size=row.pipeline,
            virtual_pipeline_model_parallel_size=None,
            data_parallel_size=row.data,
            use_distributed_optimizer=row.distributed,
            seq_length=row.length,
            micro_batch_size=row.batch,
            sequence_parallel=row.sequence_parallel,
            recompute_granularity="selective" if row.sequence_parallel else None,
        )
        with contextlib.redirect_stdout(io.StringIO()):
            _, _, total = self.module.report_theoretical_memory(args, num_microbatches=row.micro_batches)
        return total * MIB


class Cookbook(python_peers.Cookbook):
    """EleutherAI's calculator for several GPUs: tensor and pipeline parallelism, ZeRO-1 for the distributed optimizer, and activations
    shared by tensor-parallel GPUs where sequences are. Buckets of DeepSpeed's, which Megatron has none of, are set to nothing."""

    def predict(self, row):
        row.is_of_first_stage()
        if row.experts > 1:
            raise CannotSay("experts")
        options = {
            "num-gpus": row.gpus,
            "tensor-parallel-size": row.tensor,
            "pipeline-parallel-size": row.pipeline,
            "zero-stage": int(row.distributed),
            "zero-allgather-bucket-size": 0,
        }
        flags = ["--partition-activations"] if row.sequence_parallel else []
        return self.ask(row.config, row.config["gated"], row, options, flags)


class LlmAnalysis(python_peers.LlmAnalysis):
    """llm-analysis for several GPUs: tensor, pipeline and sequence parallelism, ZeRO-1 for the distributed optimizer; gradients and AdamW's
    states with a copy of the weights in float32, as Megatron keeps them. Latent attention has no input in it."""

    def predict(self, row):
        row.is_of_first_stage()
        if row.experts > 1:
            raise CannotSay("experts")
        zero = self.analysis.DSZeRO.STAGE_1 if row.distributed else self.analysis.DSZeRO.NONE
        parallelism = self.config.ParallelismConfig(
            tp_size=row.tensor,
            pp_size=row.pipeline,
            dp_size=row.data,
            sp_size=row.tensor if row.sequence_parallel else 1,
        )
        return self.ask(row.config, row.config["gated"], row, parallelism, {"ds_zero": zero})


PEERS = [SimuMax, Megatron, LlmAnalysis, Cookbook]
