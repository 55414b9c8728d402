//! A training loop of one's own around transformers' modules, PEFT's adapters and bitsandbytes, with Liger's kernels or without.

use super::cluster::Engine;
use super::float8;
use super::pictures;
use super::python::{Call, string, strings};
use super::qat;
use super::run::Run;
use crate::export::projected;
use crate::export::rate::learning_rate;
use crate::issue::{Field, Issue};
use crate::scenario::{Compile, Lengths, LossKernel, Mask, Method, Optimizer, Scenario, Stack, StepTime};

/// The inputs that it says beside those that every file says.
pub(super) const SAID: &[&str] = &[
    "adapter",
    "lora-dropout",
    "fp32-adapters",
    "train-embeddings",
    "weight-format",
    "double-quant",
    "kbit-prepare",
    "experts",
    "attention",
    "dropout",
    "gradient-as-bucket-view",
    "keep-outputs",
    "set-to-none",
    "use-cache",
    "loss",
    "optimizer-step",
    "float8",
    "float8-layers",
    "float8-padding",
    "float8-gather",
    "qat",
    "qat-group",
    "qat-layers",
    "compile",
];

/// Families whose loss Liger's patch is known to replace; it passes over those that it does not know.
const LIGER_FAMILIES: [&str; 7] = ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3"];

pub(super) fn script(run: &Run<'_>) -> Result<String, Issue> {
    refuse(run)?;
    let parts = [
        run.header(&packages(run)),
        "\n".to_owned(),
        run.environment(&[]),
        imports(run),
        settings(run),
        load(run)?,
        train(run)?,
    ];
    Ok(parts.concat())
}

/// What such a loop has no line for.
fn refuse(run: &Run<'_>) -> Result<(), Issue> {
    let no = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if run.scenario.trains_in_float8() && run.scenario.float8.gathers {
        return no(
            Field::Float8Gather,
            "what such a loop ends with, save_pretrained, stops at weights that are wrapped for gathers in 8 bits",
            "switch FP8 gathers off",
        );
    }
    match run.scenario.mask {
        Mask::None | Mask::Ones if run.scenario.lengths != Lengths::Equal => {
            return no(
                Field::Lengths,
                "rows that are cut from the texts one after the other are all as long",
                "choose a padded batch, or equal lengths",
            );
        }
        Mask::Packed => {
            return no(
                Field::Mask,
                "no data collator puts several texts in each of several rows",
                "choose padding-free, which puts all texts in one row",
            );
        }
        Mask::None | Mask::Ones | Mask::Padded | Mask::PaddingFree => {}
    }
    match run.scenario.savings.loss {
        LossKernel::Chunked => {
            no(Field::Loss, "this chunked loss is torchtune's", "choose Liger's or cut cross entropy")
        }
        LossKernel::TransformerEngine => {
            no(Field::Loss, "Transformer Engine's loss is Megatron's", "choose Liger's or cut cross entropy")
        }
        LossKernel::MegatronFused => {
            no(Field::Loss, "this fused loss is Megatron-core's own", "choose Liger's or cut cross entropy")
        }
        LossKernel::Axolotl => {
            no(Field::Loss, "these kernels are axolotl's own", "choose its file, or the standard loss")
        }
        LossKernel::LogSoftmax => {
            no(Field::Loss, "this is of LLaMA-Factory's own trainer", "choose its file, or the standard loss")
        }
        LossKernel::FloatLogits | LossKernel::VocabularyChunks => {
            no(Field::Loss, "this head is prime-rl's own", "choose Liger's or cut cross entropy")
        }
        LossKernel::Liger if !LIGER_FAMILIES.contains(&&*run.architecture.model_type) => {
            no(Field::Loss, "Liger's patch passes over models of this family", "choose cut cross entropy")
        }
        LossKernel::Standard | LossKernel::Full | LossKernel::Liger | LossKernel::Cut => Ok(()),
    }
}

/// What Liger's patch replaces; none where nothing of Liger's runs.
fn liger(scenario: &Scenario) -> Option<&'static str> {
    let own = scenario.stack == Stack::Liger;
    match scenario.savings.loss {
        LossKernel::Full if own => Some(", fused_linear_cross_entropy=False, cross_entropy=False"),
        LossKernel::Standard | LossKernel::Liger if own => Some(""),
        LossKernel::Liger => Some(", rope=False, rms_norm=False, swiglu=False, geglu=False"),
        LossKernel::Standard
        | LossKernel::Full
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::Cut
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Chunked => None,
    }
}

fn packages(run: &Run<'_>) -> Vec<&'static str> {
    let scenario = run.scenario;
    let transformers = match scenario.runs_expert_layers() {
        true => "transformers==4.57.1",
        false => "transformers==5.17.*",
    };
    let mut packages = run.packages(&["torch==2.11.*", transformers, "datasets"]);
    packages.extend(run.engine().and_then(Engine::package));
    packages.extend(run.looks().then_some(pictures::PACKAGES).into_iter().flatten());
    if scenario.trains_in_float8() {
        packages.extend(["torchao==0.18.*", "accelerate==1.15.*"]);
    }
    if scenario.trains_quantization_aware() {
        packages.push("torchao==0.18.*");
    }
    if liger(scenario).is_some() {
        packages.push("liger-kernel==0.8.5");
    }
    if scenario.savings.loss == LossKernel::Cut {
        packages.push("cut-cross-entropy");
    }
    packages
}

fn imports(run: &Run<'_>) -> String {
    let scenario = run.scenario;
    let mut lines = vec!["import torch".to_owned()];
    if let Some((module, _)) = run.of_optimizer() {
        lines.insert(0, format!("import {module}"));
    }
    if scenario.savings.loss == LossKernel::Cut {
        lines.push("from cut_cross_entropy.transformers import cce_patch".to_owned());
    }
    if let Some(engine) = run.engine() {
        lines.extend(engine.imports(scenario.cluster).into_iter().map(str::to_owned));
    }
    lines.extend(float8::imports(scenario).into_iter().map(str::to_owned));
    lines.extend(qat::imports(scenario).into_iter().map(str::to_owned));
    lines.push("from datasets import load_dataset".to_owned());
    if liger(scenario).is_some() {
        lines.push("from liger_kernel.transformers import _apply_liger_kernel_to_instance".to_owned());
    }
    match scenario.method {
        Method::Full => {}
        Method::Qlora if scenario.quantization.makes_rest_float32() => lines.push(format!(
            "from peft import {}, get_peft_model, prepare_model_for_kbit_training",
            scenario.lora.tuner.class()
        )),
        Method::Lora | Method::Qlora => {
            lines.push(format!("from peft import {}, get_peft_model", scenario.lora.tuner.class()));
        }
    }
    let reads = if run.looks() { "AutoProcessor" } else { "AutoTokenizer" };
    let mut names = vec![run.class(), reads];
    if scenario.dropout.is_some() {
        names.insert(0, "AutoConfig");
    }
    let quantization = run.quantization_class();
    names.extend(quantization.map(|(class, _)| class));
    if scenario.mask == Mask::PaddingFree {
        names.push("DataCollatorWithFlattening");
    }
    names.sort_unstable();
    let needs = quantization.map_or("", |(_, line)| line.trim_end());
    lines.extend((!needs.is_empty()).then(|| needs.to_owned()));
    lines.push(format!("from transformers import {}", names.join(", ")));
    if scenario.optimizer == Optimizer::Adafactor {
        lines.push("import transformers.optimization".to_owned());
    }
    lines.join("\n") + "\n"
}

fn settings(run: &Run<'_>) -> String {
    let Scenario { batch, sequence, accumulation, .. } = *run.scenario;
    let (data, columns) = match run.looks() {
        true => (pictures::DATA, pictures::COLUMNS),
        false => ("stanfordnlp/imdb", "with a column \"text\""),
    };
    let images = if run.looks() { run.pictures() } else { String::new() };
    let mut lines = format!(
        "\nMODEL = {}\nDATA = {}  # of the Hub, {columns}\n\
         BATCH, LENGTH, ACCUMULATION, STEPS = {batch}, {sequence}, {accumulation}, 1000\n{images}\
         LEARNING_RATE = {:e}\n",
        run.model(),
        string(data),
        learning_rate(run.scenario)
    );
    if let Some(engine) = run.engine() {
        lines.push_str(&engine.join(run));
    }
    lines.push_str(&run.kernels());
    lines
}

fn load(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let mut lines = match run.looks() {
        true => format!("\n{}", run.processor()),
        false => String::from("\ntokenizer = AutoTokenizer.from_pretrained(MODEL)\n"),
    };
    lines.push_str(&run.config().0);
    lines.push_str(&format!("{}model = {}\n", run.loading(), run.loaded()?.written(0)));
    if !scenario.training_loop.fills_cache {
        lines.push_str("model.config.use_cache = False\n");
    }
    lines.push_str(&run.freezes());
    if let Some(changes) = liger(scenario) {
        lines.push_str(&format!("_apply_liger_kernel_to_instance(model=model{changes})\n"));
    }
    if scenario.savings.loss == LossKernel::Cut {
        lines.push_str("model = cce_patch(model)\n");
    }
    if let Some(kwargs) = run.checkpointing().filter(|_| !run.prepares_checkpoints()) {
        lines.push_str(&format!(
            "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={kwargs})\n"
        ));
    }
    lines.push_str(&run.adapters());
    lines.push_str(&float8::conversion(scenario));
    lines.push_str(&qat::preparation(scenario));
    lines.push_str("model.train()\n");
    match scenario.compile {
        Compile::Off => {}
        Compile::Layers => lines.push_str("for layer in model.model.layers:\n    layer.compile()\n"),
        Compile::Model => lines.push_str("model.compile()\n"),
    }
    if let Some(engine) = run.engine() {
        lines.push_str(&engine.wrap(run));
    }
    lines.push_str("trained = [parameter for parameter in model.parameters() if parameter.requires_grad]\n");
    Ok(lines)
}

/// The data, the optimizer and the loop.
fn train(run: &Run<'_>) -> Result<String, Issue> {
    let scenario = run.scenario;
    let (class, settings) = run.optimizer()?;
    let in_backward =
        scenario.savings.step == StepTime::InBackward && !scenario.optimizer.steps_in_backward();
    let fused = scenario.optimizer.steps_in_backward();
    let groups = groups(run);
    let what = match (fused, in_backward, groups.is_some()) {
        (true, ..) => "model",
        (false, true, false) => "[parameter]",
        (false, true, true) => "groups([parameter])",
        (false, false, false) => "trained",
        (false, false, true) => "groups(trained)",
    };
    let call = settings
        .iter()
        .fold(Call::new(class).with(what).keyword("lr", "LEARNING_RATE"), |call, (name, value)| {
            call.keyword(name, value)
        });
    let engine = run.engine();
    let zero = matches!(engine, Some(Engine::Zero(_)));
    let mut lines = match run.looks() {
        true => run.looked_at(engine.is_some()),
        false => data(scenario.mask, engine.is_some()),
    };
    lines.push_str(&groups.unwrap_or_default());
    if in_backward {
        lines.push_str(&format!(
            "\n\noptimizers = {{parameter: {} for parameter in trained}}\n\n\n\
             def step(parameter):\n    optimizers[parameter].step()\n    optimizers[parameter].zero_grad()\n\n\n\
             for parameter in trained:\n    parameter.register_post_accumulate_grad_hook(step)\n\n",
            call.written(0)
        ));
    } else {
        lines.push_str(&format!("\n\noptimizer = {}\n", call.written(0)));
    }
    if zero {
        lines.push_str("engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO)\n");
    }
    let device = run.device().name();
    // DeepSpeed's engine has a scaler of its own
    let scaled = scenario.precision.is_scaled() && !zero;
    if scaled {
        lines.push_str(&format!("scaler = torch.amp.GradScaler(\"{device}\")\n"));
    }
    lines.push_str("rows = batches()\nfor number in range(STEPS):\n");
    let accumulates = scenario.accumulation > 1;
    let inner = if accumulates { 2 } else { 1 };
    let indent = "    ".repeat(inner);
    if accumulates {
        lines.push_str("    for part in range(ACCUMULATION):\n");
    }
    lines.push_str(&format!(
        "{indent}batch = {{name: tensor.to(\"{device}\") for name, tensor in next(rows).items()}}\n"
    ));
    let keeps = scenario.training_loop.keeps_outputs;
    let called = if zero { "engine" } else { "model" };
    let forward = match keeps {
        true => format!("output = {called}(**batch)"),
        false => format!("loss = {called}(**batch).loss"),
    };
    match run.autocast() {
        Some(dtype) => lines.push_str(&format!(
            "{indent}with torch.autocast(\"{device}\", dtype={dtype}):\n{indent}    {forward}\n"
        )),
        None => lines.push_str(&format!("{indent}{forward}\n")),
    }
    let loss = if keeps { "output.loss" } else { "loss" };
    let told =
        [(engine.is_some(), "RANK == 0 and "), (true, "number % 10 == 0"), (accumulates, " and part == 0")];
    let told: String = told.iter().filter(|(is, _)| *is).map(|(_, words)| *words).collect();
    let telling =
        format!("{indent}if {told}:\n{indent}    print(f\"step {{number}}: loss {{{loss}.item():.4f}}\")\n");
    let loss = if accumulates && !zero { format!("({loss} / ACCUMULATION)") } else { loss.to_owned() };
    lines.push_str(&match (zero, scaled) {
        // what is accumulated it divides, clips and frees itself
        (true, _) => format!("{indent}engine.backward({loss})\n{indent}engine.step()\n"),
        (false, true) => format!("{indent}scaler.scale({loss}).backward()\n"),
        (false, false) if fused => format!("{indent}optimizer.fused_backward({loss}, LEARNING_RATE)\n"),
        (false, false) => format!("{indent}{loss}.backward()\n"),
    });
    lines.push_str(&telling);
    if !keeps {
        lines.push_str(&format!("{indent}del loss  # and its graph, before the next forward pass\n"));
    }
    if !in_backward && !fused && !zero {
        lines.push_str(&update(scenario, scaled));
    }
    lines.push('\n');
    lines.push_str(&match engine {
        Some(engine) => engine.save(scenario.method),
        None => "model.save_pretrained(\"out\")\n".to_owned(),
    });
    Ok(lines)
}

/// Groups of parameters as transformers hands them to an optimizer that projects gradients: those that it projects come last.
fn groups(run: &Run<'_>) -> Option<String> {
    let pieces = projected::pieces(run.scenario, &run.architecture)?;
    let further = match run.scenario.optimizer {
        Optimizer::ApolloAdamW => "\"proj\": \"random\", \"scale_type\": \"channel\", \"scale\": 1.0",
        _ => "\"scale\": 0.25",
    };
    Some(format!(
        "\n\nLAYERS = {}\nPROJECTION = {{\"rank\": {}, \"update_proj_gap\": 200, \"proj_type\": \"std\", {further}}}\n\
         projected = {{\n    module.weight\n    for name, module in model.named_modules()\n    \
         if isinstance(module, torch.nn.Linear) and any(piece in name for piece in LAYERS)\n}}\n\n\n\
         def groups(parameters):\n    whole = [parameter for parameter in parameters if parameter not in projected]\n    \
         rest = [parameter for parameter in parameters if parameter in projected]\n    \
         return [{{\"params\": whole}}, {{\"params\": rest, **PROJECTION}}]\n",
        strings(pieces.iter().map(String::as_str)),
        run.scenario.lora.rank
    ))
}

/// Clipping, the step, the gradients' end.
fn update(scenario: &Scenario, scaled: bool) -> String {
    let clip = "    torch.nn.utils.clip_grad_norm_(trained, 1.0)\n";
    let zero = match scenario.training_loop.grads_to_none {
        true => "    optimizer.zero_grad()\n",
        false => "    optimizer.zero_grad(set_to_none=False)\n",
    };
    let (before, step) = match scaled {
        true => ("    scaler.unscale_(optimizer)\n", "    scaler.step(optimizer)\n    scaler.update()\n"),
        false => ("", "    optimizer.step()\n"),
    };
    let clip = if scenario.training_loop.clips { format!("{before}{clip}") } else { String::new() };
    format!("{clip}{step}{zero}")
}

/// Batches as the mask says they are; each process has texts of its own where several share the work.
fn data(mask: Mask, shared: bool) -> String {
    let own = if shared { ".shard(WORLD, RANK)" } else { "" };
    let texts = format!(
        "\n\ndef texts():\n    while True:\n        for row in load_dataset(DATA, split=\"train\"){own}:\n            \
         yield tokenizer(row[\"text\"])[\"input_ids\"] + [tokenizer.eos_token_id]\n"
    );
    let chunks = "\n\ndef chunks():\n    tokens = []\n    for text in texts():\n        tokens += text\n        \
                  while len(tokens) >= LENGTH:\n            yield tokens[:LENGTH]\n            tokens = tokens[LENGTH:]\n";
    let whole = "    source = chunks()\n    while True:\n        ids = torch.tensor([next(source) for _ in range(BATCH)])\n";
    let batches = match mask {
        Mask::None => format!(
            "{chunks}\n\ndef batches():\n    \"\"\"Rows of one length, cut from the texts one after the other: no padding, no mask.\"\"\"\n\
             {whole}        yield {{\"input_ids\": ids, \"labels\": ids.clone()}}\n"
        ),
        Mask::Ones => format!(
            "{chunks}\n\ndef batches():\n    \"\"\"Rows of one length, cut from the texts one after the other, with a mask of ones.\"\"\"\n\
             {whole}        yield {{\"input_ids\": ids, \"labels\": ids.clone(), \"attention_mask\": torch.ones_like(ids)}}\n"
        ),
        Mask::Padded => "\n\ndef batches():\n    \"\"\"A text a row, cut at LENGTH tokens and padded to the longest. The estimate is of LENGTH tokens.\"\"\"\n    \
             source = texts()\n    while True:\n        rows = [torch.tensor(next(source)[:LENGTH]) for _ in range(BATCH)]\n        \
             ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)\n        \
             mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)\n        \
             yield {\"input_ids\": ids, \"labels\": ids.masked_fill(mask == 0, -100), \"attention_mask\": mask}\n"
            .to_owned(),
        Mask::PaddingFree | Mask::Packed => {
            "\n\ndef batches():\n    \"\"\"All texts of a micro-batch in one row, which do not see each other.\"\"\"\n    \
             source, collate = texts(), DataCollatorWithFlattening()\n    while True:\n        \
             yield collate([{\"input_ids\": next(source)[:LENGTH]} for _ in range(BATCH)])\n"
                .to_owned()
        }
    };
    format!("{texts}{batches}")
}
