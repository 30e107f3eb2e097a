//! The roles of processes in a ring, and their names in the coordination store, in reports and in
//! the failure log.

use std::fmt;

/// A role in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Writes samples.
    Generator,
    /// Runs maintenance continuously.
    Manager,
    /// Reads samples.
    Reader,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 3] = [Role::Generator, Role::Manager, Role::Reader];

    /// Returns the name of the role in files and on servers. It never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Generator => "generator",
            Role::Manager => "manager",
            Role::Reader => "reader",
        }
    }

    /// Parses the name of a role. Returns `None` for the names of later versions.
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
    fn only_names_of_roles_are_parsed() {
        for role in Role::ALL {
            assert_eq!(Role::parse(&role.to_string()), Some(role));
        }
        assert_eq!((Role::parse(""), Role::parse("Manager"), Role::parse("observer")), (None, None, None));
    }
}
