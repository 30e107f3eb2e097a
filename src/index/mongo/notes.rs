//! Notes: a document for each, inserted once.

use super::{ATTEMPTS, MongoIndex, documents, text};
use crate::error::Result;
use crate::index::Notes;
use mongodb::bson::doc;

impl Notes for MongoIndex {
    fn note(&self, folder: &str, name: &str, words: &str) -> Result<String> {
        let (folder, name, written) = (folder.to_owned(), name.to_owned(), words.to_owned());
        self.call(move |tables| async move {
            let id = tables.note(&folder, &name);
            for _ in 0..ATTEMPTS {
                let mut first = id.clone();
                first.extend(doc! {
                    "ring": tables.ring(),
                    "of": tables.name(),
                    "folder": &folder,
                    "name": &name,
                    "text": &written,
                });
                match tables.status.insert_one(first).await {
                    Err(error) if documents::is_duplicate(&error) => {}
                    other => return other.map(|_| written),
                }
                if let Some(found) = tables.find(&tables.status, id.clone()).await? {
                    return Ok(text(&found, "text"));
                }
            }
            Err(documents::contested())
        })
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        let found =
            self.call(move |tables| async move { tables.find(&tables.status, tables.note(&folder, &name)).await })?;
        Ok(found.map(|found| text(&found, "text")))
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        let folder = folder.to_owned();
        self.call(move |tables| async move {
            let notes = doc! { "of": tables.name(), "ring": tables.ring(), "folder": folder };
            let mut found = tables.status.find(notes).projection(doc! { "name": 1 }).await?;
            let mut names = Vec::new();
            while found.advance().await? {
                names.push(text(&found.deserialize_current()?, "name"));
            }
            Ok(names)
        })
    }

    fn drop_note(&self, folder: &str, name: &str) -> Result<()> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call(move |tables| async move {
            let mut note = tables.note(&folder, &name);
            note.insert("ring", tables.ring());
            tables.status.delete_one(note).await.map(|_| ())
        })
    }
}
