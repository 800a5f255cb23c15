//! URLs and their stores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use feedline_core::{Error, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::http::{WebServers, choose_tls};
use super::{RemoteOptions, config};
use crate::open::{SCHEMES, is_bucket, is_url, split_query};

/// The URL of the object `name` in a folder. `url` names the folder or its `index`.
pub(crate) fn in_folder(url: &str, index: &str, name: &str) -> String {
    // Keep the query. A signature is valid for one object only, but a token is valid for all objects of the
    // store.
    let (bare, query) = split_query(url);
    let folder = bare.strip_suffix(index).unwrap_or(bare).trim_end_matches('/');
    // Names are not percent-encoded yet. The URLs of buckets have their keys as they are.
    let name: String = if is_bucket(url) { name.to_owned() } else { name.bytes().map(escaped).collect() };
    format!("{folder}/{name}{query}")
}

/// The key in the URL of a bucket.
fn key_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split_once('/').map(|(_, key)| key)
}

/// A byte of a path, percent-encoded if necessary.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).into(),
        _ => format!("%{byte:02X}"),
    }
}

/// Store and path of an object.
pub(super) struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    /// The URL without query, user and password: these may be secret.
    pub(super) shown: String,
}

impl Place {
    /// The host, or the bucket.
    pub(super) fn host(&self) -> &str {
        self.shown.split('/').nth(2).unwrap_or(&self.shown)
    }
}

/// The open stores. Each store keeps its connections.
pub(super) struct Stores {
    /// The stores by scheme, host and query.
    stores: HashMap<String, Arc<dyn ObjectStore>>,
    options: Vec<(String, String)>,
    request_time: Duration,
}

impl Stores {
    pub(super) fn new(options: &RemoteOptions) -> Self {
        let (options, request_time) = (options.store.clone(), options.request_time);
        Self { stores: HashMap::new(), options, request_time }
    }

    /// The place of the object at `text`.
    pub(super) fn place(&mut self, text: &str) -> Result<Place> {
        // The key of a bucket is no part of a URL: nothing in it is escaped.
        let (bare, query) = split_query(text);
        let key = is_bucket(text).then(|| key_of(bare)).flatten();
        let whole = key.map_or(text.to_owned(), |key| format!("{}{query}", &bare[..bare.len() - key.len()]));
        // No error shows the given URL: it may hold a password.
        let url = Url::parse(&whole).map_err(|error| config("this is not a URL").with_source(error))?;
        let mut shown = url.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        // In an Azure URL, the account in the host name is not a secret.
        if url.scheme().starts_with("http") {
            let cleared = shown.set_username("").and_then(|()| shown.set_password(None));
            cleared.map_err(|()| config("the URL has no host"))?;
        }
        let _ = shown.set_password(None);
        if !is_url(text) {
            return Err(config(format!("not a URL of a store: use {}", SCHEMES.join("://, ") + "://")));
        }
        let shown = format!("{shown}{}", key.unwrap_or_default());
        let at = |error: Error| error.at_path(&shown);
        let path = match key {
            Some(key) => Path::parse(key).map_err(|_| {
                at(config(
                    "a key with an empty part, with a part . or .., or with a control character is not read",
                ))
            })?,
            // The store would ask for a path of more parts.
            None if url.path().to_ascii_uppercase().contains("%2F") => {
                return Err(at(config("the path of the URL has an escaped slash, %2F, which is not read")));
            }
            None => Path::from_url_path(url.path())
                .map_err(|_| at(config("the path of the URL cannot be read: check its escapes")))?,
        };
        if url.host_str().is_none_or(str::is_empty) || path.parts().next().is_none() {
            return Err(at(config("the URL names no object: give SCHEME://HOST/PATH or s3://BUCKET/KEY")));
        }
        let mut base = url.clone();
        base.set_fragment(None);
        base.set_path("/");
        let store = match self.stores.get(base.as_str()) {
            Some(store) => store.clone(),
            None => {
                let store = self.store(&base).map_err(at)?;
                self.stores.insert(base.into(), store.clone());
                store
            }
        };
        Ok(Place { store, path, shown })
    }

    fn store(&self, base: &Url) -> Result<Arc<dyn ObjectStore>> {
        choose_tls();
        // The store does not retry: `fetch` retries.
        let once = RetryConfig { max_retries: 0, retry_timeout: self.request_time, ..Default::default() };
        let limits = [
            (ClientConfigKey::Timeout, format!("{}ms", self.request_time.as_millis().max(1))),
            (ClientConfigKey::ConnectTimeout, format!("{}ms", self.request_time.as_millis().max(1))),
        ];
        // Leave out the cause: it may contain the value of an option.
        let failed = |error: object_store::Error| {
            config(if lacks_certificates(&error) {
                "the store cannot be opened: this machine has no certificates of authorities: install the \
                 package ca-certificates, or name a file of them in SSL_CERT_FILE"
            } else {
                "the store cannot be opened: check the options of the store and the environment's"
            })
        };
        macro_rules! cloud {
            ($builder:ty, $key:ty) => {{
                let mut builder = <$builder>::from_env().with_url(base.as_str()).with_retry(once);
                for (key, value) in limits {
                    builder = builder.with_config(<$key>::Client(key), value);
                }
                for (name, value) in &self.options {
                    let key: $key = name.to_ascii_lowercase().parse().map_err(|_| unknown(name))?;
                    builder = builder.with_config(key, value);
                }
                Ok(Arc::new(builder.build().map_err(failed)?))
            }};
        }
        match base.scheme() {
            "s3" | "s3a" => cloud!(AmazonS3Builder, AmazonS3ConfigKey),
            "gs" => cloud!(GoogleCloudStorageBuilder, GoogleConfigKey),
            "az" | "azure" | "abfs" | "abfss" => cloud!(MicrosoftAzureBuilder, AzureConfigKey),
            // The scheme is http or https.
            _ => {
                let mut builder = HttpBuilder::new().with_url(base.as_str()).with_retry(once);
                builder = builder.with_http_connector(WebServers);
                for (key, value) in limits {
                    builder = builder.with_config(key, value);
                }
                let plain = (base.scheme() == "http").to_string();
                builder = builder.with_config(ClientConfigKey::AllowHttp, plain);
                for (name, value) in &self.options {
                    let key: ClientConfigKey =
                        name.to_ascii_lowercase().parse().map_err(|_| unknown(name))?;
                    builder = builder.with_config(key, value);
                }
                Ok(Arc::new(builder.build().map_err(failed)?))
            }
        }
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stores({})", self.stores.len())
    }
}

/// Tells whether a client could not be made because the system has no certificates, as in a container without
/// the package `ca-certificates`. rustls-platform-verifier says so in words only.
fn lacks_certificates(error: &object_store::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.to_string().contains("No CA certificates were loaded") {
            return true;
        }
        cause = error.source();
    }
    false
}

fn unknown(name: &str) -> Error {
    config(format!("\"{}\" is not an option of this store", crate::error::one_line(name)))
}
