//! What vLLM's profiling run is given to see: pictures of the largest size that the processor makes, or a video where that is more tokens, as
//! many as its budget of tokens holds. Their pixels stay while it runs, and so do their embeddings (`encoder_cache`) while the language
//! model runs after the tower.
//!
//! Source: vLLM 0.21 multimodal/encoder_budget.py, v1/core/encoder_cache_manager.py `compute_mm_encoder_budget`,
//! v1/worker/gpu_model_runner.py `profile_run`; of each family `get_mm_max_tokens_per_item` and `get_dummy_mm_data` in
//! model_executor/models/, and its tower there; and the tensors that were alive at the towers' peaks of the runs in data/vllm.tsv.

use super::Share;
use crate::model::vision::{Picture, Resizing, Vision, VisionCode};

/// How many pictures a prompt may have where nothing is said (config/multimodal.py `limit_per_prompt`).
const OF_A_PROMPT: u64 = 999;
/// Frames of the longest video of Qwen2-VL and Qwen2.5-VL (models/qwen2_vl.py `_MAX_FRAMES_PER_VIDEO`).
const QWEN2_FRAMES: u64 = 14;
/// A picture's sides are at most so many times as long as each other (models/qwen2_vl.py `get_image_size_with_most_features`).
const RATIO: u64 = 200;
/// Gemma 4's longest video: frames, tokens of each, and those around it (models/gemma4_mm.py `get_mm_max_tokens_per_item`).
const GEMMA4_FRAMES: u64 = 32;
const GEMMA4_TOKENS: u64 = 70;
const GEMMA4_AROUND: u64 = 8;
/// What cuBLASLt keeps for products with a bias, beside cuBLAS's own workspace.
const BIASED: u64 = 1 << 20;
/// Bytes of a number of 16 bits.
const HALF: u64 = 2;

/// What it is given, and what it makes of that, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Pixels, which stay until the run is over.
    pub given: u64,
    /// Embeddings, which stay while the language model runs.
    pub made: u64,
    /// What the tower has beside the pixels where it has most.
    pub tower: u64,
}

/// The largest item of a model: tokens that vLLM counts it as, patches and rows of the tower, and tokens that come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Largest {
    /// Tokens that it has at most, of which the budget holds so many.
    counted: u64,
    /// Numbers of its pixels.
    pixels: u64,
    /// Rows of the tower's layers.
    rows: u64,
    /// Tokens that are made of it.
    tokens: u64,
}

/// What a run of such a share is given, of a model whose sequences have so many tokens at most.
///
/// # Errors
/// What vLLM does not serve.
pub(super) fn shown(vision: &Vision, share: Share, length: u64) -> Result<Shown, String> {
    let largest = largest(vision, length)?;
    let counted = largest.counted.max(1);
    let budget = share.tokens.max(counted);
    let of_a_prompt = (length / counted).clamp(1, OF_A_PROMPT);
    let items = (budget / counted).min(share.sequences.saturating_mul(of_a_prompt)).max(1);
    let wide = vision.text.saturating_mul(1 + vision.deep.len() as u64);
    let made = product([items, largest.tokens, wide, HALF]);
    let rows = match vision.code {
        // one after the other, by transformers' tower
        VisionCode::Gemma4 => largest.rows / GEMMA4_FRAMES,
        _ => items.saturating_mul(largest.rows),
    };
    let deep =
        if vision.deep.is_empty() { 0 } else { made.saturating_sub(made / (1 + vision.deep.len() as u64)) };
    let tower = tower(vision, rows).saturating_add(deep).saturating_add(BIASED);
    Ok(Shown {
        given: product([items, largest.pixels, HALF]),
        made: made.saturating_add(BIASED),
        tower: tower.max(made),
    })
}

fn product<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

fn largest(vision: &Vision, length: u64) -> Result<Largest, String> {
    let picture = match (&vision.code, &vision.resizing) {
        (VisionCode::Mllama, _) => return Err("vLLM has not served this family since 0.10.2".to_owned()),
        (VisionCode::Gemma4, _) => return Ok(gemma4(vision)),
        (VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3, Resizing::Between(_, most)) => {
            let side = vision.patch.saturating_mul(vision.merge).max(1);
            let [rows, columns] = factors(most / side.saturating_mul(side).max(1));
            Picture::still(rows.saturating_mul(side), columns.saturating_mul(side))
        }
        (_, Resizing::Points { points, .. }) => {
            let sizes = points.iter().map(|[height, width]| Picture::still(*height, *width));
            // of those of as many tokens the first
            let most = sizes.rev().max_by_key(|size| vision.tokens(*size));
            most.ok_or("its config names no sizes of pictures")?
        }
        (_, Resizing::Canvas { side, most }) => Picture::still(side.saturating_mul(*most), *side),
        (_, Resizing::Square(side) | Resizing::Longest(side) | Resizing::Tiles { side, .. }) => {
            Picture::still(*side, *side)
        }
        (_, Resizing::Between(..) | Resizing::Most(_)) => {
            return Err("how large its pictures are at most was not followed".to_owned());
        }
    };
    let grid = vision.grid(picture);
    let one = Largest {
        counted: vision.tokens(picture),
        pixels: product([vision.tiles(picture), grid.patches(), vision.patch_numbers]),
        rows: vision.tiles(picture).saturating_mul(vision.rows(grid)),
        tokens: vision.tokens(picture),
    };
    Ok(match (&vision.code, &vision.resizing) {
        // a video is as many pictures, one on top of the other in time
        (VisionCode::Qwen2 | VisionCode::Qwen2_5, _) => {
            let merge = vision.video.map_or(1, |video| video.merge.max(1));
            one.times((length / one.tokens.max(1)).clamp(1, QWEN2_FRAMES.div_ceil(merge)))
        }
        (VisionCode::InternVl, Resizing::Tiles { most, .. }) => internvl(one, *most, length),
        _ => one,
    })
}

impl Largest {
    /// So many of them as one.
    const fn times(self, times: u64) -> Largest {
        Largest {
            counted: self.counted.saturating_mul(times),
            pixels: self.pixels.saturating_mul(times),
            rows: self.rows.saturating_mul(times),
            tokens: self.tokens.saturating_mul(times),
        }
    }
}

/// The two factors of a number of tokens that are nearest to each other, of the largest number no greater whose sides may be so long.
fn factors(most: u64) -> [u64; 2] {
    let pair = |tokens: u64| {
        let rows = (1..=tokens.isqrt()).rev().find(|rows| tokens.is_multiple_of(*rows)).unwrap_or(1);
        [rows, tokens / rows]
    };
    let all = (1..=most).rev().map(pair);
    all.into_iter().find(|[rows, columns]| *columns <= rows.saturating_mul(RATIO)).unwrap_or([1, 1])
}

/// InternVL: a picture in all its tiles, or a video of as many frames as a sequence has room for, a tile each. vLLM counts the frames that
/// have room beside a picture, and profiles those that have room alone (models/interns1.py `get_num_frames_with_most_features`).
fn internvl(tile: Largest, tiles: u64, length: u64) -> Largest {
    let picture = tile.times(tiles.saturating_add(1));
    let frames = |room: u64| (room / tile.tokens.max(1)).max(1);
    let video = tile.times(frames(length));
    let counted = tile.counted.saturating_mul(frames(length.saturating_sub(picture.counted)));
    if counted >= picture.counted { Largest { counted, ..video } } else { picture }
}

/// Gemma 4: a video, whose frames have fewer tokens than a picture.
fn gemma4(vision: &Vision) -> Largest {
    let patches = GEMMA4_TOKENS.saturating_mul(vision.merge).saturating_mul(vision.merge);
    let one = Largest {
        counted: GEMMA4_TOKENS.saturating_add(GEMMA4_AROUND),
        pixels: patches.saturating_mul(vision.patch_numbers),
        rows: patches,
        tokens: GEMMA4_TOKENS,
    };
    one.times(GEMMA4_FRAMES)
}

/// What a tower has at most of so many rows: in a layer between its feed-forward network's products, or in attention.
fn tower(vision: &Vision, rows: u64) -> u64 {
    let of_rows = |numbers: u64| laid(product([rows, numbers, HALF]));
    let (hidden, inner) = (of_rows(vision.hidden), of_rows(vision.inner));
    let hiddens = |count: u64| hidden.saturating_mul(count);
    // both sides of an activation; of a gated one what is made as one, and the product
    let (plain, gated) =
        (inner.saturating_mul(2), of_rows(vision.inner.saturating_mul(2)).saturating_add(inner));
    let head = vision.hidden / vision.heads.max(1);
    match vision.code {
        // what goes in, what came of attention, the norm of that, and what the embedding made
        VisionCode::Gemma3 | VisionCode::InternVl | VisionCode::Llava | VisionCode::LlavaNext => {
            hiddens(4).saturating_add(plain)
        }
        // positions, and cosines and sines of half a head
        VisionCode::Qwen3 => hiddens(4).saturating_add(plain).saturating_add(of_rows(head)),
        VisionCode::Qwen2 => hiddens(3).saturating_add(plain).saturating_add(of_rows(head)),
        // the norm and the sum beside it as they are computed in Python; two tables, each in two orders
        VisionCode::Qwen2_5 => {
            hiddens(5).saturating_add(gated).saturating_add(of_rows(head.saturating_mul(2)))
        }
        // queries, keys and values as one; queries and keys as complex numbers in float32, as they were and turned, then in 16 bits
        VisionCode::Llama4 => {
            let attended = of_rows(vision.hidden.saturating_mul(3))
                .saturating_add(of_rows(vision.hidden.saturating_mul(2)).saturating_mul(4))
                .saturating_add(hiddens(5));
            attended.max(hiddens(4).saturating_add(plain))
        }
        // all pictures in one sequence, whose mask is a number for every two of its patches
        VisionCode::Mistral3 | VisionCode::Pixtral => hiddens(6)
            .saturating_add(gated)
            .saturating_add(of_rows(head.saturating_mul(2)))
            .saturating_add(of_rows(rows)),
        VisionCode::Gemma4 => hiddens(4).saturating_add(gated),
        VisionCode::Mllama => 0,
    }
}

/// As PyTorch's allocator lays it: from 10 MiB on in a piece of whole 2 MiB of its own, of which no less than a MiB is split off
/// (packages/allocator).
fn laid(bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    let whole = bytes.checked_next_multiple_of(2 * MIB).unwrap_or(u64::MAX);
    if bytes >= 10 * MIB && whole - bytes <= MIB { whole } else { bytes }
}
