//! What stands behind the figures and the answers of the page: where the documents have the formula, the sources and the known error.

/// A figure or an answer that has a section of its own. Those of an answer's parts are named by the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// What the tensors and the driver need.
    Needs,
    /// What PyTorch reserves.
    Reserves,
    /// What nvidia-smi shows.
    Shows,
    /// What lies in the CPU's memory.
    Host,
    /// Whether it gets through.
    Verdict,
    /// How fast it is and what it costs.
    Speed,
    /// What changes save.
    Changes,
    /// The most that fits: sequences, tokens, ranks, micro-batches, models.
    Limits,
    /// Settings in combination.
    Settings,
    /// Cards and the prices of machines.
    Cards,
    /// Several GPUs.
    Gpus,
    /// Texts of different lengths.
    Lengths,
    /// Weights in other formats, and vLLM's budget.
    Formats,
    /// Sums of other guides.
    Rules,
    /// What the card has.
    Card,
    /// How many parameters there are.
    Parameters,
    /// What is alive at a moment of the step.
    Moment,
    /// What an out-of-memory message says.
    OutOfMemory,
    /// Batches by contexts.
    Contexts,
    /// vLLM's budget.
    Vllm,
}

impl Behind {
    /// All of them.
    pub const ALL: [Behind; 20] = [
        Behind::Needs,
        Behind::Reserves,
        Behind::Shows,
        Behind::Host,
        Behind::Verdict,
        Behind::Speed,
        Behind::Changes,
        Behind::Limits,
        Behind::Settings,
        Behind::Cards,
        Behind::Gpus,
        Behind::Lengths,
        Behind::Formats,
        Behind::Rules,
        Behind::Card,
        Behind::Parameters,
        Behind::Moment,
        Behind::OutOfMemory,
        Behind::Contexts,
        Behind::Vllm,
    ];

    /// The document and its heading, as they are beside the page.
    pub const fn at(self) -> &'static str {
        match self {
            Behind::Needs => "formulas.html#needs",
            Behind::Reserves => "formulas.html#pytorch-reserves",
            Behind::Shows => "formulas.html#nvidia-smi-shows",
            Behind::Host => "formulas.html#the-cpus-memory",
            Behind::Verdict => "formulas.html#verdict",
            Behind::Speed => "time.html#how-right-it-is",
            Behind::Changes => "formulas.html#changes",
            Behind::Limits => "formulas.html#the-most-that-fits",
            Behind::Settings => "formulas.html#settings-in-combination",
            Behind::Cards => "formulas.html#cards-and-prices",
            Behind::Gpus => "formulas.html#many-gpus",
            Behind::Lengths => "formulas.html#texts-of-different-lengths",
            Behind::Formats => "serving.html#weights-by-layout",
            Behind::Rules => "formulas.html#rules-of-thumb",
            Behind::Card => "formulas.html#the-cards-memory",
            Behind::Parameters => "formulas.html#parameters",
            Behind::Moment => "formulas.html#a-moment-of-the-step",
            Behind::OutOfMemory => "formulas.html#out-of-memory-messages",
            Behind::Contexts => "generate.html#batches-by-contexts",
            Behind::Vllm => "serving.html#vllms-budget",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_section() {
        let documents = [
            ("formulas", include_str!("../../docs/formulas.md")),
            ("time", include_str!("../../docs/time.md")),
            ("serving", include_str!("../../docs/serving.md")),
            ("generate", include_str!("../../docs/generate.md")),
        ];
        let anchor = |heading: &str| {
            let kept = heading.to_lowercase();
            kept.chars()
                .filter(|sign| sign.is_alphanumeric() || [' ', '-'].contains(sign))
                .map(|sign| if sign == ' ' { '-' } else { sign })
                .collect::<String>()
        };
        for behind in Behind::ALL {
            let (page, wanted) = behind.at().split_once(".html#").expect("a heading of a document");
            let text = documents.iter().find(|(name, _)| *name == page).expect("a document").1;
            let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
            assert!(headings.any(|heading| anchor(heading) == wanted), "{behind:?}: {}", behind.at());
        }
    }
}
