#!/usr/bin/env python3
"""Memory of one rank of a Megatron-core job, measured without GPUs: megatron.core's own layers, schedules, gradient buffers and
distributed optimizer on the null device over a fake process group.

  measure_megatron.py --case '{"id":"a","world":8,"tp":2,"pp":2,"layers":8,"micro":4}'
  measure_megatron.py --cases FILE --out FILE.jsonl

Any rank can be run, so every pipeline stage can be looked at. Collectives return at once and move nothing; every byte is the real
caching allocator's. Not seen: NCCL's buffers. Needs measure.py's environment and `pip install --no-deps megatron-core==0.16.1 einops`; where the
layers are Transformer Engine's also its 2.11 and fused_weight_gradient_mlp_cuda.py, which lies in the folder above (README.md says how).

Keys of a case, with defaults: world 8, rank 0, tp 1, pp 1, vp null (interleaved: layers a virtual stage), ep 1; layers 8, hidden 2048, heads 16,
kv 16, ffn 8192, vocab 32000, experts null, topk 2; seq 2048, batch 1 (micro-batch), micro 4 (micro-batches a step); recompute null |
"full" | "selective"; distopt true (distributed optimizer); fp32_reduce true; tied false; first_stage, last_stage: their layers, null; embedding_split,
loss_split: false, counted as a layer; virtual: how many stages a rank has, in place of vp. qkv_bias false: biases of queries, keys and values, as Qwen2.5's
(--add-qkv-bias); qk_norm false: a norm of each query's and each key's heads, as Qwen3's (--qk-layernorm).
impl "local" (unfused attention, neither sequence nor context parallelism) | "transformer_engine", with sp false (sequence parallelism), cp 1, cp_comm "p2p" |
"a2a", ce null | "te" | "native" (fused cross entropy), head_dim; mla null | [q_lora_rank, kv_lora_rank, three head sizes] with moe_ffn, shared, dense, groups.
dropless false: experts, moe_ffn wide, are given what the router chose, with Megatron-Bridge's settings of Qwen3-MoE; each is given as many (balanced()).
gpt false: GPT-3's layers (LayerNorm, biases, GELU, learned positions) and pretrain_gpt.py's batch, with wgrad_fusion true, attn "fused" | "unfused" | "flash",
dropout 0.0, deterministic false."""
import argparse, json, os, subprocess, sys, time, warnings

HERE = os.path.dirname(os.path.abspath(__file__))
NULL = os.path.join(HERE, "nullcuda", "libcuda.so.1")
DEFAULTS = dict(world=8, rank=0, tp=1, pp=1, vp=None, ep=1, layers=8, hidden=2048, heads=16, kv=16, ffn=8192, vocab=32000, experts=None, topk=2,
                seq=2048, batch=1, micro=4, recompute=None, distopt=True, fp32_reduce=True, tied=False, iters=3,
                impl="local", sp=False, cp=1, cp_comm="p2p", ce=None, head_dim=None,
                mla=None, moe_ffn=None, shared=None, dense=0, groups=None, dropless=False,
                gpt=False, wgrad_fusion=True, attn=None, dropout=0.0, deterministic=False,
                first_stage=None, last_stage=None, embedding_split=False, loss_split=False, virtual=None,
                qkv_bias=False, qk_norm=False)


def balanced():
    """How many tokens each expert is given is read from the GPU, which is not there: as many each, of which the first have one more where they do not
    divide. That is what the loss that balances them aims at. Every other GPU's router chooses as this one's does."""
    import numpy
    import torch
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher as Dispatcher
    read = Dispatcher._maybe_dtoh_and_synchronize

    def answered(self, point, tokens_per_expert=None):
        tokens_per_expert = read(self, point, tokens_per_expert)
        if point != self.cuda_dtoh_point:
            return tokens_per_expert
        chosen = self.routing_map.size(0) * self.config.moe_router_topk
        of_experts = numpy.array([chosen // self.num_experts + (i < chosen % self.num_experts) for i in range(self.num_experts)])
        own = of_experts[self.local_expert_indices]
        if self.input_splits is not None:
            self.input_splits = of_experts.reshape(self.ep_size, self.num_local_experts).sum(axis=1)
            self.output_splits = numpy.full(self.ep_size, own.sum())
            self.output_splits_tp = numpy.full(self.tp_size, own.sum() * self.ep_size)
        return torch.tensor(own * self.ep_size * self.tp_size)

    Dispatcher._maybe_dtoh_and_synchronize = answered


def run(case):
    c = {**DEFAULTS, **{k: v for k, v in case.items() if k != "id"}}
    unknown = set(c) - set(DEFAULTS)
    if unknown:
        raise SystemExit("unknown keys %s" % sorted(unknown))
    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("fake", rank=c["rank"], world_size=c["world"], store=FakeStore())
    torch.cuda.set_device(0)
    import megatron.core
    from megatron.core import parallel_state as ps, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
    from megatron.core.transformer.enums import AttnBackend
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
    from megatron.core.transformer.moe import moe_utils
    vars(moe_utils).setdefault("te_general_gemm", None)      # without Transformer Engine the name is missing and still looked at
    allocated, peak = torch.cuda.memory_allocated, torch.cuda.max_memory_allocated

    # stages that do not hold as many layers each: what the first or the last has, or embedding and loss counted as a layer (arguments.py of Megatron-LM)
    virtual = c["virtual"] or (c["vp"] and (c["layers"] + c["embedding_split"] + c["loss_split"]) // c["pp"] // c["vp"])
    ps.initialize_model_parallel(c["tp"], c["pp"], virtual, expert_model_parallel_size=c["ep"],
                                 context_parallel_size=c["cp"], create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    moe = dict(num_moe_experts=c["experts"], moe_router_topk=c["topk"], moe_token_dispatcher_type="alltoall", moe_grouped_gemm=False,
               moe_router_load_balancing_type="none") if c["experts"] else {}
    if c["dropless"]:
        # Megatron-Bridge's of Qwen3-MoE (models/qwen/qwen3_moe_bridge.py): softmax over the chosen, a loss that balances all tokens
        moe.update(moe_grouped_gemm=True, moe_permute_fusion=True, moe_ffn_hidden_size=c["moe_ffn"], moe_router_pre_softmax=False,
                   moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=1e-3)
        balanced()
    elif c["experts"] and c["moe_ffn"]:
        # each expert is given as many tokens: SimuMax's settings of its deepseek runs
        moe.update(moe_grouped_gemm=True, moe_permute_fusion=True, moe_ffn_hidden_size=c["moe_ffn"], moe_shared_expert_intermediate_size=c["shared"],
                   moe_layer_freq=[0] * c["dense"] + [1] * (c["layers"] - c["dense"]), moe_expert_capacity_factor=1.0, moe_pad_expert_input_to_capacity=True,
                   moe_router_pre_softmax=True, moe_router_topk_scaling_factor=16.0, moe_router_load_balancing_type="seq_aux_loss", moe_aux_loss_coeff=3e-3)
        if c["groups"]:
            moe.update(moe_router_num_groups=c["groups"][0], moe_router_group_topk=c["groups"][1])
    latent = dict(zip(("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"), c["mla"]), qk_layernorm=True, multi_latent_attention=True,
                  rotary_scaling_factor=1.0) if c["mla"] else {}
    full = dict(recompute_method="uniform", recompute_num_layers=1) if c["recompute"] == "full" else {}
    te = c["impl"] == "transformer_engine"
    # core_transformer_config_from_args of Megatron-LM (megatron/training/arguments.py) frees a stage's outputs once they are sent
    fusions = dict(deallocate_pipeline_outputs=True, apply_rope_fusion=True, gradient_accumulation_fusion=True, bias_activation_fusion=True, attention_backend=AttnBackend.auto,
                   sequence_parallel=c["sp"], context_parallel_size=c["cp"], cp_comm_type=c["cp_comm"] if c["cp"] > 1 else None) if te else dict(
                   apply_rope_fusion=False, gradient_accumulation_fusion=False, bias_activation_fusion=False, attention_backend=AttnBackend.unfused)
    fusions.update(cross_entropy_loss_fusion=bool(c["ce"]), cross_entropy_fusion_impl=c["ce"] or "native")
    # GPT-3's layers: LayerNorm, biases everywhere, GELU, positions that are learned
    shape = dict(gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm", add_bias_linear=False, masked_softmax_fusion=False,
                 bias_dropout_fusion=False)
    if c["gpt"]:
        shape = dict(activation_func=torch.nn.functional.gelu, normalization="LayerNorm", add_bias_linear=True, masked_softmax_fusion=True, bias_dropout_fusion=True,
                     attention_softmax_in_fp32=True)
        fusions.update(bias_activation_fusion=True, deallocate_pipeline_outputs=True, gradient_accumulation_fusion=te and c["wgrad_fusion"])
        if c["attn"]:
            fusions["attention_backend"] = AttnBackend[c["attn"]]
        if c["deterministic"]:
            shape["deterministic_mode"] = True
            torch.use_deterministic_algorithms(True)
    if c["qkv_bias"]:
        shape["add_qkv_bias"] = True
    if c["qk_norm"]:
        shape["qk_layernorm"] = True
    if c["head_dim"]:
        fusions["kv_channels"] = c["head_dim"]
    if c["mla"]:
        from megatron.core.config import set_experimental_flag
        set_experimental_flag(True)     # the rotary positions of latent attention as one kernel
    config = (MLATransformerConfig if c["mla"] else TransformerConfig)(
        num_layers=c["layers"], hidden_size=c["hidden"], num_attention_heads=c["heads"], num_query_groups=c["kv"], ffn_hidden_size=c["ffn"],
        tensor_model_parallel_size=c["tp"], pipeline_model_parallel_size=c["pp"], expert_model_parallel_size=c["ep"],
        virtual_pipeline_model_parallel_size=virtual, num_layers_in_first_pipeline_stage=c["first_stage"], num_layers_in_last_pipeline_stage=c["last_stage"],
        account_for_embedding_in_pipeline_split=c["embedding_split"], account_for_loss_in_pipeline_split=c["loss_split"],
        bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, attention_dropout=c["dropout"], hidden_dropout=c["dropout"],
        recompute_granularity=c["recompute"], perform_initialization=False, **shape, **fusions, **full, **moe, **latent)
    if te:
        from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_layer_with_transformer_engine_spec
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=True) if c["moe_ffn"] else get_gpt_layer_with_transformer_engine_spec(
            num_experts=c["experts"], moe_grouped_gemm=bool(c["experts"]), qk_layernorm=bool(c["mla"]) or c["qk_norm"], multi_latent_attention=bool(c["mla"]))
    else:
        spec = get_gpt_layer_local_spec(num_experts=c["experts"], moe_grouped_gemm=False, qk_layernorm=c["qk_norm"], normalization=config.normalization)
    chunks = []
    for i in range(config.virtual_pipeline_model_parallel_size or 1):
        vp = dict(vp_stage=i) if virtual else {}
        first = ps.is_pipeline_first_stage(ignore_virtual=not virtual, **vp) if c["pp"] > 1 else True
        last = ps.is_pipeline_last_stage(ignore_virtual=not virtual, **vp) if c["pp"] > 1 else True
        model = GPTModel(config, spec, c["vocab"], c["seq"], pre_process=first, post_process=last, position_embedding_type="learned_absolute" if c["gpt"] else "rope",
                         share_embeddings_and_output_weights=c["tied"], **vp)
        chunks.append(model.cuda().bfloat16())
    params = sum(p.numel() for m in chunks for p in m.parameters())
    at = dict(after_load=allocated())
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=c["distopt"], grad_reduce_in_fp32=c["fp32_reduce"])
    chunks = [DistributedDataParallel(config, ddp, m) for m in chunks]
    at["after_buffers"] = allocated()
    opt = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-4, bf16=True, params_dtype=torch.bfloat16, clip_grad=1.0,
                                                 use_distributed_optimizer=c["distopt"]), chunks, use_gloo_process_groups=False)
    at["after_optimizer_built"] = allocated()

    def forward_step(data, model):
        if c["gpt"]:
            return published_step(model)
        length = c["seq"] // c["cp"]
        ids = torch.zeros(c["batch"], length, dtype=torch.long, device="cuda")
        positions = torch.arange(length, device="cuda").expand(c["batch"], -1).contiguous()
        mask = None if te else torch.zeros(1, 1, c["seq"], c["seq"], dtype=torch.bool, device="cuda")
        out = model(ids, positions, mask, labels=ids)

        def loss(output):
            value = output.float().mean()
            return value, dict(loss=value.detach())
        return out, loss

    def published_step(model):
        """pretrain_gpt.py: a batch with its mask, which loads on every stage that looks tokens up or has labels."""
        ids = torch.zeros(c["batch"], c["seq"], dtype=torch.long, device="cuda")
        labels, loss_mask, positions = torch.zeros_like(ids), torch.zeros(c["batch"], c["seq"], device="cuda"), torch.zeros_like(ids)
        mask = torch.zeros(c["batch"] if te else 1, 1, c["seq"], c["seq"], dtype=torch.bool, device="cuda")
        out = model(ids, positions, mask, labels=labels)

        def loss(output):
            value = torch.sum(output.view(-1).float() * loss_mask.view(-1).float())
            return value, dict(loss=value.detach())
        return out, loss

    def batches():
        while True:
            yield {}

    iterations = []
    for _ in range(c["iters"]):
        torch.cuda.reset_peak_memory_stats()
        for m in chunks:
            m.zero_grad_buffer()
        opt.zero_grad()
        get_forward_backward_func()(forward_step_func=forward_step, data_iterator=[batches() for _ in chunks] if virtual else batches(), model=chunks,
                                    num_microbatches=c["micro"], seq_length=c["seq"], micro_batch_size=c["batch"], forward_only=False)
        forward_backward, between = peak(), allocated()
        torch.cuda.reset_peak_memory_stats()
        opt.step()
        iterations.append(dict(forward_backward=forward_backward, between=between, step=peak(), after=allocated(),
                               overall=max(forward_backward, peak())))
    stats = torch.cuda.memory_stats()
    return dict(id=case.get("id"), source="null-device", versions=dict(torch=torch.__version__, megatron_core=megatron.core.__version__),
                device=dict(cc=os.environ["NULLCUDA_CC"]), case=c,
                measured=dict(params=dict(on_rank=params), bytes=at, peak=dict(first=iterations[0], steady=iterations[-1],
                              overall=max(i["overall"] for i in iterations)), reserved=dict(peak_stat=stats["reserved_bytes.all.peak"])))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--case"); ap.add_argument("--cases"); ap.add_argument("--out"); ap.add_argument("--inline", action="store_true")
    ap.add_argument("--cc", default="9.0"); ap.add_argument("--timeout", type=float, default=240)
    args = ap.parse_args()
    if args.inline:
        try:
            r = run(json.loads(args.case))
        except BaseException as e:      # noqa
            r = dict(id=json.loads(args.case).get("id"), case=json.loads(args.case), error="%s: %s" % (type(e).__name__, str(e)[-300:]))
        print("\nRESULT " + json.dumps(r, separators=(",", ":")), flush=True)
        os._exit(0)
    out = open(args.out, "w") if args.out else None
    for case in [json.loads(args.case)] if args.case else json.load(open(args.cases)):
        env = dict(os.environ, LD_PRELOAD=NULL, NULLCUDA_CC=args.cc, TRITON_LIBCUDA_PATH=os.path.dirname(NULL), NULLCUDA_REMEMBER="1", PYTORCH_NVML_BASED_CUDA_CHECK="1")
        t = time.time()
        try:
            p = subprocess.run([sys.executable, os.path.abspath(__file__), "--inline", "--case", json.dumps(case)], env=env, capture_output=True, text=True, timeout=args.timeout)
            lines = [l for l in p.stdout.splitlines() if l.startswith("RESULT ")]
            r = json.loads(lines[-1][7:]) if lines else dict(id=case.get("id"), error="no result: " + p.stderr[-300:])
        except subprocess.TimeoutExpired:
            r = dict(id=case.get("id"), error="timeout")
        if out:
            out.write(json.dumps(r, separators=(",", ":")) + "\n"); out.flush()
        g = 2.0 ** 30
        print("%-46s %s" % (case.get("id"), "ERROR " + r["error"][-200:] if r.get("error") else "load %.2f built %.2f peak %.2f (f+b %.2f step %.2f) reserved %.2f GiB  %.0fs" % (
            r["measured"]["bytes"]["after_load"] / g, r["measured"]["bytes"]["after_optimizer_built"] / g, r["measured"]["peak"]["overall"] / g,
            r["measured"]["peak"]["steady"]["forward_backward"] / g, r["measured"]["peak"]["steady"]["step"] / g, r["measured"]["reserved"]["peak_stat"] / g, time.time() - t)), flush=True)


if __name__ == "__main__":
    main()
