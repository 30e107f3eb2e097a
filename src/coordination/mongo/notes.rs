//! Notes: one document for each, inserted once.

use super::{ATTEMPTS, MongoStore, documents, text};
use crate::coordination::Notes;
use crate::error::Result;
use mongodb::bson::doc;

impl Notes for MongoStore {
    fn add_note(&self, folder: &str, name: &str, words: &str) -> Result<String> {
        let (folder, name, written) = (folder.to_owned(), name.to_owned(), words.to_owned());
        self.call(move |collections| async move {
            let id = collections.note(&folder, &name);
            for _ in 0..ATTEMPTS {
                let mut first = id.clone();
                first.extend(doc! {
                    "ring": collections.ring(),
                    "of": collections.name(),
                    "folder": &folder,
                    "name": &name,
                    "text": &written,
                });
                match collections.status.insert_one(first).await {
                    Err(error) if documents::is_duplicate(&error) => {}
                    other => return other.map(|_| written),
                }
                if let Some(found) = collections.find(&collections.status, id.clone()).await? {
                    return Ok(text(&found, "text"));
                }
            }
            Err(documents::contested())
        })
    }

    fn read_note(&self, folder: &str, name: &str) -> Result<Option<String>> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        let found = self.call(move |collections| async move {
            collections.find(&collections.status, collections.note(&folder, &name)).await
        })?;
        Ok(found.map(|found| text(&found, "text")))
    }

    fn note_names(&self, folder: &str) -> Result<Vec<String>> {
        let folder = folder.to_owned();
        self.call(move |collections| async move {
            let notes = doc! { "of": collections.name(), "ring": collections.ring(), "folder": folder };
            let mut found = collections.status.find(notes).projection(doc! { "name": 1 }).await?;
            let mut names = Vec::new();
            while found.advance().await? {
                names.push(text(&found.deserialize_current()?, "name"));
            }
            Ok(names)
        })
    }

    fn remove_note(&self, folder: &str, name: &str) -> Result<()> {
        let (folder, name) = (folder.to_owned(), name.to_owned());
        self.call(move |collections| async move {
            let mut note = collections.note(&folder, &name);
            note.insert("ring", collections.ring());
            collections.status.delete_one(note).await.map(|_| ())
        })
    }
}
