//! The operations of PyTorch that models are written with, each forward and backward; autocast is in here, as it is in
//! PyTorch's dispatcher.

pub(super) mod activations;
pub(super) mod adapted;
pub(super) mod attention;
mod autocast;
mod awq;
mod casts;
mod divided;
mod dropout;
pub(super) mod eight_bit;
pub(super) mod embedding;
pub(super) mod experts;
pub(super) mod four_bit;
mod gathered_linear;
pub(super) mod gptq;
mod ia3;
pub(super) mod indexing;
pub(super) mod linear;
pub(super) mod loss;
mod lycoris;
pub(super) mod matmul;
pub(super) mod merged;
pub(super) mod norm;
mod oft;
pub(super) mod packed;
pub(super) mod pointwise;
mod reductions;
mod rows;
pub(super) mod scan;
mod shape;
mod similarity;
pub(super) mod tuned;
mod vera;
pub(super) mod views;
mod virtual_tokens;
pub(super) mod weight_only;
