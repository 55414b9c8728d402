//! Files that start a run on more than one machine, and those that are not written.

use headroom::export::{Configuration, configuration};
use headroom::import;
use headroom::scenario::keys::{Key, keys};
use headroom::scenario::{Field, Scenario};
use headroom::share;

use crate::read;

fn linked(link: &str) -> Scenario {
    share::decode(link).scenarios.remove(0)
}

/// accelerate counts the processes of all machines, torchtune those of each.
#[test]
fn a_machine_has_eight_gpus() {
    let trl = "m=meta-llama/Llama-3.1-70B&method=lora&p=amp-bf16-weights&st=trl&shard=fsdp2&gpus=";
    for (gpus, machines) in [(8, 1), (32, 4), (12, 2)] {
        let written =
            configuration(&linked(&format!("{trl}{gpus}")), Configuration::Accelerate).expect("a file").text;
        for line in [format!("num_machines: {machines}\n"), format!("num_processes: {gpus}\n")] {
            assert!(written.contains(&line), "{line}: {written}");
        }
        assert_eq!(written.contains("main_process_ip: FIRST_MACHINE"), machines > 1, "{written}");
        assert_eq!(read(&written).scenario.cluster.gpus, gpus);
    }
    // two machines of four
    let halves = linked(&format!("{trl}8&node=4"));
    for kind in [Configuration::Accelerate, Configuration::Torchtitan, Configuration::Python] {
        let mut scenario = halves.clone();
        if kind == Configuration::Torchtitan {
            scenario = linked(
                "m=meta-llama/Llama-3.1-8B&method=full&st=torchtitan&p=amp-bf16&gpus=8&shard=fsdp2&node=4",
            );
        }
        let written = configuration(&scenario, kind).unwrap_or_else(|issue| panic!("{kind:?}: {issue}"));
        let read = read(&written.text).scenario.cluster;
        assert_eq!((read.gpus, read.per_node), (8, 4), "{kind:?}: {}", written.text);
    }
    // eleven in one machine, which is none of the usual ones
    for (launched, told) in [
        ("--nproc_per_node 11", (11, 11)),
        ("--nnodes 3 --nproc_per_node 2", (6, 2)),
        ("--nproc_per_node 4", (4, 8)),
    ] {
        let command = format!(
            "torchrun {launched} train.py --model_name_or_path Qwen/Qwen2.5-0.5B --learning_rate 1e-5 --bf16"
        );
        let cluster = read(&command).scenario.cluster;
        assert_eq!((cluster.gpus, cluster.per_node), told, "{command}");
    }
    let axolotl = configuration(&halves, Configuration::Axolotl).expect("a file");
    assert!(axolotl.absent.iter().any(|clause| clause == "GPUs per node: 4"), "{:?}", axolotl.absent);
    let torchtune =
        "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&clip=off&o=adamw-fused&shard=fsdp2&st=torchtune&gpus=";
    for (gpus, command) in [
        (8, "tune run --nproc_per_node 8 full_finetune_distributed"),
        (
            64,
            "tune run --nnodes 8 --rdzv_backend c10d --rdzv_endpoint FIRST_MACHINE:29500 --rdzv_id headroom --nproc_per_node 8 full",
        ),
    ] {
        let written = configuration(&linked(&format!("{torchtune}{gpus}")), Configuration::Torchtune)
            .expect("a file")
            .text;
        assert!(written.contains(command), "{written}");
        assert_eq!(read(&written).scenario.cluster.gpus, gpus);
    }
}

/// What torchrun starts, and divides the model itself, is none of accelerate's.
#[test]
fn accelerate_launches_neither_megatron_nor_torchtune() {
    for link in [
        "m=meta-llama/Llama-3.1-8B&method=full&o=adamw&attn=cudnn&st=megatron&gpus=8&tp=2&shard=dist-opt&timpl=transformer-engine",
        "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&clip=off&o=adamw-fused&shard=fsdp2&st=torchtune&gpus=8",
    ] {
        let scenario = linked(link);
        assert!(headroom::estimate(&scenario).memory.is_some(), "{link}");
        let issue = configuration(&scenario, Configuration::Accelerate).expect_err(link);
        assert_eq!(issue.field, Field::Stack, "{issue}");
    }
}

/// GPUs that share sequences are a dimension of accelerate's mesh, and what is read of the file is what was written.
#[test]
fn sequences_that_gpus_share_are_written_for_accelerate() {
    let link = "m=meta-llama/Llama-3.1-8B&method=lora&p=amp-bf16-weights&mask=ones&s=16384&gpus=8&shard=fsdp2&wrap=accelerate&cp=4";
    let scenario = linked(link);
    assert!(headroom::estimate(&scenario).memory.is_some());
    let written = configuration(&scenario, Configuration::Accelerate).expect("a file").text;
    for line in ["parallelism_config_dp_shard_size: 2\n", "parallelism_config_cp_size: 4\n"] {
        assert!(written.contains(line), "{line}: {written}");
    }
    let cluster = read(&written).scenario.cluster;
    assert_eq!((cluster.gpus, cluster.layout.context), (8, 4), "{written}");
}

/// Read back alone, with its model and card, a file is the scenario but for what it says: what the project does otherwise, and what stands in
/// no line of it.
#[test]
fn what_a_file_loses_is_named() {
    for (link, which) in [
        ("len=300~100&mask=padded", Configuration::Trl),
        ("st=trl&len=300~100&mask=padded", Configuration::Trl),
        ("len=300~100&mask=padded", Configuration::Axolotl),
        ("method=lora&p=bf16&m=Qwen/Qwen3-8B&gpus=4&shard=zero3", Configuration::LlamaFactory),
        ("method=full&p=amp-bf16&m=Qwen/Qwen3-8B&st=trl&gpus=8&shard=zero3", Configuration::Trl),
        ("method=full&p=amp-bf16-weights&wrap=axolotl&gpus=8&shard=fsdp2", Configuration::Axolotl),
        ("method=lora&p=bf16&clip=off&st=torchtune", Configuration::Torchtune),
        ("st=trl&len=300~100&mask=padded", Configuration::Python),
    ] {
        let scenario = linked(link);
        let written = configuration(&scenario, which).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        let mut base = Scenario::default();
        for key in keys().filter(|key| ["model", "gpu"].contains(&key.name)) {
            key.copy(&mut base, &scenario);
        }
        let alone = import::read(&written.text, &base).expect("it is read").scenario;
        let differs =
            |key: &&Key| key.matters(&scenario) && key.matters(&alone) && !key.is_same(&scenario, &alone);
        for key in keys().filter(differs) {
            let label = key.label_for(&scenario);
            let is_named = |clauses: &[String]| clauses.iter().any(|clause| clause.starts_with(label));
            assert!(is_named(&written.differs) || is_named(&written.absent), "{link} for {which:?}: {label}");
        }
        assert!(
            written
                .absent
                .iter()
                .all(|clause| which == Configuration::Python || written.text.contains(clause))
        );
    }
    let lost = configuration(&linked("len=300~100&mask=padded"), Configuration::Trl).expect("a file").absent;
    assert_eq!(lost, ["Lengths: 300 ± 100 tokens"]);
    assert!(configuration(&Scenario::default(), Configuration::Axolotl).expect("a file").absent.is_empty());
}
