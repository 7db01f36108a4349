//! HTTP, as a client does it.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use super::LoadError;
use crate::mock::Counts;

/// A client with connections of its own.
#[derive(Clone, Debug)]
pub struct Caller(Client<HttpConnector, Full<Bytes>>);

impl Default for Caller {
    fn default() -> Self {
        Self::new()
    }
}

impl Caller {
    /// It has no connection yet.
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let mut client = Client::builder(TokioExecutor::new());
        // Before the server closes what is idle, or a request might be sent just then.
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(15));
        Caller(client.build(connector))
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Nobody is there, or the connection broke before the answer.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.0.request(request).await
    }

    /// The text at a path.
    ///
    /// # Errors
    /// No answer, or not 200.
    pub async fn text(&self, base: &Uri, path: &str) -> Result<String, LoadError> {
        let request = Request::get(at(base, path)?).body(Full::default())?;
        let answer = self.send(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status != http::StatusCode::OK {
            return Err(format!("{base}{path} answers {status}").into());
        }
        Ok(String::from_utf8(body.to_vec())?)
    }

    /// What the mock provider has counted.
    ///
    /// # Errors
    /// As for a text.
    pub async fn counts(&self, mock: &Uri) -> Result<Counts, LoadError> {
        Ok(serde_json::from_str(&self.text(mock, "/mock/counts").await?)?)
    }
}

/// A path at an address.
///
/// # Errors
/// The two make no address.
pub fn at(base: &Uri, path: &str) -> Result<Uri, http::Error> {
    let authority = base.authority().map_or("", |authority| authority.as_str());
    Uri::builder().scheme("http").authority(authority).path_and_query(path).build()
}
