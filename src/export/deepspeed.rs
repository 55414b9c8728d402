//! ZeRO as DeepSpeed is told of it.

use serde_json::{Value, json};

use crate::scenario::{Cluster, CpuOffload, Overlap, Scenario, Sharding};

/// Which of ZeRO's stages several GPUs train with; none where another engine has them.
pub(super) fn stage(cluster: Cluster) -> Option<u64> {
    match cluster.sharding {
        Sharding::Ddp | Sharding::Fsdp2 | Sharding::Distributed => None,
        Sharding::Zero1 => Some(1),
        Sharding::Zero2 => Some(2),
        Sharding::Zero3 => Some(3),
    }
    .filter(|_| cluster.has_engine())
}

/// Whether optimizer state and weights are in the CPU's memory.
pub(super) fn offload(cpu: CpuOffload) -> (bool, bool) {
    match cpu {
        CpuOffload::Off => (false, false),
        CpuOffload::Optimizer => (true, false),
        CpuOffload::All => (true, true),
    }
}

/// `zero_optimization` of DeepSpeed's configuration; none where nothing is sharded so.
pub(super) fn zero_optimization(scenario: &Scenario) -> Option<Value> {
    let cluster = scenario.cluster;
    let stage = stage(cluster)?;
    let own = cluster.deepspeed;
    let mut zero = json!({
        "stage": stage,
        "reduce_bucket_size": own.reduce_bucket,
        "contiguous_gradients": own.contiguous,
    });
    match own.overlap {
        Overlap::Auto => {}
        Overlap::On => zero["overlap_comm"] = true.into(),
        Overlap::Off => zero["overlap_comm"] = false.into(),
    }
    let (optimizer, weights) = offload(cluster.cpu);
    if optimizer {
        zero["offload_optimizer"] = json!({ "device": "cpu", "pin_memory": true });
    }
    if weights {
        zero["offload_param"] = json!({ "device": "cpu", "pin_memory": true });
    }
    if stage == 3 {
        zero["stage3_prefetch_bucket_size"] = own.prefetch_bucket.into();
        zero["stage3_param_persistence_threshold"] = own.persistence.into();
        zero["stage3_max_live_parameters"] = own.live.into();
        zero["stage3_gather_16bit_weights_on_model_save"] = scenario.saves_whole().into();
    }
    Some(zero)
}

/// DeepSpeed's configuration for transformers' Trainer, whose arguments fill in what is `"auto"`
/// (transformers/integrations/deepspeed.py); none where nothing is sharded so.
pub(super) fn for_trainer(scenario: &Scenario) -> Option<Value> {
    Some(json!({
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": true,
        "bf16": { "enabled": "auto" },
        "fp16": { "enabled": "auto" },
        "zero_optimization": zero_optimization(scenario)?,
    }))
}
