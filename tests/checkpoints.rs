//! What files of trainers and launchers say of checkpoints, as it is read.

use headroom::import::{self, Understood};
use headroom::scenario::Scenario;

fn over(text: &str, base: &Scenario) -> Understood {
    import::read(text, base).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn read(text: &str) -> Understood {
    over(text, &Scenario::default())
}

fn saving(text: &str) -> &'static str {
    read(text).scenario.spikes.saving.slug()
}

const TRL: &str = "model_name_or_path: meta-llama/Llama-3.1-8B\nuse_peft: true\nper_device_train_batch_size: 1\nmax_length: 1024\n";

#[test]
fn a_strategy_says_whether_there_are_any() {
    for (more, expected) in [
        ("save_strategy: epoch\n", "on"),
        ("save_steps: 200\n", "on"),
        ("save_strategy: \"no\"\nsave_steps: 200\n", "off"),
        ("save_strategy: no\n", "off"),
        ("save_strategy: best\n", "on"),
        ("", "off"),
    ] {
        assert_eq!(saving(&format!("{TRL}{more}")), expected, "{more}");
    }
    let axolotl = "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 1024\ndatasets: []\n";
    assert_eq!(saving(&format!("{axolotl}saves_per_epoch: 2\n")), "on");
    assert_eq!(saving(axolotl), "off");
    let factory =
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: lora\ncutoff_len: 1024\n";
    assert_eq!(saving(&format!("{factory}save_steps: 500\n")), "on");
    assert_eq!(saving(factory), "off");
}

#[test]
fn whole_weights_are_gathered_where_the_launcher_says_so() {
    let saves = read(&format!("{TRL}save_strategy: steps\n")).scenario;
    for (gathers, expected) in [("true", "full"), ("false", "on")] {
        let text = format!(
            "{{\"zero_optimization\": {{\"stage\": 3, \"stage3_gather_16bit_weights_on_model_save\": {gathers}}}}}"
        );
        assert_eq!(over(&text, &saves).scenario.spikes.saving.slug(), expected);
        assert_eq!(saving(&text), "off");
    }
    let command = |states: &str| {
        format!(
            "accelerate launch --num_processes 4 --use_fsdp --fsdp_version 2 --fsdp_state_dict_type {states} sft.py \
             --model_name_or_path meta-llama/Llama-3.1-8B --use_peft --save_strategy steps"
        )
    };
    assert_eq!(saving(&command("FULL_STATE_DICT")), "full");
    assert_eq!(saving(&command("SHARDED_STATE_DICT")), "on");
}

#[test]
fn an_argument_for_fsdp_gathers_by_default() {
    let script = |fsdp: &str| {
        format!(
            "model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B\")\n\
             args = SFTConfig(save_strategy=SaveStrategy.STEPS, per_device_train_batch_size=1, {fsdp})\n\
             SFTTrainer(model=model, args=args, peft_config=LoraConfig())\n"
        )
    };
    assert_eq!(saving(&script("fsdp=True")), "full");
    assert_eq!(saving(&script("fsdp=True, fsdp_config={\"state_dict_type\": \"SHARDED_STATE_DICT\"}")), "on");
    assert_eq!(saving(&script("bf16=True")), "on");
}

#[test]
fn what_was_not_compared_is_left_with_its_reason() {
    let dora = read(&format!("{TRL}use_dora: true\nsave_strategy: steps\nsave_steps: 50\n"));
    assert_eq!(dora.scenario.spikes.saving.slug(), "off");
    let left = dora.left.iter().find(|left| left.said.contains("save_strategy")).expect("it is listed");
    assert!(left.why.contains("another tuner") && left.said.contains("save_steps"), "{left:?}");
    let weights = read(&format!("{TRL}save_strategy: steps\nsave_only_model: true\n"));
    assert!(weights.left.iter().any(|left| left.said.contains("save_only_model")), "{:?}", weights.left);
    let banana = read(&format!("{TRL}save_strategy: banana\n"));
    assert_eq!(banana.scenario.spikes.saving.slug(), "off");
    assert!(banana.left.iter().any(|left| left.why.contains("steps, epoch and best")), "{:?}", banana.left);
    // of other tasks nothing is asked
    let dpo = read(
        "trl dpo --model_name_or_path meta-llama/Llama-3.1-8B --use_peft --save_strategy steps --save_only_model true",
    );
    assert_eq!((dpo.scenario.spikes.saving.slug(), dpo.left), ("off", Vec::new()));
    assert!(dpo.idle.iter().any(|said| said.contains("save_strategy")), "{:?}", dpo.idle);
}
