//! The file for PyTorch's memory_viz: it can be unpickled, and what stands in it is the run. `tools/open_memory_viz.py` opens
//! one with PyTorch's own code.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeMap;

use headroom::allocator::Settings;
use headroom::export::memory_viz;
use headroom::scenario::Scenario;
use headroom::step::Recording;

/// What Python would have.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Mark,
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Dict(BTreeMap<String, Value>),
}

impl Value {
    #[track_caller]
    fn of(&self, key: &str) -> &Value {
        let Value::Dict(dict) = self else { panic!("{self:?} is no dict") };
        dict.get(key).unwrap_or_else(|| panic!("{key} is missing in {self:?}"))
    }

    #[track_caller]
    fn number(&self, key: &str) -> u64 {
        let Value::Number(number) = self.of(key) else { panic!("{key} of {self:?} is no number") };
        *number
    }

    #[track_caller]
    fn text(&self, key: &str) -> &str {
        let Value::Text(text) = self.of(key) else { panic!("{key} of {self:?} is no text") };
        text
    }

    #[track_caller]
    fn items(&self) -> &[Value] {
        let Value::List(items) = self else { panic!("{self:?} is no list") };
        items
    }
}

/// Python's `pickle.loads`, as far as such a file goes.
fn unpickle(mut bytes: &[u8]) -> Value {
    let mut stack: Vec<Value> = Vec::new();
    let mut kept: BTreeMap<u32, Value> = BTreeMap::new();
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at(count);
        bytes = rest;
        taken.to_vec()
    };
    let number = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let since_mark = |stack: &mut Vec<Value>| {
        let mark = stack.iter().rposition(|value| *value == Value::Mark).expect("a mark");
        let items = stack.split_off(mark + 1);
        stack.pop();
        items
    };
    loop {
        match take(1)[0] {
            0x80 => assert_eq!(take(1), [2]),
            b']' => stack.push(Value::List(Vec::new())),
            b'}' => stack.push(Value::Dict(BTreeMap::new())),
            b'(' => stack.push(Value::Mark),
            b'e' => {
                let items = since_mark(&mut stack);
                let Some(Value::List(list)) = stack.last_mut() else { panic!("no list") };
                list.extend(items);
            }
            b'u' => {
                let items = since_mark(&mut stack);
                let Some(Value::Dict(dict)) = stack.last_mut() else { panic!("no dict") };
                assert_eq!(items.len() % 2, 0);
                for pair in items.chunks(2) {
                    let Value::Text(key) = &pair[0] else { panic!("{pair:?}") };
                    dict.insert(key.clone(), pair[1].clone());
                }
            }
            b'X' => {
                let length = number(take(4));
                stack.push(Value::Text(String::from_utf8(take(length as usize)).expect("UTF-8")));
            }
            b'J' => stack.push(Value::Number(number(take(4)).into())),
            0x8a => {
                let length = take(1)[0] as usize;
                let digits = take(length);
                assert!(digits[length - 1] < 128, "no number below zero");
                stack.push(Value::Number(
                    digits.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
                ));
            }
            b'r' => drop(kept.insert(number(take(4)), stack.last().expect("a value").clone())),
            b'j' => stack.push(kept[&number(take(4))].clone()),
            b'.' => break,
            other => panic!("instruction {other:#x}"),
        }
    }
    assert!(bytes.is_empty(), "something follows the end");
    stack.pop().expect("a value")
}

/// A short step of a small model, under the allocator's settings.
fn snapshot(expandable_segments: bool) -> (Value, Recording, Settings) {
    let link = "m=HuggingFaceTB/SmolLM-135M&method=lora&s=64";
    let scenario: Scenario = headroom::share::decode(link).scenarios.remove(0);
    let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
    let recording = Recording::of(&model, &scenario, &gpu).unwrap();
    let settings = Settings { expandable_segments, capacity: None };
    (unpickle(&memory_viz(&recording.snapshot(settings))), recording, settings)
}

#[test]
fn blocks_that_are_alive_at_once_never_overlap() {
    for expandable in [false, true] {
        let (file, ..) = snapshot(expandable);
        let trace = file.of("device_traces").items()[0].items();
        assert!(trace.len() > 1000, "{}", trace.len());
        let mut alive: BTreeMap<u64, u64> = BTreeMap::new();
        for event in trace {
            let (address, size) = (event.number("addr"), event.number("size"));
            match event.text("action") {
                "alloc" => {
                    let before = alive.range(..=address).next_back();
                    assert!(before.is_none_or(|(start, size)| start + size <= address), "{event:?}");
                    let after = alive.range(address..).next();
                    assert!(after.is_none_or(|(start, _)| address + size <= *start), "{event:?}");
                    alive.insert(address, size);
                }
                // what was made before the step may go in it
                "free_requested" => drop(alive.remove(&address)),
                "free_completed" => assert!(!alive.contains_key(&address)),
                other => panic!("{other}"),
            }
        }
        let frames = trace[0].of("frames").items();
        assert!(!frames[0].text("name").is_empty());
    }
}

#[test]
fn segments_are_what_the_allocator_has_at_the_end() {
    for expandable in [false, true] {
        let (file, recording, settings) = snapshot(expandable);
        let segments = file.of("segments").items();
        let sum = |key| segments.iter().map(|segment| segment.number(key)).sum::<u64>();
        let replay = recording.replay(settings);
        assert_eq!(sum("allocated_size"), replay.allocation.allocated.0);
        assert!(sum("total_size") <= replay.allocation.reserved_peak.0);
        assert!(sum("requested_size") <= sum("allocated_size"));
        for segment in segments {
            let mut end = segment.number("address");
            for block in segment.of("blocks").items() {
                // of an expandable segment some pages have no memory
                assert!(if expandable {
                    block.number("address") >= end
                } else {
                    block.number("address") == end
                });
                end = block.number("address") + block.number("size");
                assert!(["active_allocated", "inactive"].contains(&block.text("state")));
            }
        }
    }
}
