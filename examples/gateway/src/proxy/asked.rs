//! What a client asks for, read and checked before any key is touched.

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Uri,
    header::{AUTHORIZATION, CONTENT_LENGTH},
    uri::PathAndQuery,
};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use tokio::time::{Instant, timeout_at};

use super::{
    headers::{CLASS, SESSION, to_provider},
    refusal::Refusal,
};
use crate::keys::ApiKey;

/// Room for an id of a session.
const LONGEST_SESSION: usize = 256;

/// A request that can be sent any number of times.
#[derive(Debug)]
pub struct Asked {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    /// Keeps to one key.
    pub session: Option<String>,
    /// Goes before lower ones when keys are scarce.
    pub class: u8,
    /// Whether it may be sent again when nobody knows what has become of it: RFC 9110, section 9.2.2, or because the client says
    /// that the provider will notice.
    pub is_repeatable: bool,
}

impl Asked {
    /// Reads a request to be sent to `provider`, its body up to `limit` bytes, until `deadline` at most.
    ///
    /// # Errors
    /// What the client is told instead.
    pub async fn read(
        request: Request<Body>,
        provider: &Uri,
        limit: usize,
        deadline: Instant,
    ) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().filter(|target| target.as_str().starts_with('/'));
        let target = target.ok_or(Refusal::Malformed("the target must be a path"))?;
        let uri = address(provider, target)?;
        let session = session(&parts.headers)?;
        let class = class(&parts.headers)?;
        let is_repeatable = parts.method.is_idempotent() || parts.headers.contains_key("idempotency-key");
        if is_longer(&parts.headers, limit) {
            return Err(Refusal::TooLarge { limit });
        }
        let body = match timeout_at(deadline, Limited::new(body, limit).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(Refusal::TooLarge { limit }),
            Ok(Err(_)) => return Err(Refusal::Malformed("the body broke off")),
            Err(_) => return Err(Refusal::TooSlow),
        };
        let headers = to_provider(parts.headers);
        Ok(Asked { method: parts.method, uri, headers, body, session, class, is_repeatable })
    }

    /// The request as it is sent with a key.
    pub fn with_key(&self, key: &ApiKey) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(AUTHORIZATION, key.authorization.clone());
        request
    }
}

/// The target below the provider's base. A base and a path always make an address, unless it is too long for one.
fn address(provider: &Uri, target: &PathAndQuery) -> Result<Uri, Refusal> {
    let mut parts = provider.clone().into_parts();
    let path = format!("{}{target}", provider.path().trim_end_matches('/'));
    parts.path_and_query = Some(PathAndQuery::try_from(path).map_err(|_| Refusal::TargetTooLong)?);
    Uri::from_parts(parts).map_err(|_| Refusal::TargetTooLong)
}

/// Told before a byte is read: the client need not send it.
fn is_longer(headers: &HeaderMap, limit: usize) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length > limit as u64)
}

/// The session that the header fields name.
///
/// # Errors
/// If it is no sensible one.
pub fn session(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(session) = headers.get(SESSION) else { return Ok(None) };
    match session.to_str() {
        Ok(session) if (1..=LONGEST_SESSION).contains(&session.len()) => Ok(Some(session.to_owned())),
        _ => Err(Refusal::Malformed("x-leasehold-session: 1 to 256 visible characters are allowed")),
    }
}

fn class(headers: &HeaderMap) -> Result<u8, Refusal> {
    let Some(class) = headers.get(CLASS) else { return Ok(0) };
    let class = class.to_str().ok().and_then(|class| class.parse().ok());
    class.ok_or(Refusal::Malformed("x-leasehold-class: allowed are 0 to 255"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(request: http::request::Builder, body: &'static str) -> Result<Asked, Refusal> {
        let request = request.body(Body::from(body)).expect("well formed");
        let provider = Uri::from_static("http://provider/base/");
        Asked::read(request, &provider, 8, Instant::now() + std::time::Duration::from_secs(5)).await
    }

    #[tokio::test]
    async fn bounds() {
        let post = || Request::post("/v1/chat?x=1");
        let asked =
            read(post().header(CLASS, "7").header(SESSION, "s"), "12345678").await.expect("in bounds");
        assert_eq!((asked.class, asked.session.as_deref(), asked.is_repeatable), (7, Some("s"), false));
        assert_eq!(read(post(), "123456789").await.unwrap_err(), Refusal::TooLarge { limit: 8 });
        let long = read(post().header(CONTENT_LENGTH, "99999999999999999999"), "1").await;
        assert!(long.is_ok(), "a length that is none is the server's to refuse");
        for class in ["256", "-1", "high", ""] {
            let refusal = read(post().header(CLASS, class), "").await.unwrap_err();
            assert_eq!(refusal, Refusal::Malformed("x-leasehold-class: allowed are 0 to 255"));
        }
        for session in ["", &"s".repeat(257)] {
            assert!(matches!(read(post().header(SESSION, session), "").await, Err(Refusal::Malformed(_))));
        }
        let no_path = Request::options("*");
        assert!(matches!(read(no_path, "").await, Err(Refusal::Malformed(_))));
    }

    #[test]
    fn addresses() {
        let at = |provider, target| {
            let target = PathAndQuery::try_from(target).expect("a path");
            address(&Uri::from_static(provider), &target).map(|uri| uri.to_string())
        };
        let base = "http://provider:81/base/";
        assert_eq!(at("http://provider:81", "/v1?x").as_deref(), Ok("http://provider:81/v1?x"));
        assert_eq!(at(base, "/v1?x").as_deref(), Ok("http://provider:81/base/v1?x"));
        assert_eq!(at(base, "//other/v1").as_deref(), Ok("http://provider:81/base//other/v1"));
        // The longest that `http` takes is 65,534 bytes.
        assert_eq!(at(base, &*format!("/{}", "x".repeat(65_530))), Err(Refusal::TargetTooLong));
    }

    #[tokio::test]
    async fn what_may_be_repeated() {
        assert!(read(Request::get("/"), "").await.expect("sound").is_repeatable);
        assert!(!read(Request::post("/"), "").await.expect("sound").is_repeatable);
        let named = Request::post("/").header("idempotency-key", "1");
        assert!(read(named, "").await.expect("sound").is_repeatable);
    }
}
