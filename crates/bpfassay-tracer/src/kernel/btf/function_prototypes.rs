// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prototypes as fields of a line, for keeping them between tracers of one boot.

use bpfassay_btf::{Prototype, ValueShape};

use crate::kernel::kept_facts::Kept;

/// The prototypes of all functions of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FunctionPrototypes(pub(super) Vec<Prototype>);

impl Kept for FunctionPrototypes {
    const KIND: &'static str = "prototype";

    /// Returns for each prototype the text, the type of the result, the number of arguments, and
    /// the arguments.
    fn write(&self) -> Vec<String> {
        let fields = |prototype: &Prototype| {
            let head = [prototype.text.clone(), field(&prototype.returns), prototype.arguments.len().to_string()];
            head.into_iter().chain(prototype.arguments.iter().map(field)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(fields).collect()
    }

    fn parse<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut all = Vec::new();
        while let Some(text) = fields.next() {
            let returns = shape(fields.next()?)?;
            let count: usize = fields.next()?.parse().ok()?;
            // This allocates as much as the line has: the number alone allocates no memory.
            let arguments = fields.by_ref().take(count).map(shape).collect::<Option<Vec<_>>>()?;
            if arguments.len() < count {
                return None;
            }
            all.push(Prototype { text: text.to_owned(), returns, arguments });
        }
        Some(Self(all))
    }
}

fn field(shape: &ValueShape) -> String {
    match shape {
        ValueShape::Void => "void".to_owned(),
        ValueShape::Integer(size) => format!("integer {size}"),
        ValueShape::Pointer(name) => format!("pointer {name}"),
        ValueShape::Address => "address".to_owned(),
        ValueShape::Other => "other".to_owned(),
    }
}

fn shape(text: &str) -> Option<ValueShape> {
    Some(match text.split_once(' ') {
        None if text == "void" => ValueShape::Void,
        None if text == "address" => ValueShape::Address,
        None if text == "other" => ValueShape::Other,
        Some(("integer", size)) => ValueShape::Integer(size.parse().ok()?),
        Some(("pointer", name)) => ValueShape::Pointer(name.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_shape() -> impl Strategy<Value = ValueShape> {
        prop_oneof![
            Just(ValueShape::Void),
            any::<u32>().prop_map(ValueShape::Integer),
            "[a-z_]{0,6}".prop_map(ValueShape::Pointer),
            Just(ValueShape::Address),
            Just(ValueShape::Other),
        ]
    }

    proptest! {
        #[test]
        fn prototypes_are_read_as_they_are_written(
            all in prop::collection::vec(("[a-z *(),.]{0,20}", any_shape(), prop::collection::vec(any_shape(), 0..4)), 0..3),
        ) {
            let all = all.into_iter().map(|(text, returns, arguments)| Prototype { text, returns, arguments });
            let all = FunctionPrototypes(all.collect());
            let fields = all.write();
            prop_assert_eq!(FunctionPrototypes::parse(fields.iter().map(String::as_str)), Some(all));
        }

        #[test]
        fn any_fields_are_prototypes_or_none(fields: Vec<String>) {
            let _ = FunctionPrototypes::parse(fields.iter().map(String::as_str));
        }
    }
}
