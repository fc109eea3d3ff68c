// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prototypes as words of a line, to be kept between tracers of one boot.

use bpfassay_btf::{Prototype, Shape};

use crate::kernel::kept::Kept;

/// The prototypes of all functions of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prototypes(pub(super) Vec<Prototype>);

impl Kept for Prototypes {
    const KIND: &'static str = "prototype";

    /// Three words each: the text, what it returns, and its arguments.
    fn write(&self) -> Vec<String> {
        let words = |prototype: &Prototype| {
            let arguments: Vec<String> = prototype.arguments.iter().map(word).collect();
            [prototype.text.clone(), word(&prototype.returns), arguments.join(",")]
        };
        self.0.iter().flat_map(words).collect()
    }

    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut all = Vec::new();
        while let Some(text) = words.next() {
            let returns = shape(words.next()?)?;
            let arguments = words.next()?.split_terminator(',').map(shape).collect::<Option<_>>()?;
            all.push(Prototype { text: text.to_owned(), returns, arguments });
        }
        Some(Self(all))
    }
}

fn word(shape: &Shape) -> String {
    match shape {
        Shape::Void => "void".to_owned(),
        Shape::Integer(size) => format!("integer {size}"),
        // No name in C has a comma; one that has would be read as what cannot be.
        Shape::Pointer(name) => format!("pointer {name}"),
        Shape::Address => "address".to_owned(),
        Shape::Other => "other".to_owned(),
    }
}

fn shape(word: &str) -> Option<Shape> {
    Some(match word.split_once(' ') {
        None if word == "void" => Shape::Void,
        None if word == "address" => Shape::Address,
        None if word == "other" => Shape::Other,
        Some(("integer", size)) => Shape::Integer(size.parse().ok()?),
        Some(("pointer", name)) => Shape::Pointer(name.to_owned()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Void),
            any::<u32>().prop_map(Shape::Integer),
            "[a-z_]{0,6}".prop_map(Shape::Pointer),
            Just(Shape::Address),
            Just(Shape::Other),
        ]
    }

    proptest! {
        #[test]
        fn prototypes_are_read_as_they_are_written(
            all in prop::collection::vec(("[a-z *(),.]{0,20}", any_shape(), prop::collection::vec(any_shape(), 0..4)), 0..3),
        ) {
            let all = all.into_iter().map(|(text, returns, arguments)| Prototype { text, returns, arguments });
            let all = Prototypes(all.collect());
            let words = all.write();
            prop_assert_eq!(Prototypes::parse(words.iter().map(String::as_str)), Some(all));
        }

        #[test]
        fn any_words_are_prototypes_or_none(words: Vec<String>) {
            let _ = Prototypes::parse(words.iter().map(String::as_str));
        }
    }
}
