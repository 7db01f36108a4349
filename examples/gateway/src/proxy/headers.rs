//! Which header fields pass, and which do not.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
    },
};

/// Says which key an id of a session keeps to.
pub const SESSION: HeaderName = HeaderName::from_static("x-leasehold-session");
/// Says how urgent a request is.
pub const CLASS: HeaderName = HeaderName::from_static("x-leasehold-class");
/// Tells which key has answered, if clients are to know.
pub const KEY: HeaderName = HeaderName::from_static("x-leasehold-key");
/// Tells how many keys were tried, if clients are to know.
pub const ATTEMPTS: HeaderName = HeaderName::from_static("x-leasehold-attempts");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Names under which providers take credentials: a client's must not pass beside ours.
const API_KEYS: [HeaderName; 3] = [
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// What concerns one connection only: RFC 9110, section 7.6.1, and what old clients send beside it.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What a client says to the gateway and not to the provider: who it is, above all. The length is that of the buffered body, and
/// the host the provider's.
const FOR_US: [HeaderName; 7] = [AUTHORIZATION, COOKIE, EXPECT, HOST, CONTENT_LENGTH, SESSION, CLASS];

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn pass_on(headers: &mut HeaderMap) {
    headers.append(VIA, HeaderValue::from_static("1.1 leasehold"));
}

/// A client's fields, as the provider gets them, but for the credentials of the key.
pub fn to_provider(mut headers: HeaderMap) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    for name in FOR_US.iter().chain(&API_KEYS) {
        headers.remove(name);
    }
    pass_on(&mut headers);
    headers
}

/// The provider's fields, as a client gets them. What the gateway says of itself nobody else says.
pub fn to_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in [KEY, ATTEMPTS] {
        headers.remove(name);
    }
    pass_on(headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_concerns_one_connection_does_not_pass() {
        let passed = to_provider(headers(&[
            ("connection", "close, X-Mine"),
            ("connection", "x-other"),
            ("x-mine", "1"),
            ("x-other", "1"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("accept", "text/event-stream"),
            ("x-request-id", "7"),
        ]));
        let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "via", "x-request-id"]);
    }

    #[test]
    fn who_the_client_is_does_not_pass() {
        let passed = to_provider(headers(&[
            ("authorization", "Bearer of-the-client"),
            ("x-api-key", "of-the-client"),
            ("api-key", "of-the-client"),
            ("x-goog-api-key", "of-the-client"),
            ("cookie", "of-the-client"),
            ("proxy-authorization", "of-the-client"),
            ("x-leasehold-session", "7"),
        ]));
        assert_eq!(passed.keys().collect::<Vec<_>>(), [&VIA]);
    }

    #[test]
    fn a_provider_does_not_speak_for_the_gateway() {
        let mut passed =
            headers(&[("x-leasehold-key", "mine"), ("x-leasehold-attempts", "9"), ("etag", "1")]);
        to_client(&mut passed);
        let names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["etag", "via"]);
    }

    #[test]
    fn a_connection_field_cannot_bring_the_length_back() {
        let mut passed =
            headers(&[("connection", "content-length"), ("content-length", "5"), ("via", "1.0 a")]);
        to_client(&mut passed);
        assert_eq!(passed.get_all(VIA).iter().collect::<Vec<_>>(), ["1.0 a", "1.1 leasehold"]);
        assert!(!passed.contains_key(CONTENT_LENGTH));
    }
}
