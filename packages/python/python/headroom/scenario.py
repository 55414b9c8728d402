"""The keys of a scenario, written from the table of keys, `src/scenario/keys/table.rs`, by `cargo test --test packages`."""

from typing import Any, Dict, Literal, TypedDict, Union


class Scenario(TypedDict, total=False):
    """What a user can choose; what is left out takes its default."""

    #: What is done with the model: fine-tuning on texts, on answers that are preferred to others or rewarded, or generating text (inference)
    task: Literal["sft", "generate", "classify", "embed", "dpo", "kto", "orpo", "cpo", "simpo", "reward", "grpo", "rloo", "ppo", "distil"]

    #: The model: a Hub id, or a size such as 7b for a Llama-shaped model of so many billion parameters
    model: Union[str, Dict[str, Any]]

    #: Which weights are trained
    method: Literal["full", "lora", "qlora"]

    #: Which adapters of peft are trained beside the frozen weights
    adapter: Literal["lora", "dora", "ia3", "vera", "loha", "lokr", "oft", "prompt", "p-tuning", "prefix", "prefix-projected"]

    #: The inner size of the adapters: r in the settings of peft's tuners, of OFT the size of a block, of prompt and prefix tuning and P-tuning the number of virtual tokens; of GaLore and APOLLO how many directions gradients are projected onto
    lora_rank: int

    #: Which linear layers get adapters, or have their gradients projected by GaLore and APOLLO: a group, or layer names separated by commas
    lora_targets: str

    #: Whether the adapters' dropout (lora_dropout, vera_dropout) is above 0: then every adapted layer keeps a mask
    lora_dropout: bool

    #: Whether adapters are float32 on a 16-bit model (peft's default, autocast_adapter_dtype)
    fp32_adapters: bool

    #: Whether axolotl's own functions run a layer's projections together with their adapters (lora_qkv_kernel, lora_o_kernel, lora_mlp_kernel: on in its files unless they say otherwise)
    fused_adapters: bool

    #: Whether copies of the embedding and the output head are trained whole (peft's modules_to_save)
    train_embeddings: bool

    #: How frozen weights that are quantised are stored: in 4 bits as QLoRA has them, in 8 (LLM.int8, torchao), or as a checkpoint of GPTQ or AWQ has them
    weight_format: Literal["nf4", "int8", "torchao-int8", "gptq-4", "gptq-8", "awq-4", "awq-4-cuda", "nf4-early"]

    #: How many weights of a column of GPTQ's or AWQ's share a scale and a zero (group_size of its quantization_config)
    group_size: Literal["128", "64", "32", "column"]

    #: Whether the scales of 4-bit weights are quantised too (bnb_4bit_use_double_quant)
    double_quant: bool

    #: Whether prepare_model_for_kbit_training ran, which makes float32 of all that is not 4-bit
    kbit_prepare: bool

    #: How a mixture has its experts: transformers 5 in one tensor, which 4-bit loading leaves in 16 bits, transformers 4 as linear layers
    experts: Literal["tensors", "layers"]

    #: Whether linear layers multiply in 8-bit floats while they are trained, and of what the casts have scales: torchao's recipes, without torch.compile
    float8: Literal["off", "tensorwise", "rowwise", "rowwise-gw-hp"]

    #: Which linear layers multiply in 8-bit floats
    float8_layers: Literal["inner", "body", "large", "all"]

    #: Whether operands in 8 bits are padded to a multiple of 16 along the dimension that is summed over (pad_inner_dim), each in a copy
    float8_padding: bool

    #: Whether weights are wrapped so that FSDP2 gathers them in 8 bits (enable_fsdp_float8_all_gather, tensorwise alone); on one GPU it only has AdamW step one parameter after the other
    float8_gather: bool

    #: Whether linear layers round their weights, and inputs, while they are trained, as the quantised model will (torchao's QATConfig), without torch.compile
    qat: Literal["off", "int4", "int8-int4", "fp8", "fp8-int4", "int4-axolotl", "int8-int4-axolotl", "fp8-axolotl"]

    #: How many weights of a row share a scale where they are rounded to 4 bits
    qat_group: Literal["128", "32", "64", "256"]

    #: Which linear layers round
    qat_layers: Literal["all", "body"]

    #: Element types of weights, activations and gradients
    precision: Literal["fp32", "bf16", "fp16", "amp-bf16", "amp-bf16-weights", "amp-fp16", "amp-fp16-weights"]

    #: The optimizer, where its implementation changes the memory also the implementation
    optimizer: Literal["adamw", "adamw-fused", "adamw-for-loop", "adamw-early", "adamw-8bit", "paged-adamw-8bit", "adamw-8bit-torchao", "adamw-4bit-torchao", "adamw-cpu-offload", "adamw-cpu-offload-gradients", "paged-adamw", "adam", "sgd", "sgd-momentum", "nesterov", "adagrad", "rmsprop", "adafactor", "adafactor-torch", "lamb", "lion", "lion-8bit", "ademamix", "ademamix-8bit", "paged-ademamix", "paged-ademamix-8bit", "schedule-free-adamw", "stable-adamw", "muon", "galore-adamw", "galore-adamw-8bit", "galore-adafactor", "apollo-adamw", "lomo", "adalomo", "adam-mini", "nadam", "amsgrad", "sparse-adam", "shampoo", "adabelief"]

    #: Sequences in one forward pass, pairs of an answer that is preferred and one that is not, or examples of several texts: activations and logits grow with it
    batch_size: int

    #: Tokens per sequence, padding included
    seq_length: int

    #: Tokens of the prompt at the beginning of each sequence: the rest of the sequence length is the answer, which alone is scored
    prompt_length: int

    #: Numbers for each text (num_labels): a class each, or one for a reranker or a regression
    labels: int

    #: Answers that are generated and scored at a time (local_rollout_forward_batch_size), no more than a round has: micro-batch × accumulation
    rollout_batch: int

    #: Into how many parts a round's answers are divided (num_mini_batches), after each of which the allocator's cache is emptied. The optimizer steps once for all of them
    mini_batches: int

    #: How often a round's answers are learned from (num_ppo_epochs): time, not memory
    ppo_epochs: int

    #: Texts of each example that are embedded: an anchor, what belongs to it, and from three on what does not (hard negatives). The micro-batch size counts examples
    texts_per_example: int

    #: Texts that run at a time, where gradients by the embeddings are cached and each text runs twice (CachedMultipleNegativesRankingLoss, mini_batch_size); 0 runs all at once
    grad_cache: int

    #: What of a text's hidden states becomes its embedding
    pooling: Literal["mean", "cls", "lasttoken"]

    #: Where the scores of the model as it was come from
    reference: Literal["scored", "none", "precomputed"]

    #: Who generates the answers that the model learns from: vLLM, elsewhere or with a share of the card, or the training itself by transformers; under GKD they are the data set's own where transformers does not
    rollouts: Literal["server", "transformers"]

    #: The model that is learned from, which lies on the card beside the one that is trained: a Hub id, or same for the model that is trained; its vocabulary has to be as large
    teacher: str

    #: How the teacher's weights lie on the card (teacher_model_init_kwargs)
    teacher_weights: Literal["fp32", "bf16", "nf4"]

    #: Which trainer holds the student's probabilities against the teacher's, and by which divergence (beta)
    divergence: Literal["tiles", "gkd", "gkd-forward", "gkd-reverse"]

    #: The most tokens that the model writes after the prompt, which is as long as the sequence length says (max_new_tokens)
    new_tokens: int

    #: What is kept of the keys and values of earlier tokens
    kv_cache: Literal["dynamic", "static", "off"]

    #: How the next token is chosen
    sampling: Literal["greedy", "sampled", "drawn"]

    #: Pictures in each sequence, which the tower turns into tokens of it; 0 is text alone
    images: int

    #: Rows of pixels of each picture as the processor is given it: it resizes them to whole tokens
    image_height: int

    #: Columns of pixels of each picture as the processor is given it
    image_width: int

    #: Frames of each, as they are sampled, where they are videos rather than pictures; 1 is a picture
    video_frames: int

    #: Whether what looks at the pictures is trained
    vision_tower: Literal["trained", "frozen"]

    #: How long the sequences are; where they vary, batches are padded to their longest
    lengths: str

    #: Forward and backward passes per optimizer step; gradients stay in memory between passes
    gradient_accumulation: int

    #: Whether the trainer evaluates after some of its steps (eval_strategy), and whether it keeps the logits of all batches for a compute_metrics
    evaluation: Literal["off", "loss", "metrics"]

    #: Sequences of a batch of the evaluation (per_device_eval_batch_size): 8 in the libraries, whatever the micro-batch size of the training is
    eval_batch_size: int

    #: Batches after which what is kept of them, logits for metrics above all, goes to the CPU's memory and the allocator's cache is emptied (eval_accumulation_steps); 0, the libraries' default, keeps all of it on the GPU to the end
    eval_accumulation_steps: int

    #: Batches of an evaluation: its texts by the evaluation batch size
    eval_batches: int

    #: Whether the trainer saves a checkpoint after some of its steps (save_strategy), weights or adapters and the optimizer's state, and whether weights that are divided are gathered for it
    saving: Literal["off", "on", "full"]

    #: Where adapters are merged into the weights when the training is over (peft's merge_and_unload)
    merging: Literal["off", "gpu", "cpu"]

    #: Whether activations are recomputed in backward
    gradient_checkpointing: Literal["off", "on", "reentrant", "offloaded", "selective", "every-second", "operations"]

    #: The attention implementation
    attention: Literal["sdpa", "eager", "flash", "efficient", "math", "cudnn", "flash-attention-2"]

    #: How texts fill the batch, and which attention mask it carries
    mask: Literal["none", "ones", "padded", "packed", "padding-free"]

    #: A probability to set every dropout of the config to, or config to keep them
    dropout: Union[float, Literal["config"]]

    #: Whether the script keeps the model's output alive through backward (out = model(...))
    keep_outputs: bool

    #: Whether zero_grad frees the gradients after the step (set_to_none, PyTorch's default)
    set_to_none: bool

    #: Whether gradients are clipped by their norm
    clip_gradients: bool

    #: Whose code runs the model
    stack: Literal["transformers", "trl", "liger", "torchtune", "unsloth", "litgpt", "torchtitan", "megatron"]

    #: What torch.compile compiles: nothing, each decoder layer by itself (layer.compile()) with all else as it is written, or the whole model (model.compile())
    compile: Literal["off", "layers", "model"]

    #: How the output head and the loss are computed
    loss: Literal["standard", "full", "liger", "cut", "te", "native", "axolotl", "log-softmax", "chunked", "float-logits", "vocabulary-chunks"]

    #: Where saved activations wait for backward
    activation_offloading: Literal["off", "on"]

    #: Whether Liger's kernels stand in for norms, rotary positions and gated products under trl (use_liger_kernel=True); head and loss stay trl's own
    liger_layers: bool

    #: When the optimizer steps
    optimizer_step: Literal["after-backward", "in-backward"]

    #: Whether the forward pass fills a cache of keys and values (config.use_cache)
    use_cache: bool

    #: How PyTorch's caching allocator gets memory from the driver
    allocator: Literal["native", "expandable"]

    #: The card: its name, or an amount of memory
    gpu: str

    #: How many such cards train the model together, each with a micro-batch of its own; 2x4 are two machines of four
    gpus: int

    #: How many of the GPUs one machine has at most, linked to each other; between machines they wait for a network
    gpus_per_node: int

    #: What each of several GPUs keeps of the model
    shard: Literal["ddp", "fsdp2", "zero1", "zero2", "zero3", "dist-opt"]

    #: Whether FSDP2 wraps the model on a single GPU, too, as prime-rl and torchtitan do (fully_shard over a world of one)
    shard_alone: bool

    #: Whether gradients are parts of the buckets that DDP reduces them in (gradient_as_bucket_view=True) rather than copies beside them
    gradient_as_bucket_view: bool

    #: Whether FSDP2 lets a layer's gathered weights go after its forward pass (reshard_after_forward)
    reshard_after_forward: bool

    #: Whether embedding and head go after the forward pass, too: not where fully_shard(model) is told nothing (reshard_after_forward=None)
    reshard_root: bool

    #: What torchtune shards by itself, and gathers when it runs, beside the root (custom_sharded_layers)
    sharded_layers: Literal["layers", "embedding", "embedding-and-head"]

    #: Who wraps the model for FSDP2: a loop of one's own, or accelerate or axolotl under transformers' Trainer (fsdp_version: 2)
    wrapped_by: Literal["loop", "accelerate", "axolotl"]

    #: How many groups of GPUs have the whole model in shards, as on a mesh of two dimensions: hybrid sharding, usually one per machine
    replicas: int

    #: The element type in which FSDP2 sums gradients (MixedPrecisionPolicy(reduce_dtype)), and in which Megatron keeps them (grad_reduce_in_fp32)
    reduce_dtype: Literal["fp32", "bf16"]

    #: Among how many GPUs each layer is divided: Megatron's tensor_model_parallel_size, or tp_size of transformers' DistributedConfig (tp_plan="auto")
    tp: int

    #: Among how many GPUs Megatron divides the layers (pipeline_model_parallel_size); the micro-batches of a step go through them one after the other
    pp: int

    #: Whose layers Megatron puts together (--transformer-impl)
    transformer_impl: Literal["local", "transformer-engine"]

    #: Whether the GPUs that share Megatron's layers also share, by tokens, what lies between the products (sequence_parallel)
    sequence_parallel: bool

    #: Among how many GPUs each sequence is divided (Megatron's context_parallel_size; cp_size of accelerate's ParallelismConfig)
    cp: int

    #: How GPUs that share a sequence give each other keys and values (--cp-comm-type)
    cp_comm_type: Literal["a2a", "p2p"]

    #: Among how many GPUs Megatron divides the experts (expert_model_parallel_size); each token goes to those that have its own
    expert_parallel: int

    #: Whether Transformer Engine's products add weights' gradients to Megatron's buffer themselves (off: --no-gradient-accumulation-fusion)
    gradient_accumulation_fusion: bool

    #: How many layers a stage runs at a time where stages are interleaved (num_layers_per_virtual_pipeline_stage); 0 where they are not
    layers_per_virtual_stage: int

    #: How many layers the first stage has where it has not as many as the others (--decoder-first-pipeline-num-layers); 0 where it has
    layers_in_first_stage: int

    #: How many layers the last stage has where it has not as many as the others (--decoder-last-pipeline-num-layers); 0 where it has
    layers_in_last_stage: int

    #: Whether the first stage has one layer less, as the embedding counts as one where layers are divided among stages (--account-for-embedding-in-pipeline-split)
    account_for_embedding: bool

    #: Whether the last stage has one layer less, as head and loss count as one where layers are divided among stages (--account-for-loss-in-pipeline-split)
    account_for_loss: bool

    #: The pipeline stage whose GPU is answered for, counted from 1; 0 is the one that needs most
    pipeline_stage: int

    #: What of each GPU's shards lies in the CPU's memory, or of a single GPU's model under DeepSpeed: FSDP2's CPUOffloadPolicy, DeepSpeed's offload_optimizer and offload_param
    cpu_offload: Literal["off", "optimizer", "all"]

    #: How many elements of gradients DeepSpeed reduces at a time (reduce_bucket_size); "auto" in a configuration for transformers is hidden_size²
    reduce_bucket: int

    #: How many elements of weights ZeRO-3 gathers ahead (stage3_prefetch_bucket_size); "auto" is 0.9 · hidden_size²
    prefetch_bucket: int

    #: Up to how many elements ZeRO-3 keeps a parameter whole (stage3_param_persistence_threshold); "auto" is 10 · hidden_size
    persistence_threshold: int

    #: How many elements of weights ZeRO-3 keeps gathered at most before it gathers no more ahead (stage3_max_live_parameters)
    max_live_parameters: int

    #: Whether DeepSpeed copies gradients into one buffer as they come (contiguous_gradients)
    contiguous_gradients: bool

    #: Whether DeepSpeed reduces gradients while backward goes on (overlap_comm)
    overlap_comm: Literal["auto", "on", "off"]

    #: MiB of the card that others have already: a desktop, a browser, another process (nvidia-smi names them)
    used_mib: int

    #: MiB of the card that shall stay free, for what an estimate cannot know
    margin_mib: int

    #: MiB that the process takes before its first tensor; 0 for what was measured for the card's generation (data/SOURCES.md lists where)
    context_mib: int

    #: KiB of each workspace that cuBLAS is given, as CUBLAS_WORKSPACE_CONFIG says (:4096:8 is 32768); 0 for what PyTorch asks for (aten/src/ATen/cuda/CUDABlas.cpp): 32 MiB on Hopper, 8.125 MiB elsewhere
    cublas_workspace_kib: int

    #: Percent of the card that vLLM has beside the training (vllm_mode="colocate", vllm_gpu_memory_utilization, 30 in trl); 0 where a server elsewhere generates the answers. Where it only generates, what the table of formats gives vLLM (gpu_memory_utilization); 0 for its default, 92
    vllm_percent: int

    #: Whether vLLM gives its weights and its keys and values back to the card between its answers (vllm_enable_sleep_mode), so that its share is taken while it generates alone; off in trl
    vllm_sleep: bool

    #: The most tokens that vLLM computes at a time where it serves the model (max_num_batched_tokens): its profiling run has so many; 0 for its default, 2,048, or 8,192 on cards of 70 GiB and more that are no A100
    vllm_max_num_batched_tokens: int

    #: The most sequences that vLLM runs at once where it serves the model (max_num_seqs): its profiling run draws a next token for so many; 0 for its default, 256, or 1,024 on cards of 70 GiB and more that are no A100
    vllm_max_num_seqs: int

    #: What vLLM keeps keys and values in where it serves the model (kv_cache_dtype)
    vllm_kv_cache_dtype: Literal["auto", "fp8"]

    #: How long the run takes follows from them: examples times their tokens, as in 10k x 512
    dataset_tokens: int

    #: How often the data set is gone through
    epochs: int

    #: What an hour of one GPU costs you, as in 250 for $2.50; 0 for the cheapest machine with the card that is on record
    gpu_hour_cents: int
