//! FSDP2 as accelerate and transformers are told of it.

/// What a checkpoint is of: whole weights that are gathered, or each GPU's own part.
pub(super) fn state_dict_type(whole: bool) -> &'static str {
    if whole { "FULL_STATE_DICT" } else { "SHARDED_STATE_DICT" }
}
