//! How several GPUs work together.

use super::Choice;

choices! {
    /// What each of many GPUs keeps.
    Sharding {
        Ddp = "ddp", "DDP", "Every GPU keeps the whole model and averages gradients with the others: DistributedDataParallel.";
        Fsdp2 = "fsdp2", "FSDP2", "Every GPU keeps a shard of weights, gradients and optimizer state, and gathers a layer when it runs: fully_shard on every layer and on the model.";
        Zero1 = "zero1", "ZeRO-1 (DeepSpeed)", "Every GPU keeps the whole model in bfloat16 with its gradients, and the float32 masters and optimizer state of its partition.";
        Zero2 = "zero2", "ZeRO-2 (DeepSpeed)", "As ZeRO-1, but gradients are reduced as they come: every GPU keeps those of its partition.";
        Zero3 = "zero3", "ZeRO-3 (DeepSpeed)", "As ZeRO-2, but every GPU keeps its partition of the weights too, and gathers a module when it runs.";
        Distributed = "dist-opt", "Distributed optimizer (Megatron)", "Megatron's use_distributed_optimizer: every GPU keeps its part of the model with all gradients, and of the float32 masters and optimizer state the share that it steps for the GPUs that hold the same part.";
    }
}

choices! {
    /// What of many GPUs' shards lies in the CPU's memory.
    CpuOffload {
        Off = "off", "Off", "Weights, gradients and optimizer state are on the GPUs.";
        Optimizer = "optimizer", "Optimizer", "Gradients and optimizer state are in the CPU's memory, where the optimizer steps: DeepSpeed's offload_optimizer.";
        All = "all", "Weights and optimizer", "Weights too, which are copied to the GPUs when they are gathered: FSDP2's CPUOffloadPolicy, DeepSpeed's offload_param.";
    }
}

choices! {
    /// Whether DeepSpeed reduces gradients while backward goes on (`overlap_comm`).
    Overlap {
        Auto = "auto", "As the stage has it", "On under ZeRO-3, off under ZeRO-1 and ZeRO-2: DeepSpeed's own default.";
        On = "on", "On", "A second bucket is filled while the first is reduced.";
        Off = "off", "Off", "One bucket, which is reduced before more is put in.";
    }
}

choices! {
    /// The element type in which gradients are reduced.
    ReduceDtype {
        Fp32 = "fp32", "fp32", "Gradients are summed in 32-bit floats.";
        Bf16 = "bf16", "bf16", "Gradients are summed in bfloat16, or under fp16 in float16: half as large a buffer.";
    }
}

choices! {
    /// What torchtune shards by itself beside the layers (`custom_sharded_layers`).
    ShardedLayers {
        Layers = "layers", "Layers", "Embedding, last norm and output head are gathered together, from the look-up to the logits.";
        Embedding = "embedding", "Layers, embedding", "The embedding is gathered for the look-up alone: ['tok_embeddings'].";
        EmbeddingAndHead = "embedding-and-head", "Layers, embedding, head", "Both are by themselves, the head gathered again for each chunk of the logits: ['tok_embeddings', 'output'].";
    }
}

choices! {
    /// Who wraps the model for FSDP2 where no trainer of its own does.
    WrappedBy {
        Loop = "loop", "fully_shard", "fully_shard on every layer and the model, as one writes it in a loop of one's own.";
        Accelerate = "accelerate", "accelerate", "accelerate's fsdp2_prepare_model under transformers' Trainer (fsdp_version: 2), as LLaMA-Factory and scripts have it: embedding and head by themselves, trained shards float32 under mixed precision, nothing reduced before the last micro-batch.";
        Axolotl = "axolotl", "axolotl", "axolotl's fsdp2_prepare_model under transformers' Trainer: weights as they were loaded, under autocast, nothing reduced before the last micro-batch, each adapter by itself.";
    }
}

choices! {
    /// Whose layers Megatron-core puts together (`--transformer-impl`).
    TransformerImpl {
        Local = "local", "Megatron's own (local)", "Layers in Megatron-core's own PyTorch code, attention written out: what runs where Transformer Engine is not installed. Without sequence and context parallelism.";
        TransformerEngine = "transformer-engine", "Transformer Engine 2.11", "Transformer Engine's layers: norm and projection as one, cuDNN's attention, weights' gradients summed where they stay. Megatron-LM's default.";
    }
}

choices! {
    /// How GPUs that share a sequence give each other keys and values (`--cp-comm-type`).
    ContextComm {
        AllToAll = "a2a", "All to all", "Before attention each GPU gives its tokens of all heads for all tokens of its share of the heads, and afterwards the other way round (Ulysses).";
        P2p = "p2p", "Ring (p2p)", "Keys and values go round from GPU to GPU: Megatron-LM's own default.";
    }
}
