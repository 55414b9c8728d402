//! What made a storage, and what its numbers are: noted where a record is wanted.

use super::record::Maker;
use super::{Heap, NOTHING, StorageId};
use crate::step::what::{Dims, Role};

impl Heap {
    /// Notes the dimensions of a storage, where a record is wanted.
    pub fn note_dims(&mut self, id: StorageId, dims: Dims) {
        if let Some(maker) = self.maker(id) {
            maker.dims = dims;
        }
    }

    /// What made a storage, where a record is wanted.
    fn maker(&mut self, id: StorageId) -> Option<&mut Maker> {
        let record = self.record.as_mut().filter(|_| id != NOTHING)?;
        record.makers.get_mut(id as usize)
    }

    /// Notes that a storage has the dimensions of another, changed in that way.
    fn derive_dims(&mut self, id: StorageId, of: StorageId, change: impl FnOnce(Dims) -> Dims) {
        let Some(dims) = self.record.as_ref().and_then(|record| record.makers.get(of as usize)) else {
            return;
        };
        let dims = change(dims.dims);
        self.note_dims(id, dims);
    }

    /// Notes that a storage has a row for each row of another, of which the numbers for all keys are summed up.
    pub fn take_product(&mut self, id: StorageId, of: StorageId) {
        self.derive_dims(id, of, Dims::without_keys);
    }

    /// Notes what a storage is for, where the code that made it did not know.
    pub fn note_role(&mut self, id: StorageId, role: &'static Role) {
        if let Some(maker) = self.maker(id) {
            maker.role = role;
        }
    }

    /// Notes the dimensions of all storages since number `first`: a parameter and what belongs to it.
    pub fn note_dims_since(&mut self, first: usize, dims: Dims) {
        if let Some(record) = &mut self.record {
            record.makers.iter_mut().skip(first).for_each(|maker| maker.dims = dims);
        }
    }

    /// Notes that a storage has so many rows of the kind that another has.
    pub fn take_rows(&mut self, id: StorageId, of: StorageId, rows: u64) {
        self.derive_dims(id, of, |dims| dims.with_rows(rows));
    }

    /// Notes that a storage has the rows of another, whatever its width is.
    pub fn take_dims(&mut self, id: StorageId, of: StorageId) {
        self.derive_dims(id, of, |dims| dims);
    }
}
