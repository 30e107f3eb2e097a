//! The counter: a document for each generation, changed by findAndModify.

use super::{ATTEMPTS, MongoIndex, documents, int, whole};
use crate::error::Result;
use crate::index::Counter;
use crate::index::block::Numbers;
use mongodb::bson::{Document, doc};

impl MongoIndex {
    /// Claims the next block of numbers of `generation`; `None` when it is closed.
    fn claim_numbers(&self, generation: u64) -> Result<Option<Numbers>> {
        let counter =
            self.change_counter(generation, doc! { "$inc": { "next": int(self.block) } }, doc! { "closed": false })?;
        if counter.get_bool("closed").unwrap_or(false) {
            return Ok(None);
        }
        let end = whole(&counter, "next").max(self.block);
        Ok(Some(Numbers { generation, next: end - self.block, end }))
    }

    /// Changes the counter of `generation`; makes it, with `created` in it, where there is none.
    fn change_counter(&self, generation: u64, mut change: Document, created: Document) -> Result<Document> {
        change.insert("$setOnInsert", created);
        let id = doc! { "_id": int(generation) };
        self.call(move |tables| async move {
            for _ in 0..ATTEMPTS {
                if let Some(counter) = tables.change(&tables.counters, id.clone(), change.clone()).await? {
                    return Ok(counter);
                }
            }
            Err(documents::contested())
        })
    }
}

impl Counter for MongoIndex {
    fn next_index(&self, generation: u64) -> Result<Option<u64>> {
        self.numbers.take(generation, |_| self.claim_numbers(generation))
    }

    fn close_generation(&self, generation: u64) -> Result<()> {
        self.change_counter(generation, doc! { "$set": { "closed": true } }, doc! { "next": 0_i64 }).map(drop)
    }

    fn handed_out(&self, generation: u64) -> Result<u64> {
        let filter = doc! { "_id": int(generation) };
        let counter = self.call(|tables| async move { tables.find(&tables.counters, filter).await })?;
        Ok(counter.map_or(0, |counter| whole(&counter, "next")))
    }

    fn skip_to(&self, generation: u64, next: u64) -> Result<()> {
        self.numbers.skip_to(generation, next);
        self.change_counter(generation, doc! { "$max": { "next": int(next) } }, doc! { "closed": false }).map(drop)
    }
}
