"""What stands for a model's own tokenizer and processor where vLLM is started on dummy weights (vllm_budget.py): the processor's class is
transformers' own, with the sizes of pictures that the model's preprocessor_config.json has (docs/pictures.md), and the vocabulary is of made-up
words but for the tokens that a processor asks for, which stand where the model's config says.
"""
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

# of Qwen2-VL and Qwen2.5-VL, and of Qwen3-VL and Qwen3.5
QWEN2 = {"shortest_edge": 3136, "longest_edge": 12845056}
QWEN3 = {"shortest_edge": 65536, "longest_edge": 16777216}
QWEN3_VIDEO = {"shortest_edge": 4096, "longest_edge": 25165824}


def tokenizer(size, named, **extra):
    """Of so many tokens, those that are named where they are to be; `extra` are tokens under the names that a processor asks for."""
    words = {place: f"w{place}" for place in range(size)}
    words.update({place: token for token, place in named.items()})
    own = Tokenizer(models.WordLevel({token: place for place, token in words.items()}, unk_token="w0"))
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own = transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="w0", eos_token="w1", pad_token="w1", bos_token="w2", extra_special_tokens=extra)
    own.add_special_tokens({"additional_special_tokens": list(named)}, replace_extra_special_tokens=False)
    return own


def qwen(config, size, video):
    start = config.get("vision_start_token_id", 151652)
    named = {"<|vision_start|>": start, "<|vision_end|>": config.get("vision_end_token_id", start + 1),
             "<|image_pad|>": config["image_token_id"], "<|video_pad|>": config["video_token_id"]}
    sizes = config["vision_config"]
    own = {"patch_size": sizes["patch_size"], "temporal_patch_size": sizes["temporal_patch_size"], "merge_size": sizes["spatial_merge_size"]}
    parts = dict(image_processor=transformers.Qwen2VLImageProcessorFast(size=size, **own), tokenizer=tokenizer(config["vocab_size"], named))
    if video is None:
        parts["video_processor"] = transformers.Qwen2VLVideoProcessor(size=size, **own)
        return transformers.Qwen2_5_VLProcessor(**parts)
    parts["video_processor"] = transformers.Qwen3VLVideoProcessor(size=video, **own)
    return transformers.Qwen3VLProcessor(**parts)


def gemma3(config):
    named = {"<start_of_image>": config["boi_token_index"], "<end_of_image>": config["eoi_token_index"], "<image_soft_token>": config["image_token_index"],
             **{"\n" * breaks: 106 + breaks for breaks in range(1, 5)}}
    side = config["vision_config"]["image_size"]
    words = tokenizer(262208, named, image_token="<image_soft_token>", boi_token="<start_of_image>", eoi_token="<end_of_image>")
    return transformers.Gemma3Processor(transformers.Gemma3ImageProcessorFast(size={"height": side, "width": side}), words)


def gemma4(config):
    named = {"<|image>": config["boi_token_id"], "<image|>": config["eoi_token_id"], "<|image|>": config["image_token_id"], "<|video|>": config["video_token_id"],
             "<|audio|>": config["audio_token_id"], "<|audio>": config["boa_token_id"], "<audio|>": config["eoa_token_id"]}
    words = tokenizer(262144, named, image_token="<|image|>", boi_token="<|image>", eoi_token="<image|>", audio_token="<|audio|>", boa_token="<|audio>",
                      eoa_token="<audio|>")
    return transformers.Gemma4Processor(feature_extractor=transformers.Gemma4AudioFeatureExtractor(), image_processor=transformers.Gemma4ImageProcessor(),
                                        tokenizer=words, video_processor=transformers.Gemma4VideoProcessor())


def pixtral(config):
    sizes = config["vision_config"]
    words = tokenizer(config["text_config"]["vocab_size"], {"[IMG]": config["image_token_index"], "[IMG_BREAK]": 12, "[IMG_END]": 13})
    pictures = transformers.PixtralImageProcessorFast(size={"longest_edge": sizes["image_size"]}, patch_size={"height": sizes["patch_size"], "width": sizes["patch_size"]})
    return transformers.PixtralProcessor(pictures, words, patch_size=sizes["patch_size"], spatial_merge_size=config.get("spatial_merge_size", 1))


def llava(config):
    own = dict(patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1)
    words = tokenizer(config["text_config"].get("vocab_size", 32064), {"<image>": config["image_token_index"]})
    if config["model_type"] == "llava":
        pictures = transformers.CLIPImageProcessorFast(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
        return transformers.LlavaProcessor(pictures, words, **own)
    pictures = transformers.LlavaNextImageProcessorFast(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}, image_grid_pinpoints=config["image_grid_pinpoints"])
    return transformers.LlavaNextProcessor(pictures, words, **own)


def llama4(config):
    named = {"<|image_start|>": 200080, "<|image_end|>": 200081, "<|tile_x_separator|>": 200084, "<|tile_y_separator|>": 200085, "<|image|>": 200090, "<|patch|>": 200092}
    return transformers.Llama4Processor(transformers.Llama4ImageProcessorFast(), tokenizer(202048, named))


def internvl(config):
    named = {"<img>": 151665, "</img>": 151666, "<IMG_CONTEXT>": config["image_token_id"], "<video>": 151668}
    words = tokenizer(config["text_config"]["vocab_size"], named, start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>")
    own = {"size": {"height": 448, "width": 448}}
    return transformers.InternVLProcessor(transformers.GotOcr2ImageProcessorFast(crop_to_patches=True, **own), words, transformers.InternVLVideoProcessor(**own))


OF = {
    "qwen2_vl": lambda config: qwen(config, QWEN2, None),
    "qwen2_5_vl": lambda config: qwen(config, QWEN2, None),
    "gemma3": gemma3,
    "gemma4": gemma4,
    "mistral3": pixtral,
    "llava": llava,
    "llava_next": llava,
    "llama4": llama4,
    "internvl": internvl,
}
OF.update({name: lambda config: qwen(dict(config, vocab_size=config["text_config"]["vocab_size"]), QWEN3, QWEN3_VIDEO)
           for name in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")})


def save(config, folder):
    """Writes them into the folder of a model that sees; True where it is one."""
    make = OF.get(config["model_type"]) if "vision_config" in config else None
    if make:
        make(config).save_pretrained(folder)
    return make is not None
