"""Starts vLLM on a model of dummy weights and prints what it found of the card: vllm_budget.py CASE.json

CASE.json has "config", a config.json with "architectures", and "args", the arguments of vllm.LLM. Needs vLLM 0.21 (of torch 2.11) and a
CUDA device; the rows in src/plan/serving.rs were measured on one whose kernels do nothing, with PYTORCH_NVML_BASED_CUDA_CHECK=1,
its library preloaded, and `cuGetProcAddress_v2`, which vLLM's extension asks for, beside it.

Printed are the weights (`model_memory_usage`), the profiling run's peak (`torch_peak_increase`), what is left, and the blocks of the KV
cache that were made of it.
"""
import json
import os
import sys
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING", HF_HUB_OFFLINE="1",
                  VLLM_USE_FLASHINFER_SAMPLER="0")


def main():
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    vllm.platforms._current_platform = NonNvmlCudaPlatform()
    from vllm import LLM
    from vllm.v1.worker import gpu_worker
    case, found = json.load(open(sys.argv[1])), {}
    profile = gpu_worker.Worker.determine_available_memory

    def noted(worker):
        available = profile(worker)
        found.update(requested=int(worker.requested_memory), weights=int(worker.model_runner.model_memory_usage),
                     peak=int(worker.peak_activation_memory), available=int(available))
        return available
    gpu_worker.Worker.determine_available_memory = noted
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(case["config"], file)
        engine = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, **case["args"]).llm_engine
    config, cache = engine.vllm_config, engine.engine_core.engine_core.scheduler.kv_cache_config
    found.update(tokens=config.scheduler_config.max_num_batched_tokens, sequences=config.scheduler_config.max_num_seqs,
                 blocks=cache.num_blocks, groups=[type(group.kv_cache_spec).__name__ for group in cache.kv_cache_groups])
    print(json.dumps(found), flush=True)
    os._exit(0)


main()
