//! A tokenizer that reports failed regular expressions.
//!
//! The engine gives up on an expression that backtracks too often, such as `\s+(?!\S)` on a million blanks.
//! `tokenizers` then treats the rest of the text as one piece, without an error. So the steps that search by
//! an expression of the file are implemented here. All other steps are those of the crate.

use std::cell::RefCell;

use fancy_regex::Regex;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::Value as Json;
use tokenizers::normalizers::{ByteLevel as BytesAsChars, Replace};
use tokenizers::pattern::{Invert, Pattern};
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{
    DecoderWrapper, Encoding, ModelWrapper, NormalizedString, Normalizer, NormalizerWrapper, Offsets,
    PostProcessorWrapper, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, Result,
    SplitDelimiterBehavior, TokenizerImpl,
};

/// The type of a tokenizer that serde reads from a `tokenizer.json`.
pub(crate) type Checked =
    TokenizerImpl<ModelWrapper, Normalize, PreTokenize, PostProcessorWrapper, DecoderWrapper>;

/// The expression of GPT-2. The step `ByteLevel` uses it by default.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

thread_local! {
    /// The first error of a normalizer in the text that this thread encodes. The crate drops such errors.
    static DROPPED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The ids of `text`.
///
/// # Errors
/// The errors of the crate, and an error for an expression that gives up.
pub(super) fn encode(tokenizer: &Checked, text: &str, special_tokens: bool) -> Result<Vec<u32>> {
    Ok(checked(|| tokenizer.encode_fast(text, special_tokens))?.get_ids().to_vec())
}

/// Ids, and the character range (start, end) of each id.
pub(crate) type Encoded = (Vec<u32>, Vec<(usize, usize)>);

/// The ids of `text` without special tokens, and the character range of each id.
///
/// # Errors
/// As [`encode`].
pub(crate) fn encode_with_places(tokenizer: &Checked, text: &str) -> Result<Encoded> {
    let encoded = checked(|| tokenizer.encode_char_offsets(text, false))?;
    Ok((encoded.get_ids().to_vec(), encoded.get_offsets().to_vec()))
}

/// The special tokens that the tokenizer adds before `text`, and the ids of `text` without any.
///
/// # Errors
/// As [`encode`].
pub(crate) fn special_before(tokenizer: &Checked, text: &str) -> Result<(Vec<u32>, Vec<u32>)> {
    let encoded = checked(|| tokenizer.encode_fast(text, true))?;
    let (ids, mask) = (encoded.get_ids(), encoded.get_special_tokens_mask());
    let before = mask.iter().take_while(|&&is_special| is_special == 1).count();
    let text = ids.iter().zip(mask).filter(|(_, is_special)| **is_special == 0);
    Ok((ids[..before].to_vec(), text.map(|(id, _)| *id).collect()))
}

/// The result of `encode`, or the error of a normalizer that the crate dropped.
fn checked(encode: impl FnOnce() -> Result<Encoding>) -> Result<Encoding> {
    DROPPED.set(None);
    let encoded = encode()?;
    match DROPPED.take() {
        None => Ok(encoded),
        Some(why) => Err(why.into()),
    }
}

/// A regular expression of a tokenizer's file.
#[derive(Debug)]
pub(crate) struct Expression(Regex);

impl Expression {
    fn new(expression: &str) -> Result<Self> {
        Ok(Self(Regex::new(expression)?))
    }
}

impl Pattern for &Expression {
    /// The matches and the parts between them. An error if the engine gives up.
    fn find_matches(&self, inside: &str) -> Result<Vec<(Offsets, bool)>> {
        if inside.is_empty() {
            return Ok(vec![((0, 0), false)]);
        }
        let (mut parts, mut end) = (Vec::with_capacity(inside.len()), 0);
        for found in self.0.find_iter(inside) {
            let found = found.map_err(|error| {
                format!(
                    "the tokenizer's regular expression \"{}\" gives up after byte {end} of {}, where it \
                     takes too many steps: shorten long runs of one kind, such as blanks, or leave the text \
                     out ({error})",
                    self.0.as_str(),
                    inside.len()
                )
            })?;
            if end != found.start() {
                parts.push(((end, found.start()), false));
            }
            parts.push(((found.start(), found.end()), true));
            end = found.end();
        }
        if end != inside.len() {
            parts.push(((end, inside.len()), false));
        }
        Ok(parts)
    }
}

/// The step that cuts a text into pieces.
#[derive(Debug)]
pub(crate) enum PreTokenize {
    Split {
        expression: Expression,
        behavior: SplitDelimiterBehavior,
        invert: bool,
    },
    ByteLevel {
        expression: Expression,
        add_prefix_space: bool,
    },
    Sequence(Vec<Self>),
    /// A step that has no expression of the file.
    Other(PreTokenizerWrapper),
}

impl PreTokenize {
    fn of_step(step: PreTokenizerWrapper) -> Result<Self> {
        Ok(match step {
            PreTokenizerWrapper::Sequence(steps) => {
                Self::Sequence(steps.into_iter().map(Self::of_step).collect::<Result<_>>()?)
            }
            PreTokenizerWrapper::ByteLevel(step) if step.use_regex => {
                let expression = Expression::new(GPT2)?;
                Self::ByteLevel { expression, add_prefix_space: step.add_prefix_space }
            }
            PreTokenizerWrapper::Split(step) => match &step.pattern {
                SplitPattern::Regex(expression) => {
                    let expression = Expression::new(expression)?;
                    Self::Split { expression, behavior: step.behavior, invert: step.invert }
                }
                SplitPattern::String(_) => Self::Other(PreTokenizerWrapper::Split(step)),
            },
            step => Self::Other(step),
        })
    }
}

impl PreTokenizer for PreTokenize {
    fn pre_tokenize(&self, text: &mut PreTokenizedString) -> Result<()> {
        match self {
            Self::Split { expression, behavior, invert: true } => {
                text.split(|_, part| part.split(Invert(expression), *behavior))
            }
            Self::Split { expression, behavior, invert: false } => {
                text.split(|_, part| part.split(expression, *behavior))
            }
            Self::ByteLevel { expression, add_prefix_space } => {
                text.split(|_, mut part| {
                    if *add_prefix_space && !part.get().starts_with(' ') {
                        part.prepend(" ");
                    }
                    part.split(expression, SplitDelimiterBehavior::Isolated)
                })?;
                text.normalize(|part| BytesAsChars::new().normalize(part))
            }
            Self::Sequence(steps) => steps.iter().try_for_each(|step| step.pre_tokenize(text)),
            Self::Other(step) => step.pre_tokenize(text),
        }
    }
}

impl<'de> Deserialize<'de> for PreTokenize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Self::of_step(PreTokenizerWrapper::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The step that normalizes a text.
#[derive(Debug)]
pub(crate) enum Normalize {
    Replace {
        expression: Expression,
        content: String,
    },
    Sequence(Vec<Self>),
    /// A step that has no expression of the file.
    Other(NormalizerWrapper),
}

impl Normalize {
    fn of_step(step: NormalizerWrapper) -> Result<Self> {
        Ok(match step {
            NormalizerWrapper::Sequence(steps) => {
                Self::Sequence(steps.into_iter().map(Self::of_step).collect::<Result<_>>()?)
            }
            NormalizerWrapper::Replace(step) => match expression(&step)? {
                Some(expression) => Self::Replace { expression, content: step.content },
                None => Self::Other(NormalizerWrapper::Replace(step)),
            },
            step => Self::Other(step),
        })
    }

    fn run(&self, text: &mut NormalizedString) -> Result<()> {
        match self {
            Self::Replace { expression, content } => text.replace(expression, content),
            Self::Sequence(steps) => steps.iter().try_for_each(|step| step.run(text)),
            Self::Other(step) => step.normalize(text),
        }
    }
}

/// The regular expression of `step`. Its pattern is private. `None` for a literal text.
fn expression(step: &Replace) -> Result<Option<Expression>> {
    let step: Json = serde_json::to_value(step)?;
    step["pattern"]["Regex"].as_str().map(Expression::new).transpose()
}

impl Normalizer for Normalize {
    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        self.run(text).inspect_err(|error| {
            DROPPED.with_borrow_mut(|dropped| _ = dropped.get_or_insert_with(|| error.to_string()));
        })
    }
}

impl<'de> Deserialize<'de> for Normalize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Self::of_step(NormalizerWrapper::deserialize(from)?).map_err(D::Error::custom)
    }
}
