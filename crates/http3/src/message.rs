//! Checks for malformed requests and responses (RFC 9114 s.4.1.2) that `h3` does not make.
//!
//! The checks in this file need only the message that `h3` returns. `binding/fields.rs` makes the
//! other checks, before `h3` reads the message.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};

use crate::binding::Violation;

/// Header fields that describe an HTTP/1 connection. HTTP/3 does not permit them (RFC 9114 s.4.2).
// RFC 9114 s.4.1 #5, s.4.2 #3
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Removes fields that describe an HTTP/1 connection from a message that a service has written.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    for field in OF_CONNECTIONS {
        headers.remove(field);
    }
}

/// Checks header fields.
pub(crate) fn check_fields(headers: &HeaderMap) -> Result<(), Violation> {
    headers.iter().try_for_each(|(name, value)| check_field(name, value))
}

/// Checks a field of a header or trailer section.
pub(crate) fn check_field(name: &HeaderName, value: &HeaderValue) -> Result<(), Violation> {
    if OF_CONNECTIONS.contains(&name.as_str()) {
        return Err(Violation::ConnectionField);
    }
    // RFC 9114 s.4.2 #4: TE may only have the value "trailers".
    if *name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
        return Err(Violation::TeField);
    }
    Ok(())
}

/// Checks an interim response.
pub(crate) fn check_interim(response: &Response<()>) -> Result<(), Violation> {
    // RFC 9114 s.4.5: HTTP/3 does not permit status 101.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Violation::SwitchingProtocols);
    }
    // RFC 9110 s.8.6: an interim response has no Content-Length.
    if response.headers().contains_key(header::CONTENT_LENGTH) {
        return Err(Violation::InterimContentLength);
    }
    check_fields(response.headers())
}

/// Checks a request.
pub(crate) fn check_request(request: &Request<()>) -> Result<(), Violation> {
    check_fields(request.headers())?;
    let uri: &Uri = request.uri();
    let (has_scheme, has_path) = (uri.scheme().is_some(), !uri.path().is_empty());
    // RFC 9110 s.7.2: a second Host field is an error. `h3` looks only at the first one.
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        return Err(Violation::MultipleHosts);
    }
    // RFC 9114 s.4.3.1: the authority must not contain user information. `h3` takes the authority
    // from :authority or, if that is missing, from Host.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(Violation::UserInformation);
    }
    match *request.method() {
        // RFC 9114 s.4.4: a CONNECT request has no scheme.
        Method::CONNECT if has_scheme => Err(Violation::ConnectWithScheme),
        Method::CONNECT if uri.port_u16().is_none() => Err(Violation::ConnectWithoutPort),
        Method::CONNECT => Ok(()),
        // RFC 9114 s.4.3.1: all other requests have a scheme and a path.
        _ if !has_scheme || !has_path => Err(Violation::MissingSchemeOrPath),
        _ => check_path(request.method(), uri),
    }
}

/// Checks the path and query of an absolute URI (RFC 9114 s.4.3.1).
fn check_path(method: &Method, uri: &Uri) -> Result<(), Violation> {
    match uri.path_and_query().map(|path| path.as_str()) {
        Some("*") if *method == Method::OPTIONS => Ok(()),
        Some(path) if path.starts_with('/') => Ok(()),
        _ => Err(Violation::RelativePath),
    }
}

/// Returns the value of Content-Length, or `None` if there is no such field. Several values are
/// rejected, even equal ones (RFC 9110 s.8.6), because they are typical of request smuggling.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Violation> {
    let mut fields = headers.get_all(header::CONTENT_LENGTH).into_iter();
    let Some(value) = fields.next() else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match (digits.and_then(|text| text.parse().ok()), fields.next()) {
        (Some(length), None) => Ok(Some(length)),
        _ => Err(Violation::ContentLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn content_length_is_one_number() {
        let length = |values: &[&str]| {
            let fields: Vec<_> = values.iter().map(|value| ("content-length", *value)).collect();
            content_length(&headers(&fields))
        };
        assert_eq!(length(&[]), Ok(None));
        assert_eq!(length(&["0"]), Ok(Some(0)));
        assert_eq!(length(&["18446744073709551615"]), Ok(Some(u64::MAX)));
        for wrong in ["", "-1", "+1", "5, 5", "5,6", " 5", "0x5", "18446744073709551616"] {
            assert!(length(&[wrong]).is_err(), "{wrong:?}");
        }
        assert!(length(&["5", "5"]).is_err() && length(&["5", "6"]).is_err());
    }

    // RFC 9114 s.4.1 #5, s.4.2 #3 #4
    #[test]
    fn malformed_connection_specific_fields() {
        assert_eq!(check_fields(&headers(&[("te", "trailers"), ("accept", "*/*")])), Ok(()));
        assert_eq!(check_fields(&headers(&[("te", "Trailers")])), Ok(()));
        for field in OF_CONNECTIONS {
            assert!(check_fields(&headers(&[(field, "x")])).is_err(), "{field}");
        }
        assert!(check_fields(&headers(&[("te", "gzip")])).is_err());
    }

    #[test]
    fn malformed_multiple_host_fields() {
        let request = |hosts: &[&str]| {
            let mut request = Request::builder().uri("https://a/");
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            check_request(&request.body(()).unwrap())
        };
        assert_eq!((request(&[]), request(&["a"])), (Ok(()), Ok(())));
        assert!(request(&["a", "b"]).is_err() && request(&["a", "a"]).is_err());
    }

    // RFC 9114 s.4.3.1 #1, s.4.4 #1
    #[test]
    fn malformed_requests_by_method() {
        let request = |method: &str, uri: &str| {
            check_request(&Request::builder().method(method).uri(uri).body(()).unwrap())
        };
        assert_eq!(request("GET", "https://a/b"), Ok(()));
        assert_eq!(request("CONNECT", "a:443"), Ok(()));
        assert!(request("GET", "a:443").is_err());
        assert_eq!(request("OPTIONS", "https://a/*"), Ok(()));
        for (method, uri) in [
            ("GET", "https://user@a/"),
            ("GET", "https://user:secret@a:443/"),
            ("CONNECT", "user@a:443"),
            ("CONNECT", "a"),
            ("GET", "https://a?x"),
        ] {
            assert!(request(method, uri).is_err(), "{method} {uri}");
        }
        assert!(request("CONNECT", "https://a/").is_err());
    }
}
