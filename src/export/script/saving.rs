//! What a file says of checkpoints.

use super::python::{Call, string};
use super::run::Run;
use crate::export::fsdp::state_dict_type;

/// The inputs that it says.
pub(super) const SAID: &[&str] = &["saving"];

impl Run<'_> {
    /// The trainer's arguments with what they say of it: so often as they do by default (transformers 5.17, `save_steps`).
    pub fn saving_arguments(&self, call: Call) -> Call {
        match self.scenario.saves() {
            true => call.keyword("save_strategy", string("steps")).keyword("save_steps", 500),
            false => call,
        }
    }

    /// What FSDP2's settings say of it, behind the others. Where nothing is said, all is gathered (training_args.py
    /// `_process_fsdp_args`).
    pub fn saved_states(&self) -> String {
        match self.scenario.saves() {
            true => {
                format!(", \"state_dict_type\": {}", string(state_dict_type(self.scenario.gathers_saved())))
            }
            false => String::new(),
        }
    }

    /// How the trainer is asked for the model at the end, which it writes of whole weights alone (trainer.py `save_model`).
    pub fn saves_the_model(&self) -> String {
        let scenario = self.scenario;
        let gathers = match scenario.cluster.is_fsdp2() && scenario.saves() && !scenario.gathers_saved() {
            true => "trainer.accelerator.state.fsdp_plugin.set_state_dict_type(\"FULL_STATE_DICT\")\n",
            false => "",
        };
        format!("trainer.train()\n{gathers}trainer.save_model()\n")
    }
}
