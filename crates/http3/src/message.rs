//! Checks for malformed requests and responses (RFC 9114 s.4.1.2) that `h3` lets pass, as far as
//! what it hands on shows them. The rest is checked before `h3`: see `binding/fields.rs`.

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};

/// Fields that belong to a connection of HTTP/1 (RFC 9114 s.4.2).
const OF_CONNECTIONS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Checks header fields; the error says why they are malformed.
pub(crate) fn check_fields(headers: &HeaderMap) -> Result<(), &'static str> {
    headers.iter().try_for_each(|(name, value)| check_field(name, value))
}

/// Checks a field of a header or trailer section; the error says why it is malformed.
pub(crate) fn check_field(name: &HeaderName, value: &HeaderValue) -> Result<(), &'static str> {
    if OF_CONNECTIONS.contains(&name.as_str()) {
        return Err("a field of an HTTP/1 connection");
    }
    // RFC 9114 s.4.2.
    if *name == header::TE && !value.as_bytes().eq_ignore_ascii_case(b"trailers") {
        return Err("a TE field with more than \"trailers\"");
    }
    Ok(())
}

/// Checks an interim response; the error says why it is malformed.
pub(crate) fn check_interim(response: &Response<()>) -> Result<(), &'static str> {
    // RFC 9114 s.4.5.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err("status 101, which HTTP/3 does not have");
    }
    // RFC 9110 s.8.6.
    if response.headers().contains_key(header::CONTENT_LENGTH) {
        return Err("an interim response with a content-length");
    }
    check_fields(response.headers())
}

/// Checks a request; the error says why it is malformed.
pub(crate) fn check_request(request: &Request<()>) -> Result<(), &'static str> {
    check_fields(request.headers())?;
    let uri: &Uri = request.uri();
    let (has_scheme, has_path) = (uri.scheme().is_some(), !uri.path().is_empty());
    // RFC 9110 s.7.2: `h3` looks at the first Host field only.
    if request.headers().get_all(header::HOST).iter().nth(1).is_some() {
        return Err("several Host fields");
    }
    // RFC 9114 s.4.3.1. The authority here is that of :authority, or else of Host.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("an authority with user information");
    }
    match *request.method() {
        // RFC 9114 s.4.4.
        Method::CONNECT if has_scheme => Err("CONNECT with a scheme"),
        Method::CONNECT if uri.port_u16().is_none() => Err("CONNECT without a port"),
        Method::CONNECT => Ok(()),
        // RFC 9114 s.4.3.1.
        _ if !has_scheme || !has_path => Err("no scheme, or no path"),
        _ => check_path(request.method(), uri),
    }
}

/// Checks the path and query of an absolute URI (RFC 9114 s.4.3.1).
fn check_path(method: &Method, uri: &Uri) -> Result<(), &'static str> {
    match uri.path_and_query().map(|path| path.as_str()) {
        Some("*") if *method == Method::OPTIONS => Ok(()),
        Some(path) if path.starts_with('/') => Ok(()),
        _ => Err("a path without a leading slash"),
    }
}

/// Length of the content that is announced; none if none is. Several values, even equal ones (RFC
/// 9110 s.8.6), are not believed: whoever sends them had other messages in mind.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut fields = headers.get_all(header::CONTENT_LENGTH).into_iter();
    let Some(value) = fields.next() else { return Ok(None) };
    let digits = value.to_str().ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match (digits.and_then(|text| text.parse().ok()), fields.next()) {
        (Some(length), None) => Ok(Some(length)),
        _ => Err("a content-length that is no number"),
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
    fn a_length_is_a_number() {
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

    #[test]
    fn fields_of_connections_are_malformed() {
        assert_eq!(check_fields(&headers(&[("te", "trailers"), ("accept", "*/*")])), Ok(()));
        assert_eq!(check_fields(&headers(&[("te", "Trailers")])), Ok(()));
        for field in OF_CONNECTIONS {
            assert!(check_fields(&headers(&[(field, "x")])).is_err(), "{field}");
        }
        assert!(check_fields(&headers(&[("te", "gzip")])).is_err());
    }

    #[test]
    fn host_is_one_field() {
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

    #[test]
    fn what_a_request_needs_depends_on_its_method() {
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
