//! What a process does in a ring, and the word for it in the index, in reports and in lists of failures.

use std::fmt;

/// A role in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Makes samples.
    Generator,
    /// Keeps the ring turning.
    Manager,
    /// Takes samples out.
    Reader,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Generator, Role::Manager, Role::Reader];

    /// Returns the word for it on the disk and on a server. It never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Generator => "generator",
            Role::Manager => "manager",
            Role::Reader => "reader",
        }
    }

    /// Returns the role with this word; `None` for words of later versions.
    pub fn parse(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_roles_are_parsed_and_no_others() {
        for role in Role::ALL {
            assert_eq!(Role::parse(&role.to_string()), Some(role));
        }
        assert_eq!((Role::parse(""), Role::parse("Manager"), Role::parse("observer")), (None, None, None));
    }
}
