// SPDX-License-Identifier: MIT OR Apache-2.0
//! A figure, or why there is none.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// A figure, or why it could not be computed: never 0 and never blank in place of what was not
/// measured.
///
/// In JSON `{"value": …}` or `{"not_measured": "reason"}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure<T> {
    /// The figure.
    Value(T),
    /// Why there is none.
    NotMeasured(Reason),
}

impl<T> Figure<T> {
    /// A figure that could not be computed.
    pub fn missing(reason: impl Into<Reason>) -> Self {
        Self::NotMeasured(reason.into())
    }

    /// The figure, if there is one.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// The figure, if there is one, to be changed.
    pub const fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Why there is none.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::NotMeasured(reason) => Some(reason),
        }
    }

    /// The figure, for another one that depends on it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn known(&self) -> Result<&T, String> {
        match self {
            Self::Value(value) => Ok(value),
            Self::NotMeasured(reason) => Err(reason.to_string()),
        }
    }

    /// The figure that `change` makes of this one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Figure<U> {
        match self {
            Self::Value(value) => Figure::Value(change(value)),
            Self::NotMeasured(reason) => Figure::NotMeasured(reason),
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Figure<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) => Self::missing(error.to_string()),
        }
    }
}

// By hand: the derived schema would have to be named after `T`, and would describe each variant by
// the whole text above.
impl<T: JsonSchema> JsonSchema for Figure<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Figure_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({
            "description": "A figure, or why it could not be computed.",
            "oneOf": [
                {
                    "type": "object",
                    "properties": { "value": value },
                    "required": ["value"],
                    "additionalProperties": false,
                },
                {
                    "type": "object",
                    "properties": { "not_measured": { "type": "string", "minLength": 1 } },
                    "required": ["not_measured"],
                    "additionalProperties": false,
                },
            ],
        })
    }
}
