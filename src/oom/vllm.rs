//! What vLLM says where its share of a card is not free as it starts: `Free memory on device (3.21/23.64 GiB) on startup is less than desired
//! GPU memory utilization (0.9, 21.28 GiB)` (v1/worker/gpu_worker.py `init_device`), in later versions `on device cuda:0 (` (v1/worker/utils.py
//! `request_memory`); and where what its share leaves has no room for keys and values: `No available memory for the cache blocks` and `The model's
//! max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (89440)` (worker/worker.py
//! `raise_if_cache_size_invalid`), `To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger
//! than the available KV cache memory (4.50 GiB)` (v1/core/kv_cache_utils.py `_check_enough_kv_cache_memory`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, amounts};
use crate::units::{BYTES_PER_GB, Bytes, grouped};

/// What vLLM asked of a card, and what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Share {
    /// What it asked for, in percent of the card (`gpu_memory_utilization`).
    pub percent: u64,
    /// The same in bytes.
    pub asked: Amount,
    /// What was free.
    pub free: Amount,
    /// What the card has.
    pub capacity: Amount,
}

impl Share {
    /// What a text says of it, all blanks one.
    pub(super) fn read(words: &str) -> Option<Share> {
        let (_, rest) = words.split_once("Free memory on device")?;
        let (found, asked) = rest.split_once("less than desired GPU memory utilization")?;
        let within = |text| Some(str::split_once(str::split_once(text, '(')?.1, ')')?.0);
        let (free, capacity) = within(found)?.split_once('/')?;
        let (part, asked) = within(asked)?.split_once(',')?;
        let amount = |text: &str| amounts(text, BYTES_PER_GB).first().map(|found| found.amount);
        let part: f64 = part.trim().parse().ok()?;
        Some(Share {
            percent: (part * 100.0).round() as u64,
            asked: amount(asked)?,
            // its unit stands behind both
            free: amount(&format!("{free} GiB"))?,
            capacity: amount(capacity)?,
        })
    }

    /// What others had of the card.
    pub fn held(&self) -> Bytes {
        self.capacity.bytes.saturating_sub(self.free.bytes)
    }

    /// The largest share that was free, in whole percent.
    pub fn most(&self) -> u64 {
        self.free.bytes.percent_of(self.capacity.bytes).clamp(0.0, 100.0) as u64
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { percent, asked, free, .. } = self;
        write!(
            f,
            "vLLM asks for its share of the whole card before it starts: {percent} % are {}, and {} were free. Others held {}: another process \
             (nvidia-smi lists it; an earlier run that has not ended is one), or a training in the same process (vllm_mode=\"colocate\"), which has \
             its own part beside the share. A share of {:.2} was free (gpu_memory_utilization).",
            asked.bytes,
            free.bytes,
            self.held(),
            self.most() as f64 / 100.0
        )
    }
}

/// What vLLM's share leaves for keys and values, where that is too little; what a text does not say is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Cache {
    /// What there is; absent where there is nothing.
    pub available: Option<Amount>,
    /// What one sequence needs.
    pub needed: Option<Amount>,
    /// The tokens that have room.
    pub held: Option<u64>,
    /// The tokens that one sequence may have (`max_model_len`).
    pub longest: Option<u64>,
    /// As many as would have room, by vLLM's own reckoning.
    pub estimated: Option<u64>,
}

impl Cache {
    /// What a text says of it, all blanks one.
    pub(super) fn read(words: &str) -> Option<Cache> {
        let number = |rest: &str| {
            let digits = |c: char| !c.is_ascii_digit();
            let rest = rest.trim_start_matches([' ', '(']);
            rest.split(digits).next().and_then(|number| number.parse::<u64>().ok())
        };
        let after = |text: &str, words: &str| text.split_once(words).and_then(|(_, rest)| number(rest));
        let gib = |text: &str| amounts(text, BYTES_PER_GB).first().map(|found| found.amount);
        // later versions say "model's" where these say "models's"
        let lengths = ["To serve at least one request with the model", "The model's max seq len"];
        let [of_bytes, of_tokens] = lengths.map(|begins| words.find(begins).map(|at| &words[at..]));
        if let Some((said, rest)) =
            of_bytes.and_then(|text| text.split_once("is larger than the available KV cache memory"))
        {
            return Some(Cache {
                available: gib(rest),
                needed: gib(said.split_once("),")?.1),
                held: None,
                longest: after(said, "max seq len"),
                estimated: after(rest, "estimated maximum model length is"),
            });
        }
        let larger = "is larger than the maximum number of tokens that can be stored in KV cache";
        if let Some((said, rest)) = of_tokens.and_then(|text| text.split_once(larger)) {
            let (held, longest) = (number(rest), after(said, "max seq len"));
            return Some(Cache { available: None, needed: None, held, longest, estimated: held });
        }
        let is_none = words.contains("No available memory for the cache blocks");
        is_none.then_some(Cache { available: None, needed: None, held: None, longest: None, estimated: None })
    }

    /// What was needed and what there was.
    pub(super) fn headline(&self, amount: impl Fn(Bytes) -> String) -> String {
        match *self {
            Cache { needed: Some(needed), available: Some(available), .. } => format!(
                "vLLM needs {} for the keys and values of one sequence, and its share of the card left {}.",
                amount(needed.bytes),
                amount(available.bytes)
            ),
            Cache { held: Some(held), longest: Some(longest), .. } => format!(
                "vLLM's share of the card has room for the keys and values of {} tokens, and one sequence may have {}.",
                grouped(held),
                grouped(longest)
            ),
            _ => "vLLM's share of the card left nothing for keys and values.".to_owned(),
        }
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cache { longest, estimated, .. } = self;
        let length = |f: &mut fmt::Formatter<'_>| match estimated {
            Some(most) => write!(f, "max_model_len={most} has room (in trl vllm_max_model_length)"),
            None => f.write_str("a smaller max_model_len asks for less (in trl vllm_max_model_length)"),
        };
        f.write_str(
            "vLLM keeps keys and values in what its share of the card leaves beside its weights, the tensors of a profiling run and CUDA graphs. ",
        )?;
        if longest.is_some() {
            f.write_str("It starts only where one sequence as long as it may be has room: ")?;
            length(f)?;
            f.write_str(". More is left by a larger share")?;
        } else {
            f.write_str("They took all of it. Something is left by a larger share")?;
        }
        f.write_str(
            " (gpu_memory_utilization), fewer tokens in the profiling run (max_num_batched_tokens, max_num_seqs), no CUDA graphs (enforce_eager=True), or \
             smaller weights. What vLLM leaves for any model and format the table of weights by format says (headroom serving).",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_read() {
        let text = "ValueError: Free memory on device (3.21/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB). \
                    Decrease GPU memory utilization or reduce GPU memory used by other processes.";
        for text in [text.to_owned(), text.replace("device (", "device cuda:0 (")] {
            let share = Share::read(&text).expect("a share");
            assert_eq!((share.percent, share.most(), share.held()), (90, 13, Bytes::gib(20.43)));
            let amounts = [share.asked, share.free, share.capacity].map(|amount| amount.bytes.to_string());
            assert_eq!(amounts, ["21.3 GiB", "3.21 GiB", "23.6 GiB"]);
        }
        for text in [
            "Free memory on device",
            "Free memory on device (/) less than desired GPU memory utilization (,)",
        ] {
            assert_eq!(Share::read(text), None, "{text}");
        }
    }
    #[test]
    fn what_the_cache_lacks_is_read() {
        let read = |text: &str| {
            let Cache { available, needed, held, longest, estimated } = Cache::read(text)?;
            let amounts = [available, needed]
                .map(|amount| amount.map_or_else(String::new, |amount| amount.bytes.to_string()));
            Some((amounts, [held, longest, estimated]))
        };
        // vLLM 0.9 (v1/core/kv_cache_utils.py line 545), whose sentence has a hole; 0.10, with blanks for its line ends; 0.12
        let old = "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, which is larger than the \
                   available KV cache memory (1.25 GiB). Based on the available memory,  Try increasing `gpu_memory_utilization` or decreasing \
                   `max_model_len` when initializing the engine.";
        let later = "ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is larger than the \
                     available KV cache memory (4.50 GiB). Based on the available memory, the estimated maximum model length is 32768. Try increasing \
                     `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.";
        let latest = "ValueError: To serve at least one request with the model's max seq len (4096), (1.0 GiB KV cache is needed, which is larger than the \
                      available KV cache memory (0.58 GiB). Based on the available memory, the estimated maximum model length is 2368.";
        let of =
            |available: &str, needed: &str, numbers| Some(([available, needed].map(str::to_owned), numbers));
        assert_eq!(read(old), of("1.25 GiB", "10.0 GiB", [None, Some(40_960), None]));
        assert_eq!(read(later), of("4.50 GiB", "5.62 GiB", [None, Some(40_960), Some(32_768)]));
        assert_eq!(read(latest), of("594 MiB", "1.00 GiB", [None, Some(4096), Some(2368)]));
        // vLLM 0.6 and 0.7 (worker/worker.py)
        let tokens = "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (89440). Try \
                      increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.";
        assert_eq!(read(tokens), of("", "", [Some(89_440), Some(131_072), Some(89_440)]));
        let none = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
        assert_eq!(read(none), of("", "", [None; 3]));
        for text in [
            "",
            "The model's max seq len",
            "To serve at least one request with the model is larger than the available KV cache memory",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
