//! A run's allocations as a file that PyTorch's memory_viz opens: the form of `torch.cuda.memory._snapshot()`, pickled
//! (protocol 2 of Python's `pickle`, of which a few instructions are enough).

use std::collections::BTreeMap;

use crate::step::{Snapshot, SnapshotBlock};

/// The pickled snapshot.
///
/// ```
/// use headroom::{allocator::Settings, export, scenario::Scenario, step::Recording};
/// let scenario = Scenario::default();
/// let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
/// let recording = Recording::of(&model, &scenario, &gpu).unwrap();
/// let file = export::memory_viz(&recording.snapshot(Settings::default()));
/// assert!(file.starts_with(&[0x80, 2]) && file.ends_with(b"."));
/// ```
pub fn memory_viz(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Pickle::new();
    out.dict(|out| {
        out.name("device_traces");
        out.list(|out| {
            out.list(|out| {
                for event in &snapshot.events {
                    if event.comes {
                        trace(out, "alloc", &event.block);
                    } else {
                        trace(out, "free_requested", &event.block);
                        trace(out, "free_completed", &event.block);
                    }
                }
            });
        });
        out.name("segments");
        out.list(|out| {
            for blocks in &snapshot.segments {
                segment(out, blocks);
            }
        });
    });
    out.end()
}

fn trace(out: &mut Pickle, action: &'static str, block: &SnapshotBlock) {
    out.dict(|out| {
        out.name("action");
        out.name(action);
        out.number("addr", block.address);
        out.number("size", block.requested);
        out.number("stream", block.stream as u64);
        out.name("frames");
        out.frames(block);
    });
}

fn segment(out: &mut Pickle, blocks: &[SnapshotBlock]) {
    let sum = |size: fn(&SnapshotBlock) -> u64, used: bool| {
        blocks.iter().filter(|block| block.used || !used).map(size).fold(0, u64::saturating_add)
    };
    let first = blocks.first();
    out.dict(|out| {
        out.number("device", 0);
        out.number("address", first.map_or(0, |block| block.address));
        out.number("total_size", sum(|block| block.size, false));
        out.number("allocated_size", sum(|block| block.size, true));
        out.number("active_size", sum(|block| block.size, true));
        out.number("requested_size", sum(|block| block.requested, true));
        out.number("stream", first.map_or(0, |block| block.stream as u64));
        out.name("segment_type");
        out.name(if first.is_some_and(|block| block.is_small) { "small" } else { "large" });
        out.name("frames");
        out.list(|_| ());
        out.name("blocks");
        out.list(|out| {
            for block in blocks {
                out.dict(|out| {
                    out.number("address", block.address);
                    out.number("size", block.size);
                    out.number("requested_size", block.requested);
                    out.name("state");
                    out.name(if block.used { "active_allocated" } else { "inactive" });
                    out.name("frames");
                    out.frames(block);
                });
            }
        });
    });
}

/// What made a block, as a frame says it: operation and module.
type Frame = (&'static str, &'static str);

/// Instructions for Python's unpickler.
struct Pickle {
    bytes: Vec<u8>,
    /// Which names, and frames, are kept under which number.
    names: BTreeMap<&'static str, u32>,
    frames: BTreeMap<Frame, u32>,
    kept: u32,
}

impl Pickle {
    fn new() -> Pickle {
        Pickle { bytes: vec![0x80, 2], names: BTreeMap::new(), frames: BTreeMap::new(), kept: 0 }
    }

    /// Keeps what was written last, to be written again by its number.
    fn keep(&mut self) -> u32 {
        self.bytes.push(b'r');
        self.bytes.extend(self.kept.to_le_bytes());
        self.kept += 1;
        self.kept - 1
    }

    fn again(&mut self, number: u32) {
        self.bytes.push(b'j');
        self.bytes.extend(number.to_le_bytes());
    }

    /// A name that comes again and again.
    fn name(&mut self, text: &'static str) {
        if let Some(number) = self.names.get(text) {
            return self.again(*number);
        }
        self.bytes.push(b'X');
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        let number = self.keep();
        self.names.insert(text, number);
    }

    /// A key and its number.
    fn number(&mut self, key: &'static str, number: u64) {
        self.name(key);
        match u32::try_from(number) {
            Ok(number) if number < 1 << 31 => {
                self.bytes.push(b'J');
                self.bytes.extend(number.to_le_bytes());
            }
            // one byte more than it has, as the last one holds the sign
            _ => {
                self.bytes.extend([0x8a, 9]);
                self.bytes.extend(number.to_le_bytes());
                self.bytes.push(0);
            }
        }
    }

    /// The frames of a block: none where nothing is known of it.
    fn frames(&mut self, block: &SnapshotBlock) {
        let frame = (block.operation, block.module);
        if let Some(number) = self.frames.get(&frame) {
            return self.again(*number);
        }
        self.list(|out| {
            if !block.operation.is_empty() {
                out.dict(|out| {
                    out.name("name");
                    out.name(block.operation);
                    out.name("filename");
                    out.name(block.module);
                    out.number("line", 0);
                });
            }
        });
        let number = self.keep();
        self.frames.insert(frame, number);
    }

    fn list(&mut self, items: impl FnOnce(&mut Pickle)) {
        self.bytes.extend(b"](");
        items(self);
        self.bytes.push(b'e');
    }

    fn dict(&mut self, items: impl FnOnce(&mut Pickle)) {
        self.bytes.extend(b"}(");
        items(self);
        self.bytes.push(b'u');
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(b'.');
        self.bytes
    }
}
