"""Starts vLLM on a model of dummy weights and prints what it found of the card: vllm_budget.py CASE.json

CASE.json has "config", a config.json with "architectures", and "args", the arguments of vllm.LLM. Needs vLLM 0.21 (of torch 2.11) and a
CUDA device; the rows of data/vllm.tsv were measured on one whose kernels do nothing, with PYTORCH_NVML_BASED_CUDA_CHECK=1,
its library preloaded, and `cuGetProcAddress_v2`, which vLLM's extension asks for, beside it.

With "tensor_parallel_size" among the arguments it is rank 0 of so many, as vLLM starts under a launcher of somebody else
(`external_launcher`): the process group is PyTorch's fake one, and NCCL's library one that does nothing, so that a reduction allocates what
it writes to and moves nothing. vLLM's own all-reduce is off: it is for less than 8 MiB, and its buffers are taken before the card is looked at, as NCCL's are.

Printed are the weights (`model_memory_usage`), the profiling run's peak (`torch_peak_increase`), what is left, the blocks of the KV
cache that were made of it, its groups with their layers, and how many sequences of max_model_len run at once. Of a model that sees, whose tokenizer and
processor vllm_processors.py makes up, also what the run is shown ("modality", tokens "per_item", "items", the "budget" of tokens) and bytes of what it is "given", of what is
"made" of that and of the most that the "tower" has beside it. NULLCUDA_REMEMBER=1 is in the environment then.
"""
import json
import os
import sys
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING", HF_HUB_OFFLINE="1",
                  VLLM_USE_FLASHINFER_SAMPLER="0")


# numbers that say how large pictures are, not where each patch lies
FEW = 256


class Silent:
    """NCCL's library without a wire: everything is done at once."""

    def __init__(self, path=None):
        del path

    def __getattr__(self, name):
        from vllm.distributed.device_communicators.pynccl_wrapper import ncclUniqueId
        return {"ncclGetUniqueId": ncclUniqueId, "ncclGetRawVersion": lambda: 22809}.get(name, lambda *_: None)


def first_of(ranks):
    """Makes this process rank 0 of so many that are not there."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import pynccl, shm_broadcast
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    start, group = dist.init_process_group, dist.new_group
    dist.init_process_group = lambda **_: start(backend="fake", store=FakeStore(), rank=0, world_size=ranks)
    dist.new_group = lambda members=None, **_: group(members, backend="fake")
    pynccl.NCCLLibrary = Silent
    parallel_state._node_count = lambda _: 1
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)


def try_out_once():
    """Triton's autotuner tries a kernel as often as it is fast, and here all take no time: each runs once, beside the buffer that is cleared before."""
    from triton.backends.nvidia.driver import CudaDriver

    def once(driver):
        def bench(kernel, quantiles=None, **_):
            cleared = driver.get_empty_cache_for_benchmark()
            kernel()
            del cleared
            return [1.0] * len(quantiles) if quantiles else 1.0
        return bench
    CudaDriver.get_benchmarker = once


def watch_pictures(runner, found):
    """Notes what the profiling run is given of pictures, what it makes of them, and the most that is alive meanwhile. Whole numbers, of which
    the device would give back zeros (sizes, how many tiles), stay where they were made."""
    import torch
    run, batch = runner.profile_run, runner._get_mm_dummy_batch

    def given_numbers(self, *args):
        device, self.device = self.device, torch.device("cpu")
        try:
            made = batch(self, *args)
        finally:
            self.device = device

        def put(value):
            if isinstance(value, (list, tuple)):
                return [put(one) for one in value]
            on_device = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.numel() > FEW)
            return value.to(device) if on_device else value
        return {key: put(value) for key, value in made.items()}
    runner._get_mm_dummy_batch = given_numbers

    def noted(self):
        budget = self.mm_budget if self.supports_mm_inputs else None
        if budget and budget.mm_max_toks_per_item:
            kind = budget.get_modality_with_max_tokens()
            embed = self.model.embed_multimodal

            def embedded(**given):
                before = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()
                made = embed(**given)
                given = [one for value in given.values() for one in (value if isinstance(value, (list, tuple)) else [value])]
                given = [one for one in given if isinstance(one, torch.Tensor) and one.is_cuda]
                found.update(given=sum(one.nbytes for one in given), made=sum(one.nbytes for one in made),
                             tower=torch.cuda.max_memory_allocated() - before, kept=torch.cuda.memory_allocated() - before)
                return made
            self.model.embed_multimodal = embedded
            found.update(modality=kind, per_item=dict(budget.mm_max_toks_per_item), items=budget.mm_max_items_per_batch[kind], budget=budget.get_encoder_budget())
        run(self)
    runner.profile_run = noted


def main():
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    vllm.platforms._current_platform = NonNvmlCudaPlatform()
    from vllm import LLM
    from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config
    from vllm.v1.worker import gpu_model_runner, gpu_worker
    import vllm_processors
    case, found = json.load(open(sys.argv[1])), {}
    args, ranks = dict(case["args"]), case["args"].get("tensor_parallel_size", 1)
    if ranks > 1:
        first_of(ranks)
        args.update(distributed_executor_backend="external_launcher", disable_custom_all_reduce=True)
    profile = gpu_worker.Worker.determine_available_memory

    def noted(worker):
        available = profile(worker)
        found.update(requested=int(worker.requested_memory), weights=int(worker.model_runner.model_memory_usage),
                     peak=int(worker.peak_activation_memory), available=int(available))
        return available
    gpu_worker.Worker.determine_available_memory = noted
    try_out_once()
    watch_pictures(gpu_model_runner.GPUModelRunner, found)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(case["config"], file)
        if not vllm_processors.save(case["config"], folder):
            args["skip_tokenizer_init"] = True
        engine = LLM(model=folder, load_format="dummy", **args).llm_engine
    config, cache = engine.vllm_config, engine.engine_core.engine_core.scheduler.kv_cache_config
    groups = [[type(group.kv_cache_spec).__name__, len(group.layer_names), group.kv_cache_spec.page_size_bytes]
              for group in cache.kv_cache_groups]
    found.update(tokens=config.scheduler_config.max_num_batched_tokens, sequences=config.scheduler_config.max_num_seqs,
                 blocks=cache.num_blocks, groups=groups, length=config.model_config.max_model_len,
                 at_once=get_max_concurrency_for_kv_cache_config(config, cache))
    print(json.dumps(found), flush=True)
    os._exit(0)


main()
