//! What an out-of-memory message says, whichever version of PyTorch wrote it; and the tables that people copy beside it.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::amount::{Amount, Found, amounts};
use super::bare::{self, Bitsandbytes};
use super::engine::Serving;
use super::host::Host;
use super::pool::Pool;
use super::processes::processes;
use super::smi::{Row, rows};
use super::vllm::{Cache, Share};
use crate::allocator::segment_for;
use crate::hardware::Vendor;
use crate::units::{BYTES_PER_GB, BYTES_PER_GIB, BYTES_PER_MIB, Bytes};

/// The figures of a message; those that it does not give are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Message {
    /// What the allocator asked the card for: "Tried to allocate".
    pub requested: Option<Amount>,
    /// What the card has.
    pub capacity: Option<Amount>,
    /// What of it nobody had.
    pub free: Option<Amount>,
    /// What the process may have of it, where it has a limit of its own.
    pub allowed: Option<Amount>,
    /// What the process had, with what lies outside PyTorch's allocator.
    pub process: Option<Amount>,
    /// What other processes had.
    pub others: Option<Amount>,
    /// `memory_allocated()`.
    pub allocated: Option<Amount>,
    /// Reserved by PyTorch and not allocated: the allocator's free blocks.
    pub unallocated: Option<Amount>,
    /// `memory_reserved()`.
    pub reserved: Option<Amount>,
    /// What all processes have of the card, as nvidia-smi shows it.
    pub shown: Option<Amount>,
    /// `max_memory_allocated()`.
    pub allocated_peak: Option<Amount>,
    /// `max_memory_reserved()`.
    pub reserved_peak: Option<Amount>,
    /// Free blocks in segments of which tensors have other parts ("Non-releasable memory"): the allocator cannot give them back.
    pub inactive: Option<Amount>,
    /// How often the card had no room and the allocator gave back its free segments ("cudaMalloc retries").
    pub retries: Option<u64>,
    /// How often that did not help either ("CUDA OOMs").
    pub failures: Option<u64>,
    /// What the process has of Metal beside PyTorch's allocator: "other allocations".
    pub beside: Option<Amount>,
    /// Whether the driver says it and not PyTorch's allocator, without a figure: "CUDA error: out of memory".
    pub is_of_driver: bool,
    /// Whether a PyTorch says it that had no figures to say: "cuda runtime error (2) : out of memory".
    pub is_old: bool,
    /// Where bitsandbytes says it: "Error out of memory at line 380 in file …".
    pub bitsandbytes: Option<Bitsandbytes>,
    /// Whether PyTorch's allocator was CUDA's own, whose requests are no segments: "would exceed allowed memory".
    pub is_of_pool: bool,
    /// How many rows of nvidia-smi there are, cards or moments; the figures are of the fullest.
    pub rows: Option<u64>,
    /// Whether it is of PyTorch for AMD's cards: "HIP out of memory".
    pub is_of_amd: bool,
    /// Whether it is of PyTorch for Intel's cards: "XPU out of memory".
    pub is_of_intel: bool,
    /// Whether it is of PyTorch on a Mac, whose capacity is what the process may have.
    pub is_of_metal: bool,
    /// Where it is the computer's own memory (RAM) that ran out, and not a card's.
    pub host: Option<Host>,
    /// Where vLLM found its share of the card taken.
    pub vllm: Option<Share>,
    /// Where vLLM's share left too little for keys and values.
    pub cache: Option<Cache>,
    /// Where an engine that serves models asked, and no training.
    pub serving: Option<Serving>,
}

/// A text in which none of these figures was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMessage;

impl std::error::Error for NoMessage {}

impl std::str::FromStr for Message {
    type Err = NoMessage;

    fn from_str(text: &str) -> Result<Message, NoMessage> {
        let mut message = Message::default();
        message.read_summary(text);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        message.read_sentence(first_message(&words));
        message.read_pool(&words);
        message.read_nvidia_smi(text);
        message.read_listed(text);
        message.read_vllm(&words);
        message.complete();
        if !words.contains("Tried to allocate") && !message.is_of_pool {
            message.bitsandbytes = bare::bitsandbytes(&words);
            message.is_of_driver = bare::is_of_driver(&words);
            message.is_old = bare::is_old(&words);
        }
        let is_asked = message.requested.is_some() || message.is_of_pool || message.is_of_driver;
        let is_told = message.vllm.is_some() || message.cache.is_some();
        message.serving =
            Serving::read(text).filter(|serving| !is_told && (is_asked || serving.sequences.is_some()));
        // the processes of a run end each other where one of them fails
        let Message {
            requested, is_of_driver, is_of_pool, is_old, bitsandbytes, vllm, cache, serving, ..
        } = message;
        let is_told = requested.is_some()
            || is_of_driver
            || is_of_pool
            || is_old
            || bitsandbytes.is_some()
            || vllm.is_some()
            || serving.is_some()
            || cache.is_some();
        message.host = Host::read(text, &words).filter(|host| !is_told || *host != Host::Signal);
        if message == Message::default() {
            return Err(NoMessage);
        }
        let is_of_metal = words.contains("MPS backend out of memory") || words.contains("MPS allocated");
        let [is_of_amd, is_of_intel] =
            ["HIP out of memory", "XPU out of memory"].map(|said| words.contains(said));
        Ok(Message { is_of_amd, is_of_intel, is_of_metal, ..message })
    }
}

impl Message {
    /// The segment that was asked for, where it is one that the allocator has for tensors of up to 10 MiB, whatever their size.
    pub fn segment(&self) -> Option<Bytes> {
        let asked = self.requested.filter(|_| !self.is_of_pool)?.bytes;
        [1, 2 << 20].map(segment_for).map(Bytes).into_iter().find(|segment| *segment == asked)
    }

    /// The segments that the allocator asks for where it asks for as much; none where many tensors of any size do.
    pub(super) fn sought(&self) -> Option<RangeInclusive<u64>> {
        let asked = self.requested.filter(|_| self.segment().is_none())?;
        let of_pool = |bytes: u64| if self.is_of_pool { segment_for(bytes) } else { bytes };
        let is_small = self.is_of_pool && segment_for(asked.most()) <= segment_for(2 << 20);
        (!is_small).then(|| of_pool(asked.least())..=of_pool(asked.most()))
    }

    /// Whose cards it is of, where it says so.
    pub const fn vendor(&self) -> Option<Vendor> {
        match self {
            Message { is_of_amd: true, .. } => Some(Vendor::Amd),
            Message { is_of_intel: true, .. } => Some(Vendor::Intel),
            Message { is_of_metal: true, .. } => Some(Vendor::Apple),
            _ => None,
        }
    }

    /// Whether a card's memory ran out in a step, or may have: not the computer's own, nor what both have in common, nor vLLM's share before
    /// it starts, nor in an engine that serves models.
    pub fn is_of_step(&self) -> bool {
        let is_of_another = self.host.is_some()
            || self.vllm.is_some()
            || self.cache.is_some()
            || self.bitsandbytes == Some(Bitsandbytes::Managed);
        self.serving.is_none() && (self.requested.is_some() || !is_of_another)
    }

    /// What everybody had of the card, where the text says what it has and what was free.
    pub fn in_use(&self) -> Option<Bytes> {
        Some(self.capacity?.bytes.saturating_sub(self.free?.bytes))
    }

    /// What the process had of the card where the text tells that, else all that was in use beside what others are said to have had.
    pub(super) fn held(&self) -> Option<Amount> {
        let others = self.others.map_or(Bytes::ZERO, |amount| amount.bytes);
        let in_use = || difference(self.capacity, self.free);
        self.process.or_else(|| in_use().map(|all| Amount { bytes: all.bytes.saturating_sub(others), ..all }))
    }

    /// PyTorch's sentence: `c10/cuda/CUDACachingAllocator.cpp` of 1.0 to 2.11, and `aten/src/ATen/mps/MPSAllocator.mm`. The
    /// words around an amount say what it is.
    fn read_sentence(&mut self, text: &str) {
        // which writes GB for GiB
        let step_of_gb = if text.contains("MPS allocated") { BYTES_PER_GIB } else { BYTES_PER_GB };
        let mut processes: Vec<Amount> = Vec::new();
        for Found { amount, before, after, .. } in amounts(text, step_of_gb) {
            let ends = |words: &[&str]| words.iter().any(|words| before.ends_with(words));
            let begins = |words: &[&str]| words.iter().any(|words| after.starts_with(words));
            let field = if ends(&["Tried to allocate"]) {
                &mut self.requested
            } else if ends(&["total capacity of", "total capacty of", "max allowed:"])
                || begins(&["total capacity"])
            {
                &mut self.capacity
            } else if begins(&["is free", "free"]) {
                &mut self.free
            } else if begins(&["allowed;"]) {
                &mut self.allowed
            } else if begins(&["memory in use"]) && ends(&["this process has"]) {
                &mut self.process
            } else if begins(&["memory in use"]) {
                processes.push(amount);
                continue;
            } else if begins(&["is allocated by PyTorch", "already allocated"]) || ends(&["MPS allocated:"]) {
                &mut self.allocated
            } else if ends(&["other allocations:"]) {
                &mut self.beside
            } else if begins(&["is reserved by PyTorch but unallocated", "cached)"]) {
                &mut self.unallocated
            } else if begins(&["reserved in total by PyTorch"]) {
                &mut self.reserved
            } else {
                continue;
            };
            field.get_or_insert(amount);
        }
        self.read_processes(processes);
    }

    /// The processes that a message names by number. In a container PyTorch does not know its own number, and this process is
    /// among them: the one beside which there would be no room for what PyTorch reserved.
    fn read_processes(&mut self, mut processes: Vec<Amount>) {
        // a driver that does not see into containers says that each has nothing, one under WSL 2 more than there is
        let is_known = |amount: &Amount| {
            amount.bytes > Bytes::ZERO && self.capacity.is_none_or(|capacity| amount.bytes <= capacity.bytes)
        };
        processes.retain(is_known);
        let process = self.process.filter(is_known);
        self.process = process;
        let reserved = self.reserved.or(sum(self.allocated, self.unallocated));
        if let (None, Some(reserved), Some(capacity)) = (self.process, reserved, self.capacity) {
            let free = self.free.map_or(Bytes::ZERO, |amount| amount.bytes);
            let own = processes.iter().position(|amount| {
                let beside = capacity.bytes.saturating_sub(free).saturating_sub(amount.bytes);
                amount.most() >= reserved.least() && beside < reserved.bytes
            });
            self.process = own.map(|own| processes.remove(own));
        } else if self.process.is_none() && processes.len() == 1 {
            // the driver lists every process that has memory of the card, and this one has
            self.process = processes.pop();
        }
        self.others = processes.into_iter().map(Some).reduce(sum).flatten();
    }

    /// What nvidia-smi shows of the fullest card.
    fn read_nvidia_smi(&mut self, text: &str) {
        let rows = rows(text);
        let Some(Row { used, total, free }) = rows.iter().max_by_key(|row| row.used.bytes) else { return };
        self.rows = Some(rows.len() as u64);
        self.shown.get_or_insert(*used);
        self.capacity = self.capacity.or(*total);
        self.free = self.free.or(*free);
    }

    /// The processes that nvidia-smi lists: of now, where a message is of a run that ended.
    fn read_listed(&mut self, text: &str) {
        let Some(listed) = processes(text).filter(|_| self.requested.is_none()) else { return };
        // nvidia-smi rounds to MiB
        let amount = |bytes: Bytes| Some(Amount { bytes, off: Bytes(BYTES_PER_MIB / 2) });
        self.process = self.process.or(amount(listed.own.bytes));
        self.others = self.others.or(amount(listed.of_others()));
    }

    /// The message of PyTorch over CUDA's own allocator.
    fn read_pool(&mut self, words: &str) {
        let Some(pool) = Pool::read(words).filter(|_| self.requested.is_none()) else { return };
        let Pool { allocated, requested, capacity, free, allowed } = pool;
        self.is_of_pool = true;
        (self.requested, self.allowed) = (requested, allowed);
        self.allocated = self.allocated.or(allocated);
        self.capacity = self.capacity.or(capacity);
        self.free = self.free.or(free);
    }

    /// What vLLM says of the card.
    fn read_vllm(&mut self, words: &str) {
        self.vllm = Share::read(words);
        self.cache = Cache::read(words);
        self.capacity = self.capacity.or(self.vllm.map(|share| share.capacity));
        self.free = self.free.or(self.vllm.map(|share| share.free));
    }

    /// `torch.cuda.memory_summary()`: `| CUDA OOMs: 0 | cudaMalloc retries: 2 |`, then
    /// `| Allocated memory | 7023 MiB | 9876 MiB | …`, the current figure and the highest.
    fn read_summary(&mut self, text: &str) {
        for line in text.lines() {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (Some(label), Some(current)) = (cells.next(), cells.next()) else { continue };
            for cell in [label, current] {
                let (field, count) = if let Some(count) = cell.strip_prefix("CUDA OOMs:") {
                    (&mut self.failures, count)
                } else if let Some(count) = cell.strip_prefix("cudaMalloc retries:") {
                    (&mut self.retries, count)
                } else {
                    continue;
                };
                *field = field.or(count.trim().parse().ok());
            }
            let (now, highest) = match label {
                "Allocated memory" => (&mut self.allocated, Some(&mut self.allocated_peak)),
                "GPU reserved memory" => (&mut self.reserved, Some(&mut self.reserved_peak)),
                "Non-releasable memory" => (&mut self.inactive, None),
                _ => continue,
            };
            let set = |field: &mut Option<Amount>, cell: &str| {
                if let Some(found) = amounts(cell, BYTES_PER_GB).first() {
                    field.get_or_insert(found.amount);
                }
            };
            set(now, current);
            if let (Some(highest), Some(cell)) = (highest, cells.next()) {
                set(highest, cell);
            }
        }
    }

    /// What follows from the rest.
    fn complete(&mut self) {
        self.unallocated = self.unallocated.or(difference(self.reserved, self.allocated));
        self.reserved = self.reserved.or(sum(self.allocated, self.unallocated));
        self.free = self.free.or(difference(self.capacity, self.shown));
    }
}

fn sum(a: Option<Amount>, b: Option<Amount>) -> Option<Amount> {
    let (a, b) = (a?, b?);
    Some(Amount { bytes: a.bytes + b.bytes, off: a.off + b.off })
}

fn difference(all: Option<Amount>, part: Option<Amount>) -> Option<Amount> {
    let (all, part) = (all?, part?);
    Some(Amount { bytes: all.bytes.saturating_sub(part.bytes), off: all.off + part.off })
}

/// A message is no longer than this, with its advice; what comes later in a log is not read as its figures.
const LONGEST_MESSAGE: usize = 2000;

/// The first message of a text, up to the next one; nothing where there is none.
fn first_message(text: &str) -> &str {
    // an error of the driver's above it has no figures
    let asked = text.find("Tried to allocate").unwrap_or(text.len());
    let before = text[..asked].rfind("out of memory");
    let Some(start) = before.or_else(|| (asked < text.len()).then_some(asked)) else { return "" };
    let rest = &text[start..];
    let next = rest.match_indices("out of memory").map(|(at, _)| at).find(|at| *at > 0);
    let mut end = next.unwrap_or(rest.len()).min(LONGEST_MESSAGE);
    while !rest.is_char_boundary(end) {
        end -= 1;
    }
    &rest[..end]
}

#[cfg(test)]
mod tests;
