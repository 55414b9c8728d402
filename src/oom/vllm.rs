//! What vLLM says where its share of a card is not free as it starts: `Free memory on device (3.21/23.64 GiB) on startup is less than desired
//! GPU memory utilization (0.9, 21.28 GiB)` (v1/worker/gpu_worker.py `init_device`), in later versions `on device cuda:0 (` (v1/worker/utils.py
//! `request_memory`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, amounts};
use crate::units::{BYTES_PER_GB, Bytes};

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
}
