//! What processors make of pictures, held against transformers' own code.

use super::*;
use crate::model::catalogue;
use crate::model::read::parse;

fn tower(model: &str) -> Vision {
    let architecture = catalogue::architecture(model).expect("it is in the catalogue");
    architecture.towers[0].vision.clone().expect("it is followed")
}

/// Computed with transformers' `smart_resize`.
#[test]
fn a_picture_becomes_as_many_tokens_as_the_processor_makes_of_it() {
    let qwen = tower("Qwen/Qwen2.5-VL-7B-Instruct");
    for (height, width, tokens) in
        [(448, 448, 256), (1080, 1920, 39 * 69), (14, 14, 4), (100, 3000, 4 * 107), (8000, 8000, 128 * 128)]
    {
        assert_eq!(qwen.tokens(Picture::still(height, width)), tokens, "{height} × {width}");
    }
    let qwen = tower("Qwen/Qwen3-VL-8B-Instruct");
    for (height, width, tokens) in [(448, 448, 196), (1080, 1920, 34 * 60), (8000, 8000, 128 * 128)] {
        assert_eq!(qwen.tokens(Picture::still(height, width)), tokens, "{height} × {width}");
    }
}

/// Computed with transformers' `smart_resize` of videos.
#[test]
fn a_video_becomes_as_many_tokens_as_the_processor_makes_of_its_frames() {
    let tokens = |model: &str, (frames, height, width)| {
        let (vision, picture) = (tower(model), Picture { height, width, frames });
        (vision.temporal_patches(picture), vision.tokens(picture), vision.around(picture))
    };
    // each frame is resized as a picture is: 480 × 640 pixels to 476 × 644
    assert_eq!(tokens("Qwen/Qwen2.5-VL-7B-Instruct", (16, 480, 640)), (8, 8 * 17 * 23, 2));
    assert_eq!(tokens("Qwen/Qwen2.5-VL-7B-Instruct", (5, 480, 640)), (3, 3 * 17 * 23, 2));
    // all frames together have no more pixels than that, and a time stands before each of their layers
    for (video, (layers, tokens_of_all)) in [
        ((16, 480, 640), (8, 2_400)),
        ((5, 720, 1280), (3, 2_640)),
        ((768, 1080, 1920), (384, 10_752)),
        ((2, 20, 90), (1, 4)),
        ((64, 360, 640), (32, 7_040)),
        ((6, 16, 16), (3, 3)),
    ] {
        let expected = (layers, tokens_of_all, layers * 8);
        assert_eq!(tokens("Qwen/Qwen3-VL-8B-Instruct", video), expected, "{video:?}");
    }
}

/// transformers' own defaults of llava, with 7,062,902,784 parameters on its meta device.
const LLAVA: &str = include_str!("../../../tests/fixtures/llava.json");

/// transformers' own count of rows: 1,025 of a tile of 448 × 448 pixels, padded to a multiple of 8.
#[test]
fn every_picture_of_mllama_is_as_many_tiles_and_one_token() {
    let mllama = tower("meta-llama/Llama-3.2-11B-Vision");
    for (height, width) in [(1, 1), (448, 448), (1080, 1920)] {
        let picture = Picture::still(height, width);
        let rows = mllama.rows(mllama.grid(picture));
        assert_eq!((mllama.tiles(picture), mllama.tokens(picture), rows), (4, 1, 1_032), "{height}");
    }
    let gated = mllama.crossed.map(|crossed| (crossed.gated, crossed.beside.len()));
    assert_eq!((mllama.depth, gated), (40, Some((8, 5))));
}

#[test]
fn every_picture_of_llava_is_as_many_tokens() {
    let architecture = parse(LLAVA).expect("it is read");
    assert_eq!(architecture.parameters(), 7_062_902_784);
    let llava = architecture.towers[0].vision.clone().expect("it is followed");
    for (height, width) in [(1, 1), (336, 336), (1080, 1920)] {
        let grid = llava.grid(Picture::still(height, width));
        assert_eq!(
            (llava.tokens(Picture::still(height, width)), llava.rows(grid)),
            (576, 577),
            "{height} × {width}"
        );
    }
}

#[test]
fn a_layer_of_llava_is_looked_at_by_its_place() {
    for (layer, unseen) in
        [("-2", Some(1)), ("-1", Some(0)), ("0", Some(24)), ("23", Some(1)), ("-25", Some(24))]
    {
        let config = LLAVA.replace("_layer\": -2", &format!("_layer\": {layer}"));
        let towers = parse(&config).expect("it is read").towers;
        assert_eq!(towers[0].vision.as_ref().map(|own| own.unseen), unseen, "{layer}");
    }
    for layer in ["25", "-26", "1.5", "[-2, -1]"] {
        let config = LLAVA.replace("_layer\": -2", &format!("_layer\": {layer}"));
        assert!(parse(&config).is_ok_and(|own| own.towers[0].vision.is_none()), "{layer}");
    }
}

#[test]
fn a_llava_with_another_tower_is_not_counted() {
    let other = LLAVA.replace("clip_vision_model", "siglip_vision_model");
    let error = parse(&other).expect_err("its tower is not known").to_string();
    assert!(error.contains("siglip_vision_model"), "{error}");
    let next = PIXTRAL.replace("\"llava\"", "\"llava_next\"");
    assert!(parse(&next).is_err(), "it cuts pictures into tiles of one size");
}

/// What transformers' own converter writes of Pixtral 12B, with 12,682,739,712 parameters on its meta device.
const PIXTRAL: &str = include_str!("../../../tests/fixtures/pixtral.json");

/// Computed with transformers' `get_resize_output_image_size`.
#[test]
fn each_patch_of_pixtral_is_a_token() {
    let architecture = parse(PIXTRAL).expect("it is read");
    assert_eq!(architecture.parameters(), 12_682_739_712);
    let pixtral = architecture.towers[0].vision.clone().expect("it is followed");
    for (height, width, rows, columns) in [
        (448, 448, 28, 28),
        (1080, 1920, 36, 64),
        (1, 1, 1, 1),
        (100, 3000, 3, 64),
        (8000, 8000, 64, 64),
        (300, 500, 19, 32),
    ] {
        let picture = Picture::still(height, width);
        let grid = pixtral.grid(picture);
        assert_eq!((grid.rows, grid.columns), (rows, columns), "{height} × {width}");
        let seen = (pixtral.tokens(picture), pixtral.around(picture), pixtral.rows(grid));
        assert_eq!(seen, (rows * columns, rows, rows * columns), "{height} × {width}");
        let together = [Pieces { length: rows * columns * 3, count: 1 }];
        assert_eq!(pixtral.pieces(grid, 3, 0), together, "{height} × {width}");
    }
    // the classes' own dimensions, of which published configs leave most out
    let bare = r#"{"model_type": "pixtral"}"#;
    let (start, end) = (PIXTRAL.find("\"vision_config\": {"), PIXTRAL.rfind('}'));
    let (start, end) = (start.expect("it has a tower"), end.expect("it ends"));
    let short = format!("{}\"vision_config\": {bare}{}", &PIXTRAL[..start], &PIXTRAL[end..]);
    assert_eq!(parse(&short).expect("it is read").parameters(), 12_682_739_712);
}

#[test]
fn a_pixtral_whose_projector_is_given_something_else_is_counted_and_not_run() {
    for (own, other) in
        [("_layer\": -1", "_layer\": -2"), ("\"full\"", "\"default\""), ("\"gelu\"", "\"relu\"")]
    {
        let towers = parse(&PIXTRAL.replacen(own, other, 1)).expect("it is read").towers;
        assert!(towers[0].vision.is_none(), "{other}");
    }
}

/// InternVL3's tower of 300 million parameters as OpenGVLab's own converter writes it, beside a text of Qwen2.5 0.5B's dimensions.
const INTERNVL: &str = include_str!("../../../tests/fixtures/internvl.json");

#[test]
fn a_picture_of_internvl_is_cut_into_tiles() {
    let architecture = parse(INTERNVL).expect("it is read");
    assert!(!architecture.head.tied, "published files have a head of their own");
    let internvl = architecture.towers[0].vision.clone().expect("it is followed");
    for (height, width, tiles) in [(448, 448, 1), (640, 480, 13), (1080, 1920, 9), (1, 1, 1), (1, 5000, 13)] {
        assert_eq!(
            (internvl.tiles(Picture::still(height, width)), internvl.tokens(Picture::still(height, width))),
            (tiles, tiles * 256),
            "{height} × {width}"
        );
    }
    assert_eq!(internvl.rows(internvl.grid(Picture::still(640, 480))), 1025);
}

#[test]
fn a_config_of_internvl_that_says_something_else_is_counted_or_refused() {
    for (own, other) in [("_layer\": -1", "_layer\": -4"), ("\"default\"", "\"full\""), ("448", "450")] {
        let towers = parse(&INTERNVL.replace(own, other)).expect("it is read").towers;
        assert!(towers[0].vision.is_none(), "{other}");
    }
    for ratio in ["0", "-0.5", "1e-9", "4", "1e400"] {
        assert!(parse(&INTERNVL.replace("_ratio\": 0.5", &format!("_ratio\": {ratio}"))).is_err(), "{ratio}");
    }
    for size in ["[448]", "[0, 448]", "[]", "[448, 448, 448]", "\"448\""] {
        let config = INTERNVL.replace("\"patch_size\"", &format!("\"image_size\": {size}, \"patch_size\""));
        assert!(parse(&config).is_err(), "{size}");
    }
}

#[test]
fn the_tiles_of_llava_next_are_laid_side_by_side() {
    let llava = tower("llava-hf/llava-v1.6-mistral-7b-hf");
    for (height, width, tiles, tokens) in
        [(448, 448, 5, 2928), (640, 480, 5, 2352), (1080, 1920, 5, 1948), (300, 1200, 4, 1890)]
    {
        assert_eq!(
            (llava.tiles(Picture::still(height, width)), llava.tokens(Picture::still(height, width))),
            (tiles, tokens),
            "{height} × {width}"
        );
    }
}

#[test]
fn every_picture_of_gemma_3_is_as_many_tokens() {
    let gemma = tower("google/gemma-3-4b-it");
    for (height, width) in [(1, 1), (896, 896), (1080, 1920)] {
        let grid = gemma.grid(Picture::still(height, width));
        assert_eq!(
            (grid.patches(), gemma.tokens(Picture::still(height, width))),
            (64 * 64, 256),
            "{height} × {width}"
        );
    }
}

/// Computed with transformers' `get_resize_output_image_size`.
#[test]
fn a_picture_of_mistral_3_is_no_longer_than_it_may_be() {
    let mistral = tower("mistralai/Mistral-Small-3.1-24B-Instruct-2503");
    for (height, width, rows, columns) in [
        (448, 448, 16, 16),
        (1080, 1920, 31, 55),
        (14, 14, 1, 1),
        (100, 3000, 2, 55),
        (8000, 8000, 55, 55),
        (300, 500, 11, 18),
    ] {
        let picture = Picture::still(height, width);
        let grid = mistral.grid(picture);
        assert_eq!((grid.rows, grid.columns), (2 * rows, 2 * columns), "{height} × {width}");
        assert_eq!(
            mistral.tokens(picture) + mistral.around(picture),
            rows * (columns + 1),
            "{height} × {width}"
        );
    }
}

/// Computed with transformers' `get_aspect_ratio_preserving_size`.
#[test]
fn a_picture_of_gemma_4_is_as_many_patches_as_there_may_be() {
    let gemma = tower("google/gemma-4-31B-it");
    for (height, width, rows, columns) in [
        (448, 448, 16, 16),
        (1080, 1920, 12, 22),
        (14, 14, 16, 16),
        (672, 960, 14, 20),
        (8000, 8000, 16, 16),
        (10, 9000, 1, 280),
    ] {
        let grid = gemma.grid(Picture::still(height, width));
        assert_eq!((grid.rows, grid.columns), (3 * rows, 3 * columns), "{height} × {width}");
        assert_eq!(
            (gemma.tokens(Picture::still(height, width)), gemma.lies(grid)),
            (rows * columns, 2520),
            "{height} × {width}"
        );
    }
}

#[test]
fn windows_cover_every_patch_once() {
    let qwen = tower("Qwen/Qwen2.5-VL-7B-Instruct");
    for (height, width) in [(448, 448), (532, 700), (28, 28), (1080, 1920)] {
        let grid = qwen.grid(Picture::still(height, width));
        for layer in [0, 7] {
            let pieces = qwen.pieces(grid, 3, layer);
            let patches: u64 = pieces.iter().map(|piece| piece.length * piece.count).sum();
            assert_eq!(patches, 3 * grid.patches(), "{height} × {width}");
        }
    }
}

/// Computed with transformers' `get_best_fit` and `_prompt_split_image`.
#[test]
fn a_picture_of_llama_4_is_cut_into_the_tiles_of_its_canvas() {
    let scout = tower("meta-llama/Llama-4-Scout-17B-16E-Instruct");
    for (height, width, tiles, around) in
        [(336, 336, 1, 3), (1, 1, 1, 3), (337, 336, 3, 5), (480, 640, 5, 7), (1080, 1920, 16, 18)]
    {
        let picture = Picture::still(height, width);
        assert_eq!(
            (scout.tiles(picture), scout.tokens(picture), scout.around(picture)),
            (tiles, tiles * 144, around),
            "{height} × {width}"
        );
    }
    let rows = scout.rows(scout.grid(Picture::still(336, 336)));
    assert_eq!((rows, scout.pixels()), (577, Dtype::Bf16), "and a class token, of numbers in bfloat16");
}

/// Maverick's `attn_temperature_tuning` and norms: of layers that rotate their queries and of others.
#[test]
fn layers_of_llama_4_that_do_not_rotate_have_no_norms_and_scale_their_queries() {
    use crate::model::blocks::{QueryScale, Rotary};
    for (model, norms) in [
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", true),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", false),
    ] {
        let architecture = catalogue::architecture(model).expect("it is in the catalogue");
        let attentions = architecture.blocks.iter().filter_map(|block| block.mixer.attention());
        for own in attentions {
            let rotates = own.rotary != Rotary::None;
            let scale = if rotates { QueryScale::None } else { QueryScale::Float };
            assert_eq!((own.qk_norm.is_some(), own.query_scale), (norms && rotates, scale), "{model}");
        }
    }
}
