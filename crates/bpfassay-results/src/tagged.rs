// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading values of several kinds, one key of which names the kind. Serde's own way holds the
//! whole value in a form of its own first, which takes longer than all the rest of reading a
//! journal; where that key comes first, as it does in all that is written here, there is no need
//! to.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IntoDeserializer, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};

/// A value with a key that names its kind.
pub(crate) trait Tagged: Sized {
    /// The key.
    const TAG: &'static str;

    /// The value of this kind, whose other keys are what `rest` gives.
    ///
    /// # Errors
    /// Those of `rest`, and for a kind that is not known.
    fn of_kind<'de, D: Deserializer<'de>>(kind: &str, rest: D) -> Result<Self, D::Error>;
}

/// Reads a tagged value.
///
/// # Errors
/// Those of `deserializer`.
pub(crate) fn deserialize<'de, T: Tagged, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Reader(PhantomData))
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Tagged> Visitor<'de> for Reader<T> {
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
        // Another program sorted the keys.
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
