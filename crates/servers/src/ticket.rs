//! The ticket of a batch: the data that a server must have, and the samples to decode.
//!
//! A ticket names samples, not steps, so a server knows neither sampler nor world nor batch size: the order
//! is the trainer's alone. It never names a path. The samples of a source come with their records, which the
//! trainer has read.

use bytes::Bytes;
use feedline::dataset::Field;
use feedline::filler::{DataDescription, FillRequest};
use feedline::{Error, ErrorKind, Result, Spec};
use serde::{Deserialize, Serialize};

/// The version of tickets and of the messages that answer them.
pub const VERSION: u32 = 3;

/// A request for the samples [`ids`](Self::ids), as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    /// The data that the server must have.
    pub data: Data,
    /// The seed of the random numbers of transforms.
    #[serde(default)]
    pub seed: u64,
    /// The epoch, which keys the random numbers too.
    #[serde(default)]
    pub epoch: u64,
    /// The samples, in the order of the rows. Without samples the answer is the schema alone.
    pub ids: Vec<u64>,
    /// The draw of each sample, which keys its random numbers with the seed and the epoch: its position in
    /// the trainer's epoch. Without draws, each sample's draw is its number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draws: Vec<u64>,
}

/// The facts on which both sides must agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// The version of the ticket: [`VERSION`].
    pub version: u32,
    /// The version of feedline, whose decoders may change the bytes of a picture.
    pub feedline: String,
    /// The version of the transforms and the tokenizer, as both sides state it.
    pub transforms: String,
    /// Whether the data is a source, whose records come with the ticket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_source: bool,
    /// Number of samples of the set; of a source, of shards.
    pub samples: u64,
    /// The fields of a sample.
    pub fields: Vec<FieldOf>,
    /// The fingerprint of the set, in hexadecimal.
    pub fingerprint: String,
    /// How a server makes the set of its files.
    #[serde(default, skip_serializing_if = "Form::is_stored")]
    pub form: Form,
}

/// How a server makes a data set from its files. A set that is made by a program has no form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Form {
    /// Every field as it is stored: `Bounded` with the limits of the fields.
    #[default]
    Stored,
    /// The training set of the example trainer: pictures decoded and scaled, and their classes.
    Labelled {
        /// The field of the images; without a name, it is recognized by its content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// The field of the classes; without a name, it is recognized by its content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// Number of classes.
        classes: usize,
    },
}

impl Form {
    fn is_stored(&self) -> bool {
        *self == Self::Stored
    }
}

/// A field of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldOf {
    /// The name.
    pub name: String,
    /// The type of an element, such as `u8`.
    pub dtype: String,
    /// The shape of a sample; for a ragged field, of an item.
    pub shape: Vec<usize>,
    /// Max items of a sample, for a ragged field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<usize>,
}

impl FieldOf {
    /// The fields of `spec`.
    pub fn of_spec(spec: &Spec) -> Vec<Self> {
        let of = |field: &Field| Self {
            name: field.name().to_owned(),
            dtype: field.dtype().name().to_owned(),
            shape: field.shape().to_vec(),
            max: field.as_ragged().map(|ragged| ragged.max_per_sample()),
        };
        spec.fields().iter().map(of).collect()
    }
}

impl std::fmt::Display for FieldOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.dtype, self.shape)?;
        self.max.map_or(Ok(()), |max| write!(f, " up to {max}"))
    }
}

impl Data {
    /// The description of a set.
    pub fn new(spec: &Spec, samples: u64, fingerprint: u64, transforms: &str) -> Self {
        Self {
            version: VERSION,
            feedline: env!("CARGO_PKG_VERSION").to_owned(),
            transforms: transforms.to_owned(),
            is_source: false,
            samples,
            fields: FieldOf::of_spec(spec),
            fingerprint: format!("{fingerprint:#018x}"),
            form: Form::Stored,
        }
    }

    /// Compares the data of a ticket with `own`, the server's data.
    ///
    /// # Errors
    /// `Config` for the first difference, with both sides.
    pub fn check(&self, own: &Self) -> Result<()> {
        let kind = |data: &Self| if data.is_source { "a source" } else { "a data set" };
        let fields = |data: &Self| data.fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let differences = [
            (
                "version of the tickets",
                self.version.to_string(),
                own.version.to_string(),
                "update the older one",
            ),
            ("version of feedline", self.feedline.clone(), own.feedline.clone(), "update the older one"),
            (
                "version of the transforms",
                format!("{:?}", self.transforms),
                format!("{:?}", own.transforms),
                "start both with the same --transforms",
            ),
            (
                "kind of data",
                kind(self).to_owned(),
                kind(own).to_owned(),
                "serve the source, or the data set, that the trainer reads",
            ),
            ("number of samples", self.samples.to_string(), own.samples.to_string(), "open the same data"),
            ("fields", fields(self), fields(own), "open the data in the same form"),
            ("fingerprint", self.fingerprint.clone(), own.fingerprint.clone(), "open the same data"),
        ];
        for (what, asked, here, remedy) in differences {
            if asked != here {
                let why = format!("another {what}: the trainer has {asked}, the server {here}; {remedy}");
                return Err(Error::new(ErrorKind::Config, why));
            }
        }
        Ok(())
    }
}

impl Ticket {
    /// The ticket of a loader's batch.
    pub fn of_request(request: &FillRequest<'_>, transforms: &str, form: &Form) -> Self {
        let data = Self::probe(&request.data, transforms, form).data;
        Self {
            data,
            seed: request.data.seed,
            epoch: request.epoch(),
            ids: request.ids().to_vec(),
            draws: request.draws.to_vec(),
        }
    }

    /// A ticket without samples, whose answer says whether the server has this data.
    pub fn probe(description: &DataDescription<'_>, transforms: &str, form: &Form) -> Self {
        let DataDescription { spec, samples, fingerprint, .. } = *description;
        let data = Data::new(spec, samples, fingerprint, transforms);
        let data = Data { form: form.clone(), is_source: description.is_source, ..data };
        Self { data, seed: 0, epoch: 0, ids: Vec::new(), draws: Vec::new() }
    }

    /// The JSON text.
    pub fn to_json(&self) -> Vec<u8> {
        // Cannot fail: the maps have keys of text.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The JSON text in one line, then the records of a source. Before each record is its length in four
    /// bytes, little-endian.
    pub fn with_records(&self, records: Option<&[Vec<u8>]>) -> Vec<u8> {
        let mut bytes = self.to_json();
        if let Some(records) = records {
            bytes.reserve(1 + records.iter().map(|record| 4 + record.len()).sum::<usize>());
            bytes.push(b'\n');
            for record in records {
                bytes.extend((record.len() as u32).to_le_bytes());
                bytes.extend(record);
            }
        }
        bytes
    }

    /// Parses the bytes that [`with_records`](Self::with_records) has written. Does not copy the records.
    ///
    /// # Errors
    /// `Data` for other bytes.
    pub fn parse_with_records(bytes: &Bytes) -> Result<(Self, Option<Vec<Bytes>>)> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            return Ok((Self::parse(bytes)?, None));
        };
        let (ticket, mut rest) = (Self::parse(&bytes[..end])?, bytes.slice(end + 1..));
        let mut records = Vec::with_capacity(ticket.ids.len());
        while let Some(len) = rest.first_chunk().map(|len| u32::from_le_bytes(*len) as usize) {
            let _ = rest.split_to(4);
            if len > rest.len() {
                break;
            }
            records.push(rest.split_to(len));
        }
        if !rest.is_empty() || records.len() != ticket.ids.len() {
            let why = "the ticket has other records than samples, or one is cut";
            return Err(Error::new(ErrorKind::Data, why));
        }
        Ok((ticket, Some(records)))
    }

    /// Parses the JSON text.
    ///
    /// # Errors
    /// `Data` for another text.
    pub fn parse(json: &[u8]) -> Result<Self> {
        let refuse = |why: String| {
            Error::new(ErrorKind::Data, format!("this is not a ticket of version {VERSION}: {why}"))
        };
        let ticket: Self = serde_json::from_slice(json).map_err(|error| refuse(error.to_string()))?;
        if ticket.draws.is_empty() || ticket.draws.len() == ticket.ids.len() {
            return Ok(ticket);
        }
        Err(refuse(format!("it has {} samples and {} draws", ticket.ids.len(), ticket.draws.len())))
    }
}

#[cfg(test)]
mod tests {
    use feedline::DType;

    use super::*;

    #[test]
    fn the_first_difference_is_an_error_that_names_both_sides() {
        let spec = Spec::new().field("x", DType::U8, [2]).unwrap().ragged("y", DType::I64, [], 7).unwrap();
        let own = Data::new(&spec, 10, 0xAB, "v1");
        assert!(own.check(&own).is_ok());
        let said = |asked: Data| asked.check(&own).unwrap_err().to_string();
        let cases = [
            (Data { version: 9, ..own.clone() }, ["trainer has 9", "server 3"]),
            (Data { feedline: "0.0.1".into(), ..own.clone() }, ["trainer has 0.0.1", "server 0.1.0"]),
            (Data { transforms: "v2".into(), ..own.clone() }, ["trainer has \"v2\"", "server \"v1\""]),
            (Data { is_source: true, ..own.clone() }, ["trainer has a source", "server a data set"]),
            (Data { samples: 11, ..own.clone() }, ["trainer has 11", "server 10"]),
            (Data { fields: own.fields[..1].to_vec(), ..own.clone() }, ["has x u8 [2],", "y i64 [] up to 7"]),
            (Data { fingerprint: "0xcd".into(), ..own.clone() }, ["has 0xcd", "server 0x00000000000000ab"]),
        ];
        for (asked, parts) in cases {
            let said = said(asked);
            assert!(parts.iter().all(|part| said.contains(part)) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_ticket_survives_its_json_and_no_other_text_is_one() {
        let spec = Spec::new().field("x", DType::F32, []).unwrap();
        let data = Data::new(&spec, 3, 1, "");
        let ticket = Ticket { data, seed: u64::MAX, epoch: 4, ids: vec![2, u64::MAX], draws: vec![7, 0] };
        assert_eq!(Ticket::parse(&ticket.to_json()).unwrap(), ticket);
        let uneven = Ticket { draws: vec![7], ..ticket.clone() };
        let said = Ticket::parse(&uneven.to_json()).unwrap_err().to_string();
        assert!(said.contains("it has 2 samples and 1 draws"), "{said}");
        for text in ["", "{}", "{\"ids\":[1]}", "[]", "null"] {
            let error = Ticket::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("not a ticket"), "{text}: {error}");
        }
        let records = [vec![], vec![b'\n'; 300]];
        let bytes = Bytes::from(ticket.with_records(Some(&records)));
        let (parsed, read) = Ticket::parse_with_records(&bytes).unwrap();
        assert_eq!((parsed, read.unwrap()), (ticket.clone(), records.map(Bytes::from).to_vec()));
        assert_eq!(Ticket::parse_with_records(&ticket.to_json().into()).unwrap(), (ticket.clone(), None));
        for end in 0..bytes.len() {
            let (is_json, parsed) =
                (end == ticket.to_json().len(), Ticket::parse_with_records(&bytes.slice(..end)));
            assert_eq!(parsed.is_ok(), is_json, "cut at {end}");
        }
        let more = [&bytes[..], &[0; 4]].concat();
        assert!(Ticket::parse_with_records(&more.into()).is_err(), "a record without a sample");
        let mut more: serde_json::Value = serde_json::from_slice(&ticket.to_json()).unwrap();
        more["path"] = "/etc/passwd".into();
        assert!(Ticket::parse(more.to_string().as_bytes()).is_err(), "a ticket has no path");
    }
}
