"""Pictures for the null-device harness (measure.py): importing this module adds them to its cases, as more_switches.py does.

  images       so many pictures in every sequence; their tokens are part of "seq".
  image_size   [height, width] of each in pixels, before the model's processor resizes it.
  frames       frames of each, where they are videos (the Qwen family); 1 is a picture.
  tower        "trained" or "frozen": whether the parameters of tower and projector need a gradient.

Values that transformers' code reads off the device are answered as the pictures' grid would have them; each answer stands
below with the read. Takes NULLCUDA_REMEMBER=1, with which the null device gives back what was copied to it.
"""
import functools
import math
import os

os.environ.setdefault("NULLCUDA_REMEMBER", "1")
# `torch_compilable_check`: whether there are as many placeholders as features, a read that keeps nothing
os.environ.setdefault("TRANSFORMERS_DISABLE_TORCH_CHECK", "1")

import measure  # noqa: E402

measure.DEFAULTS.update(images=0, image_size=None, frames=1, tower="trained")
# the fewest and the most pixels that the models' own preprocessor_config.json name (docs/pictures.md says how they are known)
PIXELS = dict(dict.fromkeys(["qwen2_vl", "qwen2_5_vl"], (56 * 56, 28 * 28 * 16384)),
              **dict.fromkeys(["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"], (256 * 256, 4096 * 4096)))

# the fewest and the most pixels of all frames of a video (docs/pictures.md); the others' frames are resized as pictures are
VIDEO_PIXELS = (4096, 25165824)
# the most tokens of a picture (image_processing_gemma4.py `max_soft_tokens`)
SOFT_TOKENS = 280
# the most tiles of a picture of internvl (image_processing_got_ocr2.py `max_patches`)
MOST_TILES = 12
# the most tiles of a picture of llama4 (image_processing_llama4.py `max_patches`)
MOST_CHUNKS = 16


def smart_resize(height, width, factor, least, most):
    """As transformers' models/qwen2_vl/image_processing_qwen2_vl.py has it, which needs torchvision to be imported."""
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    if rows * columns > most:
        beta = math.sqrt(height * width / most)
        return [max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)]
    if rows * columns < least:
        beta = math.sqrt(least / (height * width))
        return [math.ceil(side * beta / factor) * factor for side in (height, width)]
    return rows, columns


def video_resize(frames, height, width, factor, per_layer, least, most):
    """As transformers' models/qwen3_vl/video_processing_qwen3_vl.py `smart_resize` has it."""
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    rows, columns = round(height / factor) * factor, round(width / factor) * factor
    counted = round(frames / per_layer) * per_layer
    if counted * rows * columns > most:
        beta = math.sqrt(frames * height * width / most)
        return [max(factor, math.floor(side / beta / factor) * factor) for side in (height, width)]
    if counted * rows * columns < least:
        beta = math.sqrt(least / (frames * height * width))
        return [math.ceil(side * beta / factor) * factor for side in (height, width)]
    return rows, columns


def longest_edge(height, width, factor, longest):
    """As transformers' models/pixtral/image_processing_pixtral.py `get_resize_output_image_size` has it."""
    ratio = max(height / longest, width / longest)
    if ratio > 1:
        height, width = math.floor(height / ratio), math.floor(width / ratio)
    return [((side - 1) // factor + 1) * factor for side in (height, width)]


def within(height, width, factor, patch, patches):
    """As transformers' models/gemma4/image_processing_gemma4.py `get_aspect_ratio_preserving_size` has it, of sides that are not 0."""
    scale = math.sqrt(patches * patch ** 2 / (height * width))
    return [math.floor(scale * side / factor) * factor for side in (height, width)]


def nearest_ratio(height, width, tile, most):
    """As transformers' models/got_ocr2/image_processing_got_ocr2.py `get_optimal_tiled_canvas` has it, of one tile at least."""
    grids = sorted([(columns, rows) for columns in range(1, most + 1) for rows in range(1, most + 1) if columns * rows <= most],
                   key=lambda grid: grid[0] * grid[1])
    nearest, best = float("inf"), (1, 1)
    for columns, rows in grids:
        away = abs(width / height - columns / rows)
        if away < nearest or away == nearest and width * height > 0.5 * tile * tile * columns * rows:
            nearest, best = away, (columns, rows)
    return best


def best_resolution(height, width, points):
    """As transformers' image_processing_utils.py `select_best_resolution` has it."""
    best, kept, wasted = None, 0, float("inf")
    for rows, columns in points:
        scale = min(columns / width, rows / height)
        effective = min(int(width * scale) * int(height * scale), height * width)
        waste = rows * columns - effective
        if effective > kept or effective == kept and waste < wasted:
            best, kept, wasted = (rows, columns), effective, waste
    return best


def best_fit(height, width, tile, most):
    """Rows and columns of tiles, as transformers' models/llama4/image_processing_llama4.py `get_best_fit` has them, in float32."""
    import torch
    grids = torch.tensor([(rows, chunks // rows) for chunks in range(most, 0, -1) for rows in range(1, chunks + 1) if chunks % rows == 0])
    scales = torch.minimum(grids[:, 0] * tile / height, grids[:, 1] * tile / width)
    scale = scales[scales >= 1].min() if bool((scales >= 1).any()) else scales.max()
    chosen = grids[scales == scale]
    return [int(side) for side in chosen[torch.argmin(chosen[:, 0] * chosen[:, 1])]]


def unpadded(height, width, rows, columns):
    """As transformers' models/llava_next/processing_llava_next.py `_get_unpadded_features` has it."""
    if width / height > columns / rows:
        rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
    return rows, columns


def tiles_of(case, config):
    """Into how many tiles a picture is cut, the whole among them."""
    if config.model_type == "llava_next":
        rows, columns = best_resolution(*case["image_size"], config.image_grid_pinpoints)
        return rows // config.vision_config.image_size * (columns // config.vision_config.image_size) + 1
    if config.model_type == "llama4":
        rows, columns = best_fit(*case["image_size"], config.vision_config.image_size, MOST_CHUNKS)
        return columns * rows + 1 if columns * rows > 1 else 1
    if config.model_type == "internvl":
        columns, rows = nearest_ratio(*case["image_size"], config.vision_config.image_size[0], MOST_TILES)
        return columns * rows + 1 if columns * rows > 1 else 1
    return 1


def pixtral(config):
    """Whether the tower is Pixtral's (mistral3, and llava as pixtral-12b has it)."""
    return config.vision_config.model_type == "pixtral"


def grid(case, config):
    """Rows and columns of patches of a picture, or of each of its tiles."""
    vision = config.vision_config
    if config.model_type == "internvl":
        return [vision.image_size[0] // vision.patch_size[0]] * 2
    if config.model_type == "gemma4":
        factor = vision.patch_size * vision.pooling_kernel_size
        sides = within(*case["image_size"], factor, vision.patch_size, SOFT_TOKENS * vision.pooling_kernel_size ** 2)
        return [side // vision.patch_size for side in sides]
    if pixtral(config):
        sides = longest_edge(*case["image_size"], vision.patch_size * merged(config), vision.image_size)
        return [side // vision.patch_size for side in sides]
    if config.model_type in ("gemma3", "llama4", "llava", "llava_next", "mllama"):
        # every picture is resized to the one size of the tower, in llava's its shorter side, and then cropped
        return [vision.image_size // vision.patch_size] * 2
    factor = vision.patch_size * vision.spatial_merge_size
    if case["frames"] > 1 and config.model_type.startswith("qwen3"):
        height, width = video_resize(case["frames"], *case["image_size"], factor, vision.temporal_patch_size, *VIDEO_PIXELS)
    else:
        height, width = smart_resize(*case["image_size"], factor, *PIXELS[config.model_type])
    return height // vision.patch_size, width // vision.patch_size


def temporal_patches(case, config):
    """Layers of patches of each, one after the other in time."""
    return -(-case["frames"] // config.vision_config.temporal_patch_size) if case["frames"] > 1 else 1


def lengths_of(case, config):
    """Patches of each picture in a batch, or of each temporal patch of its videos."""
    rows, columns = grid(case, config)
    return [rows * columns] * (case["images"] * case["batch"] * temporal_patches(case, config))


def tokens_of(case, config):
    """Tokens of a picture."""
    rows, columns = grid(case, config)
    if config.model_type == "gemma3":
        return config.mm_tokens_per_image
    if config.model_type == "mllama":
        # a placeholder: the text attends to what the tower makes
        return 1
    if config.model_type == "llava_next":
        best = best_resolution(*case["image_size"], config.image_grid_pinpoints)
        seen = unpadded(*case["image_size"], *(side // config.vision_config.patch_size for side in best))
        return rows * columns + seen[0] * (seen[1] + 1)
    return rows * columns // merged(config) ** 2 * tiles_of(case, config) * temporal_patches(case, config)


def merged(config):
    """Rows and columns of patches that become a token."""
    if config.model_type in ("llava", "llava_next", "mllama"):
        return 1
    if config.model_type == "internvl":
        return int(1 / config.downsample_ratio)
    if config.model_type == "llama4":
        return int(1 / config.vision_config.pixel_shuffle_ratio)
    if config.model_type == "gemma4":
        return config.vision_config.pooling_kernel_size
    return getattr(config, "spatial_merge_size", None) or config.vision_config.spatial_merge_size


def pictures(case, config, device):
    """What the processor adds to a batch: its patches in float32, the grid, and which tokens are a picture's."""
    import torch
    vision = config.vision_config
    rows, columns = grid(case, config)
    count = case["images"] * case["batch"]
    tokens = tokens_of(case, config)
    kinds = [1] * tokens + [0]
    if case["frames"] > 1:
        layers = temporal_patches(case, config)
        # qwen3_vl writes a time between those of each temporal patch
        apart = [0] * 8 if config.model_type.startswith("qwen3") else []
        kinds = ([2] * (tokens // layers) + apart) * layers + [0]
    kinds *= case["images"]
    if len(kinds) > case["seq"] + 1:
        raise SystemExit("%d pictures of %d tokens do not fit in %d" % (case["images"], tokens, case["seq"]))
    kinds = torch.tensor([(kinds + [0] * case["seq"])[:case["seq"]]] * case["batch"]).to(device)
    if config.model_type == "gemma3":
        # whole pictures (models/gemma3/image_processing_gemma3.py), and kinds of tokens from the processor
        return dict(pixel_values=torch.empty(count, vision.num_channels, vision.image_size, vision.image_size, device=device),
                    token_type_ids=kinds)
    if config.model_type == "mllama":
        # as many tiles for every picture as one may be cut into, which of them are there, and which tokens see which of them
        # (models/mllama/image_processing_mllama.py, processing_mllama.py `convert_sparse_cross_attention_mask_to_dense`)
        each = (case["batch"], case["images"])
        tiles = torch.ones(*each, vision.max_num_tiles, dtype=torch.int64, device=device)
        return dict(pixel_values=torch.empty(*each, vision.max_num_tiles, vision.num_channels, vision.image_size, vision.image_size, device=device),
                    aspect_ratio_ids=torch.ones(*each, dtype=torch.int64, device=device), aspect_ratio_mask=tiles,
                    cross_attention_mask=torch.ones(case["batch"], case["seq"], *tiles.shape[1:], dtype=torch.int64, device=device))
    if config.model_type == "llava" and not pixtral(config):
        # whole pictures (models/llava/processing_llava.py); no kinds of tokens
        return dict(pixel_values=torch.empty(count, vision.num_channels, vision.image_size, vision.image_size, device=device))
    if config.model_type == "llava_next":
        # tiles of each picture, and its sides (models/llava_next/processing_llava_next.py); no kinds of tokens
        sides = (vision.image_size, vision.image_size)
        return dict(pixel_values=torch.empty(count, tiles_of(case, config), vision.num_channels, *sides, device=device),
                    image_sizes=torch.tensor([case["image_size"]] * count).to(device))
    if config.model_type == "llama4":
        # tiles of all pictures in bfloat16 (models/llama4/image_processing_llama4.py `rescale_and_normalize`); no kinds of tokens
        sides = (vision.image_size, vision.image_size)
        return dict(pixel_values=torch.empty(count * tiles_of(case, config), vision.num_channels, *sides, dtype=torch.bfloat16, device=device))
    if config.model_type == "internvl":
        # tiles of all pictures (models/internvl/processing_internvl.py); no kinds of tokens
        sides = (vision.image_size[0], vision.image_size[1])
        return dict(pixel_values=torch.empty(count * tiles_of(case, config), vision.num_channels, *sides, device=device))
    if config.model_type == "gemma4":
        # patches up to the most that there may be, and where each is; kinds of tokens
        patches = SOFT_TOKENS * vision.pooling_kernel_size ** 2
        return dict(pixel_values=torch.empty(count, patches, 3 * vision.patch_size ** 2, device=device),
                    image_position_ids=torch.zeros(count, patches, 2, dtype=torch.int64, device=device),
                    mm_token_type_ids=kinds)
    if pixtral(config):
        # whole pictures and their sizes; which tokens are a picture's the processor says only where it is asked
        # (models/pixtral/processing_pixtral.py `return_mm_token_type_ids`)
        sides = [side * vision.patch_size for side in (rows, columns)]
        return dict(pixel_values=torch.empty(count, vision.num_channels, *sides, device=device),
                    image_sizes=torch.tensor([sides] * count).to(device))
    channels = getattr(vision, "in_channels", None) or vision.in_chans
    width = channels * vision.temporal_patch_size * vision.patch_size ** 2
    if case["frames"] > 1:
        layers = temporal_patches(case, config)
        return dict(pixel_values_videos=torch.empty(count * layers * rows * columns, width, device=device),
                    video_grid_thw=torch.tensor([[layers, rows, columns]] * count).to(device),
                    mm_token_type_ids=kinds)
    return dict(pixel_values=torch.empty(count * rows * columns, width, device=device),
                image_grid_thw=torch.tensor([[1, rows, columns]] * count).to(device),
                mm_token_type_ids=kinds)


def sizes(added, sides):
    """What is computed of the sizes of the pictures that were added (modeling_pixtral.py, modeling_mistral3.py, modeling_llava.py): rows and columns of each, and their
    product. The tensors are made as they would be; where they are read their values are known here."""
    import torch
    divide, multiply = torch.Tensor.__floordiv__, torch.Tensor.__mul__
    known = {}

    def divided(self, other):
        result = divide(self, other)
        if self.is_cuda and self.dim() == 0 and self.untyped_storage().data_ptr() == added["image_sizes"].untyped_storage().data_ptr():
            known[result.data_ptr()] = sides[self.storage_offset() % 2] // other
        return result
    torch.Tensor.__floordiv__ = divided

    def multiplied(self, other):
        result = multiply(self, other)
        if isinstance(other, torch.Tensor) and self.data_ptr() in known and other.data_ptr() in known and self.dim() == 0:
            known[result.data_ptr()] = known[self.data_ptr()] * known[other.data_ptr()]
        return result
    torch.Tensor.__mul__ = multiplied

    def read(self):
        mine = self.dtype == torch.int64 and self.data_ptr() in known
        return known[self.data_ptr()] if mine else self.cpu().item()
    LIBRARY.impl("_local_scalar_dense", read, "CUDA")


def answer(case, model, added):
    """The values that are read off the device. Returns what tells of a batch of another number of sequences."""
    import torch
    from transformers import vision_utils
    config = model.config
    case = dict(case)
    lengths = lengths_of(case, config)

    def told(sequences):
        case["batch"] = sequences
        lengths[:] = lengths_of(case, config)
    device_list = torch.Tensor.tolist
    scalars = set()
    tensor = torch.tensor
    global LIBRARY
    LIBRARY = torch.library.Library("aten", "IMPL")
    merge = None if config.model_type == "gemma3" else merged(config)
    if pixtral(config):
        sizes(added, [side * config.vision_config.patch_size for side in grid(case, config)])

    def noted(data, *a, **k):
        made = tensor(data, *a, **k)
        if data == [merge]:
            scalars.clear()
            scalars.add(made.data_ptr())
        return made
    torch.tensor = noted
    windows = []

    def tolist(self):
        # sides of a picture (llava_next)
        if config.model_type == "llava_next" and self.is_cuda and self.dtype == torch.int64 and self.shape == (2,):
            return list(case["image_size"])
        # lengths of what attends to itself: the pictures, or qwen2_5_vl's windows
        if self.is_cuda and self.dtype == torch.int32 and self.dim() == 1:
            real = device_list(self)
            if self.numel() == len(lengths):
                return list(lengths)
            if windows and self.numel() == len(windows[0]) - 1:
                return [b - a for a, b in zip(windows[0], windows[0][1:])]
            return real
        # spatial_merge_size of every picture (vision_utils.py `get_vision_position_ids`)
        if self.is_cuda and self.dim() == 1 and (self.stride() == (0,) or self.data_ptr() in scalars):
            scalars.clear()
            return [merge] * self.numel()
        # tokens of each picture or video (`get_image_features`)
        if self.is_cuda and self.dim() == 1 and self.numel() == case["images"] * case["batch"] and self.dtype == torch.int64:
            return [tokens_of(case, config)] * self.numel()
        # text alone: positions are made piece by piece and put into one tensor, which is of one size whatever the pieces are
        if self.is_cuda and self.dim() == 1 and self.numel() in (case["seq"], case.get("prompt")):
            return [0] * self.numel()
        # image_grid_thw
        if self.is_cuda and self.dim() == 2 and self.shape[1] == 3:
            return [[temporal_patches(case, config), *grid(case, config)]] * len(self)
        return device_list(self)
    torch.Tensor.tolist = tolist

    def unique_consecutive(self, *a, **k):
        # a window at the rim may be empty: its length is 0 and its end is the one before
        values = list(dict.fromkeys(device_list(self)))
        windows[:] = [values]
        return torch.tensor(values, dtype=self.dtype).to(self.device)
    torch.unique_consecutive = unique_consecutive

    # compiled at run time for integers, which the null device does not do; a number for each picture
    product = torch.Tensor.prod
    torch.Tensor.prod = lambda self, *a, **k: self[:, 0].clone() if self.is_cuda and self.dim() == 2 else product(self, *a, **k)

    if config.model_type == "gemma4":
        every = torch.Tensor.all
        most = SOFT_TOKENS * merge ** 2

        def all_(self, *a, **k):
            # whether no patch is padding
            if self.is_cuda and not a and not k and self.shape == (len(lengths), most):
                return torch.tensor(lengths[0] == most)
            return every(self, *a, **k)
        torch.Tensor.all = all_

    repeat = torch.repeat_interleave

    def repeat_interleave(self, repeats=None, *a, **k):
        # patches of a frame, once for each frame of a picture; or a number of a picture, once for each of its patches
        if isinstance(repeats, torch.Tensor) and repeats.is_cuda and "output_size" not in k:
            k["output_size"] = len(lengths) if repeats.stride() == (3,) else sum(lengths)
        return repeat(self, repeats, *a, **k)
    torch.repeat_interleave = repeat_interleave

    # how many patches there are (vision_utils.py `get_vision_interpolation_indices_and_weights`)
    arange = torch.arange
    torch.arange = lambda end, *a, **k: arange(sum(lengths) if isinstance(end, torch.Tensor) and end.is_cuda else end, *a, **k)
    return told


def true_elements(case, config):
    """How many elements are true of the masks that are asked, by their shapes: which numbers of the embeddings are a picture's, in
    masked_scatter's backward; which tokens are (qwen3_vl's deepstack, gemma4's pooler); which of a text are no padding (`get_rope_index`
    where it is given a mask)."""
    batch, sequence, hidden = case["batch"], case["seq"], config.get_text_config().hidden_size
    tokens = tokens_of(case, config) * case["images"] * batch
    pooled = {(case["images"] * batch, SOFT_TOKENS): tokens} if config.model_type == "gemma4" else {}
    return {(batch, sequence, hidden): tokens * hidden, (batch, sequence): tokens, (sequence,): sequence, **pooled}


def answer_nonzero(case, config):
    """How many elements of a mask are true."""
    import torch
    known = true_elements(case, config)

    def nonzero(mask):
        # allocations as aten/src/ATen/native/cuda/Nonzero.cu makes them, whose temporary storage is cub's and was read off the null
        # device with that count
        found = known[tuple(mask.shape)]
        dense = mask.contiguous()
        count = torch.empty(1, dtype=torch.int32, device=mask.device)
        capability = torch.cuda.get_device_capability()
        temporary = 21503 if capability[0] == 9 else 17663
        torch.empty(temporary if mask.numel() > 4096 else 1, dtype=torch.uint8, device=mask.device)
        indices = torch.empty(mask.dim(), found, dtype=torch.int64, device=mask.device)
        del dense, count
        return indices.t()
    LIBRARY.impl("nonzero", nonzero, "CUDA")


def keep_off_the_tower(case):
    """Adapters are kept off a frozen tower."""
    if case["tower"] == "frozen" and case["method"] != "full":
        import peft
        peft.LoraConfig = functools.partial(peft.LoraConfig, exclude_modules=r".*\b(visual|vision_tower|vision_model|multi_modal_projector|embed_vision)(\..*)?")


def freeze(case, model):
    """A frozen tower's parameters, and the projector's, need no gradient."""
    if case["tower"] == "frozen":
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "embed_vision.", "image_newline")) and "lora_" not in name:
                parameter.requires_grad_(False)


def build_model(case, device, build=measure.build_model):
    if not case["images"]:
        return build(case, device)
    import torch
    # compiled at run time (`erfinv_`), which the null device does not do; what weights hold changes nothing
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *a, **k: tensor
    keep_off_the_tower(case)
    model = build(case, device)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    freeze(case, inner)
    added = {}

    def add(module, args, kwargs):
        if not added:
            added.update(pictures(case, inner.config, device))
            answer(case, inner, added)
            answer_nonzero(case, inner.config)
        return args, dict(kwargs, **added)
    model.register_forward_pre_hook(add, with_kwargs=True)
    return model


measure.build_model = build_model
