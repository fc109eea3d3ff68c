// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads values whose kind is named by one key. Serde's own implementation buffers the whole value
//! first, which takes longer than the rest of reading a journal. If the key comes first, as this
//! program writes it, no buffering is needed.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};

/// A value whose kind is named by one key.
pub(crate) trait Tagged: Sized {
    /// The key.
    const TAG: &'static str;

    /// Deserializes a value of `kind` from the other keys, which `rest` gives.
    ///
    /// # Errors
    /// The errors of `rest`, and an error for an unknown kind.
    fn of_kind<'de, D: Deserializer<'de>>(kind: &str, rest: D) -> Result<Self, D::Error>;
}

/// Reads a tagged value.
///
/// # Errors
/// The errors of `deserializer`.
pub(crate) fn deserialize<'de, T: Tagged, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(TaggedReader(PhantomData))
}

struct TaggedReader<T>(PhantomData<T>);

impl<'de, T: Tagged> Visitor<'de> for TaggedReader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the key `{}`", T::TAG)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let Some(key) = map.next_key::<String>()? else { return Err(A::Error::missing_field(T::TAG)) };
        if key == T::TAG {
            let kind: String = map.next_value()?;
            return T::of_kind(&kind, MapAccessDeserializer::new(map));
        }
        // Another program wrote the keys in another order.
        let mut rest = Map::new();
        rest.insert(key, map.next_value()?);
        while let Some((key, value)) = map.next_entry::<String, Value>()? {
            if rest.insert(key.clone(), value).is_some() {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        let kind = rest.remove(T::TAG).ok_or_else(|| A::Error::missing_field(T::TAG))?;
        let kind = String::deserialize(kind).map_err(A::Error::custom)?;
        T::of_kind(&kind, rest.into_deserializer()).map_err(A::Error::custom)
    }
}
