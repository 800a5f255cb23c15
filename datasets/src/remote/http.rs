//! Plain web servers. The crate `object_store` reads their answers too strictly.

use std::pin::Pin;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use rustls::crypto::{CryptoProvider, ring};

/// Makes ring the TLS provider, unless the program has chosen a provider. The HTTP client has no default.
pub(super) fn choose_tls() {
    if CryptoProvider::get_default().is_none() {
        // This fails if another thread was faster.
        let _ = ring::default_provider().install_default();
    }
}

/// Connects to web servers.
#[derive(Debug, Default)]
pub(super) struct WebServers;

impl HttpConnector for WebServers {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Web(ReqwestConnector::default().connect(options)?)))
    }
}

/// Marks an answer without a stated length. The end of such an answer can still be detected.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithoutLength;

/// A client that requests unencoded bytes and accepts chunked answers.
#[derive(Debug)]
struct Web(HttpClient);

impl HttpService for Web {
    fn call<'s, 'f>(
        &'s self,
        mut request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            if let Ok(as_it_is) = "identity".parse() {
                request.headers_mut().insert("accept-encoding", as_it_is);
            }
            let mut answer = self.0.execute(request).await?;
            state_length(&mut answer);
            Ok(answer)
        })
    }
}

/// Gives a chunked answer the length of its range. The crate refuses answers without a length.
fn state_length(answer: &mut HttpResponse) {
    // Other bodies, and all bodies of HTTP/1.0, end when the connection ends. That may be too early.
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let is_chunked =
        header("transfer-encoding").is_some_and(|coding| coding.to_lowercase().contains("chunked"));
    let is_framed = is_chunked || format!("{:?}", answer.version()).starts_with("HTTP/2");
    if header("content-length").is_some() || !is_framed {
        return;
    }
    let range = header("content-range").and_then(|range| {
        let (start, end) = range.trim().strip_prefix("bytes ")?.split_once('/')?.0.split_once('-')?;
        end.parse::<u64>().ok()?.checked_sub(start.parse().ok()?)?.checked_add(1)
    });
    answer.headers_mut().insert("content-length", range.unwrap_or_default().into());
    if range.is_none() {
        answer.extensions_mut().insert(WithoutLength);
    }
}
