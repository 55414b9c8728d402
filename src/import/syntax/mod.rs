//! How configurations are written: each way ends in settings, one after the other, as they stand in the text.

pub(super) mod python;
pub(super) mod script;
pub(super) mod setting;
pub(super) mod shell;
pub(super) mod yaml;
