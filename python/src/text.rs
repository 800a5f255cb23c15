//! Texts for training: windows of token ids, documents packed into windows, and documents without padding.

use std::sync::Arc;

use feedline::dataset::{
    Cost, Element, Long, Packed, PackedBuilder, PackedSource, PackedSourceBuilder, Unpadded,
};
use feedline::{DType, Dataset, Error, ErrorKind, Spec};
use feedline_core::Values;
use feedline_datasets::{
    Bounded, ChatOptions, ChatTemplate, Chats, Learn, Remote, TokenOptions, Tokens,
    open_chats as open_table_of_chats,
};
use pyo3::prelude::*;

use crate::dataset::{DataSet, detached};
use crate::error::raise;
use crate::opening::Opening;
use crate::own::dtype_named;
use crate::source::AnySource;

/// Streams of token ids, from `_tokens.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Streams {
    /// The files, with their weights.
    files: Vec<(String, f64)>,
    /// The number of tokens of a window.
    window: usize,
    dtype: Option<String>,
    stride: Option<usize>,
    separator: Option<u32>,
    skip_short: bool,
    memory_limit: Option<u64>,
}

/// Opens windows of streams of token ids.
#[pyfunction]
pub(crate) fn open_tokens(py: Python<'_>, streams: Streams) -> PyResult<DataSet> {
    let Streams { files, window, dtype, stride, separator, skip_short, memory_limit } = streams;
    let dtype = dtype.as_deref().map(dtype_named).transpose().map_err(raise)?;
    let stated = TokenOptions::stated(window);
    let (stride, limit) = (stride.unwrap_or(window), memory_limit.unwrap_or(stated.memory_limit));
    let options = TokenOptions { dtype, stride, separator, skip_short, memory_limit: limit, ..stated };
    detached(py, || {
        let tokens = match files.iter().any(|(file, _)| file.contains("://")) {
            true => Tokens::open_remote(&Remote::new(Default::default())?, &files, options)?,
            false => Tokens::open(&files, options)?,
        };
        let fate = Some(tokens.left_out().to_string());
        Ok(DataSet { fate, ..DataSet::new("tokens", tokens) })
    })
}

/// An element of the padding.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) enum Fill {
    Whole(i64),
    Number(f64),
}

/// The options for packing documents into windows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Packing {
    fields: Vec<String>,
    /// The number of items of a window.
    window: usize,
    /// The field of labels, and whether it is made from the ids.
    labels: Option<(String, bool)>,
    pad: Vec<(String, Fill)>,
    in_order: bool,
    within: Option<usize>,
    long: String,
    shuffle: Option<u64>,
    padded: bool,
}

/// Packs the documents of `data` into windows of one size.
#[pyfunction]
pub(crate) fn packed(py: Python<'_>, data: &DataSet, packing: Packing) -> PyResult<DataSet> {
    data.check_decoded("packed")?;
    detached(py, || {
        let Packing { fields, window, labels, pad, in_order, within, long, shuffle, padded } = packing;
        let first = fields.first().map(String::as_str).unwrap_or_default();
        if let Some((sample, bad)) = &data.bad {
            let why = format!(
                "{bad}; windows have no substitutes, so leave them out: \
                 data.subset(np.flatnonzero(data.lengths(\"{first}\")))"
            );
            let error = Error::new(ErrorKind::Sample, why).at_sample(*sample);
            return Err(data.set.path(*sample).map_or(error.clone(), |path| error.at_path(path)));
        }
        let given = labels.as_ref().filter(|(_, is_made)| !is_made).map(|(labels, _)| labels.as_str());
        let (lengths, before) = data.lengths_with_labels(first, given)?;
        let mut builder = Packed::builder(data.set.clone(), &lengths, window);
        for field in &fields {
            builder = match pad.iter().find(|(name, _)| name == field) {
                Some((_, fill)) => filled(builder, data.set.spec(), field, *fill)?,
                None => builder.field(field),
            };
        }
        builder = match &labels {
            Some((ids, true)) => builder.labels_of(ids),
            Some((labels, false)) => builder.labels(labels),
            None => builder,
        };
        builder = match (in_order, within) {
            (true, _) => builder.in_order(),
            (false, Some(documents)) => builder.best_fit_within(documents),
            (false, None) => builder,
        };
        builder = builder.long(long_of(&long));
        builder = if padded { builder } else { builder.unpadded() };
        let packed = if let Some(seed) = shuffle { builder.shuffle(seed) } else { builder }.build()?;
        let padding = 100.0 * packed.padding_share();
        let fate = format!("{}; {} windows, {padding:.2} % padding", packed.fate(), packed.len());
        let kept = if long == "cut" { u32::try_from(window).unwrap_or(u32::MAX) } else { u32::MAX };
        let fate = fate + &unlearnt(&lengths, before.as_deref().unwrap_or_default(), kept);
        let costs = [Cost::Items, Cost::Squares].map(|cost| packed.costs(cost));
        Ok(DataSet { fate: Some(fate), costs: Some(costs), ..DataSet::new("packed", packed) })
    })
}

/// How many documents teach nothing, by the tokens of each before the first label, and how many of them only
/// because they are cut to `kept` tokens. Empty if there are none.
fn unlearnt(lengths: &[u32], before: &[u32], kept: u32) -> String {
    let documents = || lengths.iter().zip(before).filter(|(length, before)| **before >= kept.min(**length));
    let cut = documents().filter(|(length, before)| before < length).count();
    match (documents().count(), cut) {
        (0, _) => String::new(),
        (none, 0) => format!("; {none} documents teach nothing: all of their labels are -100"),
        (none, cut) => {
            format!(
                "; {none} documents teach nothing: all of their labels are -100, of {cut} since they are cut"
            )
        }
    }
}

fn long_of(long: &str) -> Long {
    match long {
        "split" => Long::Split,
        "cut" => Long::Cut,
        _ => Long::Refuse,
    }
}

impl Packing {
    /// Packs the documents of a source into windows.
    pub(crate) fn of_source(self, source: AnySource) -> feedline::Result<PackedSource> {
        let Self { fields, window, labels, pad, in_order, within, long, shuffle: _, padded } = self;
        let spec = feedline::source::Source::spec(&source).clone();
        let mut builder = PackedSource::builder(source, window);
        for field in &fields {
            builder = match pad.iter().find(|(name, _)| name == field) {
                Some((_, fill)) => filled(builder, &spec, field, *fill)?,
                None => builder.field(field),
            };
        }
        builder = match &labels {
            Some((ids, true)) => builder.labels_of(ids),
            Some((labels, false)) => builder.labels(labels),
            None => builder,
        };
        builder = if in_order { builder.in_order() } else { builder };
        builder = if let Some(documents) = within { builder.within(documents) } else { builder };
        builder = builder.long(long_of(&long));
        if padded { builder } else { builder.unpadded() }.build()
    }
}

/// A builder of windows.
trait Windows: Sized {
    fn field_filled<T: Element>(self, name: &str, fill: T) -> Self;
}

impl Windows for PackedBuilder {
    fn field_filled<T: Element>(self, name: &str, fill: T) -> Self {
        self.field_filled(name, fill)
    }
}

impl Windows for PackedSourceBuilder {
    fn field_filled<T: Element>(self, name: &str, fill: T) -> Self {
        self.field_filled(name, fill)
    }
}

/// Adds a field with the padding `fill`.
fn filled<B: Windows>(builder: B, spec: &Spec, name: &str, fill: Fill) -> feedline::Result<B> {
    let dtype = spec.fields()[spec.index_of(name)?].dtype();
    let refuse = |shown: String| {
        let why = format!("pad has {shown} for \"{name}\", which is {dtype}: give an element of that type");
        Error::new(ErrorKind::Config, why)
    };
    macro_rules! whole {
        ($type:ty, $number:expr) => {
            builder.field_filled(name, <$type>::try_from($number).map_err(|_| refuse($number.to_string()))?)
        };
    }
    Ok(match (dtype, fill) {
        (DType::U8 | DType::Bool, Fill::Whole(number)) => whole!(u8, number),
        (DType::I8, Fill::Whole(number)) => whole!(i8, number),
        (DType::U16, Fill::Whole(number)) => whole!(u16, number),
        (DType::I16, Fill::Whole(number)) => whole!(i16, number),
        (DType::U32, Fill::Whole(number)) => whole!(u32, number),
        (DType::I32, Fill::Whole(number)) => whole!(i32, number),
        (DType::I64, Fill::Whole(number)) => builder.field_filled(name, number),
        (DType::F32, Fill::Whole(number)) => builder.field_filled(name, number as f32),
        (DType::F64, Fill::Whole(number)) => builder.field_filled(name, number as f64),
        (DType::F32, Fill::Number(number)) => builder.field_filled(name, number as f32),
        (DType::F64, Fill::Number(number)) => builder.field_filled(name, number),
        (_, Fill::Whole(number)) => return Err(refuse(number.to_string())),
        (_, Fill::Number(number)) => return Err(refuse(number.to_string())),
    })
}

/// Concatenates the documents of `data` to one sequence per batch.
#[pyfunction]
#[pyo3(signature = (data, fields, labels))]
pub(crate) fn unpadded(
    py: Python<'_>,
    data: &DataSet,
    fields: Vec<String>,
    labels: Option<(String, bool)>,
) -> PyResult<DataSet> {
    data.check_decoded("unpadded")?;
    detached(py, || {
        let builder = fields.iter().fold(Unpadded::builder(data.set.clone()), |all, field| all.field(field));
        let builder = match &labels {
            Some((ids, true)) => builder.labels_of(ids),
            Some((labels, false)) => builder.labels(labels),
            None => builder,
        };
        // It has the documents as they are.
        let fate = data.fate.clone().filter(|_| data.kind == "chats");
        Ok(DataSet { fate, ..DataSet::new("unpadded", builder.build()?) })
    })
}

/// The options of conversations.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ChatSteps {
    /// The kind: `messages`, `completions`, `preferences` or `prompts`.
    of: String,
    /// The texts before and after an answer. `None` means the template's marks, or all tokens with
    /// `learn_all`.
    between: Option<(String, String)>,
    learn_all: bool,
    template: Option<String>,
    messages: String,
    tools: String,
    variables: String,
    context: Vec<(String, String)>,
    add_generation_prompt: Option<bool>,
    max_tokens: Option<usize>,
    today: Option<String>,
    special_tokens: bool,
}

/// Conversations as token ids and labels.
#[pyfunction]
pub(crate) fn open_chats(
    py: Python<'_>,
    opening: Opening,
    tokenizer: &str,
    steps: ChatSteps,
) -> PyResult<DataSet> {
    let (from, options) = opening.options()?;
    let learn = match (steps.between, steps.learn_all) {
        (Some((start, end)), _) => Learn::Between { start, end },
        (None, true) => Learn::All,
        (None, false) => Learn::Marked,
    };
    let chat = ChatOptions {
        learn,
        template: steps.template,
        messages: steps.messages,
        tools: steps.tools,
        variables: steps.variables,
        context: steps.context,
        add_generation_prompt: steps.add_generation_prompt,
        max_tokens: steps.max_tokens,
        today: steps.today,
        special_tokens: steps.special_tokens,
    };
    detached(py, || {
        let reader = open_table_of_chats(from, &options.open)?;
        let chats = match steps.of.as_str() {
            "completions" => Chats::completions(reader, tokenizer, chat)?,
            "preferences" => Chats::preferences(reader, tokenizer, chat)?,
            "prompts" => Chats::prompts(reader, tokenizer, chat)?,
            _ => Chats::new(reader, tokenizer, chat)?,
        };
        let set = Bounded::measured_with_bad_samples(Arc::new(chats))?;
        let (bad, refused) = (refused(&set), set.bad_samples().len());
        let data = DataSet::ragged("chats", set);
        let fate = data.before_labels.iter().map(|(labels, before)| {
            let lengths = data.lengths_of(labels)?;
            let none =
                lengths.iter().zip(before).filter(|(length, before)| *length == *before).count() - refused;
            let of = labels.strip_suffix(".labels").map(|of| format!(" of {of}")).unwrap_or_default();
            Ok(format!("{none} of {} conversations{of} teach nothing: all labels are -100", before.len()))
        });
        let refused = bad.iter().map(|(_, bad)| Ok(bad.clone()));
        let fate = fate.chain(refused).collect::<feedline::Result<Vec<_>>>()?.join("; ");
        Ok(DataSet { fate: Some(fate).filter(|fate| !fate.is_empty()), bad, ..data })
    })
}

/// The first conversation of `set` that is a bad sample, and in words how many there are and why it is one.
fn refused(set: &Bounded) -> Option<(u64, String)> {
    let first = *set.bad_samples().first()?;
    let error = Values::new().read(set.inner(), first).err()?;
    let (bad, len) = (set.bad_samples().len(), set.len());
    let why = error.message();
    Some((first, format!("{bad} of {len} conversations are bad samples, the first of them {first}: {why}")))
}

/// A conversation in JSON, from `_chats.py`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Chat {
    tokenizer: Option<String>,
    template: Option<String>,
    messages: String,
    tools: String,
    variables: String,
    prompt: bool,
    today: Option<String>,
}

/// The text of a conversation, made by a template or by that of a tokenizer.
#[pyfunction]
pub(crate) fn render_chat(py: Python<'_>, chat: Chat) -> PyResult<String> {
    detached(py, || {
        let template = match (&chat.template, &chat.tokenizer) {
            (Some(template), _) => ChatTemplate::new(template)?,
            (None, Some(tokenizer)) => ChatTemplate::of_tokenizer(tokenizer)?,
            (None, None) => return Err(Error::new(ErrorKind::Config, "give a tokenizer or a template")),
        };
        let template = match &chat.today {
            Some(today) => template.with_today(today)?,
            None => template,
        };
        template.render(&chat.messages, &chat.tools, &chat.variables, chat.prompt)
    })
}
