// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason why a figure could not be computed. In 200,000 runs, millions of figures share a few
//! dozen reasons, so each text is stored once.

use std::{cell::RefCell, collections::HashSet, fmt, ops::Deref, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// Number of reasons that are shared. Further reasons, such as those that contain a name, are
/// stored with each figure.
const SHARED: usize = 256;

thread_local! {
    static KNOWN: RefCell<HashSet<Arc<str>>> = RefCell::default();
}

/// A reason as text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Arc<str>);

impl Reason {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        KNOWN.with_borrow_mut(|known| {
            if let Some(same) = known.get(text) {
                return Self(Arc::clone(same));
            }
            let new: Arc<str> = text.into();
            if known.len() < SHARED {
                known.insert(Arc::clone(&new));
            }
            Self(new)
        })
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&Reason> for Reason {
    fn from(reason: &Reason) -> Self {
        reason.clone()
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReasonVisitor;

        impl Visitor<'_> for ReasonVisitor {
            type Value = Reason;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reason, as text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Reason, E> {
                Ok(text.into())
            }
        }

        deserializer.deserialize_str(ReasonVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_held_once_and_many_are_no_problem() {
        let (one, other) = (Reason::from("the same"), Reason::from("the same".to_owned()));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        for number in 0..2 * SHARED {
            assert_eq!(Reason::from(number.to_string()).as_str(), number.to_string());
        }
        assert!(KNOWN.with_borrow(HashSet::len) <= SHARED);
        let read: Reason = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!(read, one);
    }
}
