//! Objects that are read whole, because their server does not support ranges.

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{Attribute, Attributes, GetOptions};

use super::fetch::{Failure, failure, retried};
use super::http::WithoutLength;
use super::tag::Tag;
use super::url::Place;
use super::{Counts, RemoteOptions};

/// Fetches the object at `place` in one answer of up to `options.whole_bytes`. Returns its bytes and its
/// version.
pub(super) async fn whole(
    place: &Place,
    options: &RemoteOptions,
    counts: &Counts,
) -> Result<(Bytes, Tag), Failure> {
    let what = ("fetch the object as a whole", 0);
    let fetched = retried(place, options, counts, what, || once(place, options.whole_bytes)).await?;
    counts.bytes.fetch_add(fetched.0.len() as u64, std::sync::atomic::Ordering::Relaxed);
    Ok(fetched)
}

async fn once(place: &Place, max: u64) -> Result<(Bytes, Tag), Failure> {
    let answer = place.store.get_opts(&place.path, GetOptions::default()).await;
    let answer = answer.map_err(|error| failure(&error))?;
    check_encoding(&answer.attributes)?;
    let is_page = answer.attributes.get(&Attribute::ContentType).is_some_and(|kind| is_html(kind));
    let name = place.path.filename().unwrap_or_default().to_lowercase();
    if is_page && !name.ends_with(".html") && !name.ends_with(".htm") {
        return Err(Failure::lasting(PAGE));
    }
    let mut tag = Tag::of_meta(&answer.meta);
    let is_stated = answer.extensions.get::<WithoutLength>().is_none();
    let too_large = |found: &str| {
        Failure::lasting(format!(
            "the server does not answer requests for a range of bytes, and the object has {found} bytes, \
             more than the {max} that are read whole: download the file"
        ))
    };
    if is_stated && tag.len > max {
        return Err(too_large(&tag.len.to_string()));
    }
    let expected = if is_stated { tag.len } else { max };
    let mut bytes = Vec::new();
    let mut body = answer.into_stream();
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| failure(&error))?;
        if (bytes.len() + part.len()) as u64 > expected {
            return Err(if is_stated {
                Failure::passing(format!("the answer is longer than its {expected} bytes"))
            } else {
                too_large("yet more")
            });
        }
        bytes.extend_from_slice(&part);
    }
    if is_stated && bytes.len() as u64 != expected {
        let why = format!("the answer ends after {} of its {expected} bytes", bytes.len());
        return Err(Failure::passing(why));
    }
    tag.len = bytes.len() as u64;
    Ok((bytes.into(), tag))
}

/// Refuses a body that is not the object's own bytes. Gzip is recognised by its bytes, and inflated.
pub(super) fn check_encoding(attributes: &Attributes) -> Result<(), Failure> {
    let Some(encoding) = attributes.get(&Attribute::ContentEncoding) else { return Ok(()) };
    let codings = encoding.split(',').map(|coding| coding.trim().to_lowercase());
    match codings
        .into_iter()
        .find(|coding| ["br", "zstd", "deflate", "compress", "x-compress"].contains(&&**coding))
    {
        Some(coding) => Err(Failure::lasting(format!(
            "the server sends the object compressed (Content-Encoding: {coding}): turn that off for this \
             file, or download it"
        ))),
        None => Ok(()),
    }
}

fn is_html(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|html| html.eq_ignore_ascii_case(kind))
}

/// The error for a web page instead of the object. It is the page of a folder, an error or a login.
pub(super) const PAGE: &str =
    "the server answers with a web page in place of a file: check the URL, and whether it needs a login";
