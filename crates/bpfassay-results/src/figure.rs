// SPDX-License-Identifier: MIT OR Apache-2.0
//! A figure, or the reason why there is none.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::reason::Reason;

/// A figure, or the reason why it could not be computed. Figures that were not measured never
/// appear as 0 or blank.
///
/// The JSON form is `{"value": …}` or `{"not_measured": "reason"}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure<T> {
    /// The figure.
    Value(T),
    /// The reason why there is no figure.
    NotMeasured(Reason),
}

impl<T> Figure<T> {
    /// Creates a figure that could not be computed.
    pub fn missing(reason: impl Into<Reason>) -> Self {
        Self::NotMeasured(reason.into())
    }

    /// Returns the figure, if there is one.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Returns a mutable reference to the figure, if there is one.
    pub const fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotMeasured(_) => None,
        }
    }

    /// Returns the reason why there is no figure.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::NotMeasured(reason) => Some(reason),
        }
    }

    /// Returns the figure, for computing another one from it.
    ///
    /// # Errors
    /// The reason why there is no figure.
    pub fn known(&self) -> Result<&T, String> {
        match self {
            Self::Value(value) => Ok(value),
            Self::NotMeasured(reason) => Err(reason.to_string()),
        }
    }

    /// Applies `change` to the figure, if there is one.
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

// Written by hand: the derived schema would have to be named after `T`, and each variant would
// repeat the whole type comment.
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
