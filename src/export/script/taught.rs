//! Distillation: the teacher, and what the two trainers that have one are told.

use super::python::{Call, string};
use super::run::Run;
use crate::import::names::attention;
use crate::issue::{Field, Issue};
use crate::scenario::{Divergence, ModelChoice, Scenario, TeacherWeights};

impl Run<'_> {
    /// The line that names the teacher; none where nobody is learned from.
    pub fn teachers_name(&self) -> Result<String, Issue> {
        if !self.scenario.task.has_teacher() {
            return Ok(String::new());
        }
        let name = match &self.scenario.teacher.model {
            None => return Ok("TEACHER = MODEL\n".to_owned()),
            Some(ModelChoice::Catalogue(id)) => string(id),
            Some(ModelChoice::Custom(model)) => {
                format!("{}  # a folder or a name of the Hub", string(&model.name))
            }
            Some(ModelChoice::Size(_)) => {
                let issue =
                    Issue::error(Field::Teacher, "a teacher of a size is no model that could be loaded");
                return Err(issue.with_fix("choose a teacher by name"));
            }
        };
        Ok(format!("TEACHER = {name}\n"))
    }

    /// Lines that load the teacher; none where nobody is learned from.
    pub fn teacher(&self) -> String {
        if !self.scenario.task.has_teacher() {
            return String::new();
        }
        let dtype = match self.scenario.teacher.weights {
            TeacherWeights::Fp32 => "torch.float32",
            TeacherWeights::Bf16 | TeacherWeights::Nf4 => "torch.bfloat16",
        };
        let quantization = Call::new("BitsAndBytesConfig")
            .keyword("load_in_4bit", "True")
            .keyword("bnb_4bit_quant_type", "\"nf4\"")
            .keyword("bnb_4bit_compute_dtype", "torch.bfloat16")
            .keyword("bnb_4bit_use_double_quant", "True");
        let call = Call::new(format!("{}.from_pretrained", self.class()))
            .with("TEACHER")
            .keyword("dtype", dtype)
            .keyword("attn_implementation", string(attention(self.scenario)))
            .keyword_if("quantization_config", self.has_teacher_in_4_bits().then(|| quantization.written(1)))
            .keyword_if("device_map", self.device_map());
        format!("teacher = {}\n", call.written(0))
    }

    pub fn has_teacher_in_4_bits(&self) -> bool {
        self.scenario.task.has_teacher() && self.scenario.teacher.weights == TeacherWeights::Nf4
    }
}

/// What GKDTrainer is told of answers and its loss (trl 1.16, experimental/gkd/gkd_config.py).
pub(super) fn gkd(scenario: &Scenario, call: Call) -> Call {
    let beta = match scenario.teacher.divergence {
        Divergence::GkdForward => "0.0",
        Divergence::GkdReverse => "1.0",
        Divergence::Gkd | Divergence::Tiles => "0.5",
    };
    call.keyword("max_length", scenario.sequence)
        .keyword("max_new_tokens", scenario.sequence.saturating_sub(scenario.answers.prompt))
        .keyword("beta", beta)
        // the chance that the student answers, not the data
        .keyword("lmbda", if scenario.generates_itself() { "1.0" } else { "0.0" })
}
