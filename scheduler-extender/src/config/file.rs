//! The configuration file: YAML in which every setting is optional and unknown keys are errors. An error has its line
//! and tells what to write instead.
//!
//! This module knows the text only, not its path.

#[cfg(test)]
mod tests;

use crate::settings::{SchedulerWeight, Settings};
use fpga_core::bitstream::Digest;
use fpga_core::board_kind::BoardKind;
use fpga_core::catalog::{Catalog, Listed, Unlisted};
use fpga_core::decide::AntiHerd;
use fpga_core::matching::UnlabelledNodes;
use fpga_core::score::{MaxScore, PerSignal, Weights, check_weight};
use fpga_core::staleness::StalePolicy;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{DefaultMessageFormatter, RenderOptions, SnippetMode};
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::str::FromStr;

/// Longest file that is accepted, in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// An error in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line of the error, from 1; `None` if the error concerns the whole file.
    pub line: Option<u64>,
    /// Column of the error, from 1.
    pub column: Option<u64>,
    /// The error, and what to write instead.
    pub message: String,
}

impl Problem {
    /// An error that concerns the whole file.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { line: None, column: None, message: message.into() }
    }

    /// The error in the form of compilers: path, line, column, message.
    #[must_use]
    pub fn at(&self, path: &Path) -> String {
        match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{}:{line}:{column}: {}", path.display(), self.message),
            _ => format!("{}: {}", path.display(), self.message),
        }
    }
}

/// Parses the settings in `text`.
///
/// # Errors
/// The first error; no setting of the file is valid then.
pub fn parse(text: &str) -> Result<Settings, Problem> {
    if text.len() > MAX_BYTES {
        return Err(Problem::new(format!("the file is longer than {MAX_BYTES} bytes")));
    }
    // An editor may be about to write the file. An empty file must not reset all settings to defaults.
    let empty = text.lines().all(|line| matches!(line.trim_start().chars().next(), None | Some('#')));
    if empty {
        return Err(Problem::new("the file is empty; write `{}` if all defaults are meant"));
    }
    let file: File = serde_saphyr::from_str(text).map_err(|error| problem(&error))?;
    Ok(Settings {
        weights: file.weights.0,
        max_score: file.max_score.0,
        stale: file.stale_nodes.0,
        unlabelled: file.unlabelled_nodes.0,
        anti_herd: file.anti_herd.0,
        scheduler_weight: file.scheduler_weight.0,
        bitstreams: file.bitstreams.map(|Bitstreams(catalog)| catalog),
    })
}

fn problem(error: &serde_saphyr::Error) -> Problem {
    let mut plain = RenderOptions::new(&DefaultMessageFormatter);
    plain.snippets = SnippetMode::Off;
    let rendered = error.render_with_options(plain);
    let location = error.location();
    // `Problem` has line and column in fields of their own, so they are removed from the message.
    let place = location.map(|at| format!(" at line {}, column {}", at.line(), at.column()));
    let message = match error.without_snippet() {
        serde_saphyr::Error::NonFiniteFloat { .. } => {
            "this is not finite; write a number, for example 2 or 0.5"
        }
        _ => place.as_deref().and_then(|place| rendered.strip_suffix(place)).unwrap_or(&rendered),
    };
    Problem {
        line: location.map(|at| at.line()),
        column: location.map(|at| at.column()),
        message: message.to_owned(),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct File {
    weights: FileWeights,
    max_score: Number<MaxScore>,
    stale_nodes: StaleNodes,
    unlabelled_nodes: Word<UnlabelledNodes>,
    anti_herd: Word<AntiHerd>,
    scheduler_weight: Number<SchedulerWeight>,
    bitstreams: Option<Bitstreams>,
}

/// The section `bitstreams`: the boards for which each bitstream is valid.
#[derive(Debug)]
struct Bitstreams(Catalog);

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct BitstreamsFile {
    unlisted: Word<Unlisted>,
    valid: Vec<ValidEntry>,
}

/// An entry of the list `valid`, checked while parsing so that an error has its line.
struct ValidEntry(Listed);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    digest: Word<Digest>,
    #[serde(default)]
    boards: Vec<BoardKind>,
}

/// A scalar that is parsed as `T`; `null` is `None`.
#[derive(Debug)]
struct Word<T>(Option<T>);

/// A whole number that is checked as `T`; `null` is `None`.
#[derive(Debug)]
struct Number<T>(Option<T>);

/// Weights in short form (`1-2-2`) or by name.
#[derive(Debug, Default)]
struct FileWeights(PerSignal<Option<f64>>);

/// One stale policy for all signals, or stale policies by name.
#[derive(Debug, Default)]
struct StaleNodes(PerSignal<Option<StalePolicy>>);

/// A value for each signal, by name.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase", bound = "T: Deserialize<'de> + Default")]
struct ByName<T> {
    locality: T,
    usage: T,
    reconfiguration: T,
    free_slots: T,
    queue: T,
    loaded: T,
}

#[derive(Debug, Default)]
struct WeightNumber(Option<f64>);

impl<T> Default for Word<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for Number<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> Default for ByName<T> {
    fn default() -> Self {
        let it = T::default;
        Self {
            locality: it(),
            usage: it(),
            reconfiguration: it(),
            free_slots: it(),
            queue: it(),
            loaded: it(),
        }
    }
}

impl<T> From<ByName<T>> for PerSignal<T> {
    fn from(named: ByName<T>) -> Self {
        let ByName { locality, usage, reconfiguration, free_slots, queue, loaded } = named;
        Self { locality, usage, reconfiguration, free_slots, queue, loaded }
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse()).transpose().map(Self).map_err(D::Error::custom)
    }
}

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Scalar>::deserialize(deserializer)?;
        text.map(|Scalar(text)| text.parse()).transpose().map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for WeightNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(Scalar(text)) = Option::<Scalar>::deserialize(deserializer)? else { return Ok(Self(None)) };
        let weight: f64 = text.parse().map_err(|_| {
            D::Error::custom(format!("{text:?} is not a weight; write a number, for example 2 or 0.5"))
        })?;
        check_weight(weight).map_err(D::Error::custom)?;
        Ok(Self(Some(weight)))
    }
}

impl<'de> Deserialize<'de> for FileWeights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "weights: in short form as in `1-2-2`, or by name as in `{usage: 2}`";
        let given: TextOrNamed<WeightNumber> = text_or_named(deserializer, expected)?;
        Ok(Self(match given {
            TextOrNamed::Nothing => PerSignal::default(),
            TextOrNamed::Named(named) => PerSignal::from(named).map(|WeightNumber(weight)| weight),
            TextOrNamed::Text(text) => short_form(text.parse().map_err(D::Error::custom)?, &text),
        }))
    }
}

/// The weights that `text` names in short form; further signals that it leaves out are `None`.
#[must_use]
pub fn short_form(weights: Weights, text: &str) -> PerSignal<Option<f64>> {
    let written = text.split('-').count();
    let all = weights.per_signal().map(Some);
    PerSignal {
        free_slots: all.free_slots.filter(|_| written > 3),
        queue: all.queue.filter(|_| written > 4),
        loaded: all.loaded.filter(|_| written > 5),
        ..all
    }
}

impl<'de> Deserialize<'de> for Bitstreams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let BitstreamsFile { unlisted, valid } = BitstreamsFile::deserialize(deserializer)?;
        let listed = valid.into_iter().map(|ValidEntry(listed)| listed).collect();
        Catalog::new(listed, unlisted.0.unwrap_or_default()).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ValidEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ListedFile { name, digest, boards } = ListedFile::deserialize(deserializer)?;
        let listed = Listed { name, digest: digest.0, boards };
        listed.check().map_err(D::Error::custom)?;
        Ok(Self(listed))
    }
}

impl<'de> Deserialize<'de> for StaleNodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected =
            "`neutral`, `penalise` or `exclude`, or one of them by signal as in `{usage: neutral}`";
        let given: TextOrNamed<Word<StalePolicy>> = text_or_named(deserializer, expected)?;
        Ok(Self(match given {
            TextOrNamed::Nothing => PerSignal::default(),
            TextOrNamed::Named(named) => PerSignal::from(named).map(|Word(policy)| policy),
            TextOrNamed::Text(text) => {
                let policy: StalePolicy = text.parse().map_err(D::Error::custom)?;
                PerSignal::default().map(|()| Some(policy))
            }
        }))
    }
}

/// A scalar as the text has it, whatever its type in YAML: `1-2-2` and `on` are strings here, and `1` equals `"1"`.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl Visitor<'_> for Any {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

enum TextOrNamed<T> {
    Nothing,
    Text(String),
    Named(ByName<T>),
}

fn text_or_named<'de, T, D>(deserializer: D, expected: &'static str) -> Result<TextOrNamed<T>, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    struct Either<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Either<T> {
        type Value = TextOrNamed<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(TextOrNamed::Nothing)
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(TextOrNamed::Text(text.to_owned()))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            ByName::deserialize(MapAccessDeserializer::new(map)).map(TextOrNamed::Named)
        }
    }

    deserializer.deserialize_any(Either(expected, PhantomData))
}
