//! The counter: one document for each generation, changed by findAndModify.

use super::{MongoStore, int, whole};
use crate::coordination::Counter;
use crate::coordination::allocator::NumberRange;
use crate::error::Result;
use mongodb::bson::{Document, doc};

impl MongoStore {
    /// Claims the next block of numbers of `generation`. Returns `None` if the generation is
    /// closed.
    fn claim_numbers(&self, generation: u64) -> Result<Option<NumberRange>> {
        let counter =
            self.change_counter(generation, doc! { "$inc": { "next": int(self.block) } }, doc! { "closed": false })?;
        if counter.get_bool("closed").unwrap_or(false) {
            return Ok(None);
        }
        let end = whole(&counter, "next").max(self.block);
        Ok(Some(NumberRange { generation, next: end - self.block, end }))
    }

    /// Changes the counter of `generation`. If it does not exist, creates it with the fields of
    /// `created`.
    fn change_counter(&self, generation: u64, mut change: Document, created: Document) -> Result<Document> {
        change.insert("$setOnInsert", created);
        let id = doc! { "_id": int(generation) };
        self.call(move |collections| async move { collections.change(&collections.counters, id, change).await })
    }
}

impl Counter for MongoStore {
    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        self.numbers.take(generation, |_| self.claim_numbers(generation))
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        self.change_counter(generation, doc! { "$set": { "closed": true } }, doc! { "next": 0_i64 }).map(drop)
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        let filter = doc! { "_id": int(generation) };
        let counter = self.call(|collections| async move { collections.find(&collections.counters, filter).await })?;
        Ok(counter.map_or(0, |counter| whole(&counter, "next")))
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        self.numbers.skip_to(generation, next);
        self.change_counter(generation, doc! { "$max": { "next": int(next) } }, doc! { "closed": false }).map(drop)
    }
}
