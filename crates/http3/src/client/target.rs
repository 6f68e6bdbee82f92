//! Parses URLs for the HTTP/3 client.

use http::Uri;
use http::uri::PathAndQuery;

use super::ClientError;

/// The part of an `https` URL that identifies the server: host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The authority as written in the URL. An IPv6 address is in brackets. The port is included if
    /// the URL has one.
    authority: String,
    host: String,
    port: u16,
}

impl Target {
    /// Splits a URL into its target and its path with query.
    ///
    /// # Errors
    /// Fails if the text is not an absolute `https` URL, or if it contains a user name.
    // RFC 9114 s.3.1.2 #1
    pub fn parse(url: &str) -> Result<(Self, PathAndQuery), ClientError> {
        let wrong =
            |reason: &str| ClientError::Url { url: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri = url.parse().map_err(|e: http::uri::InvalidUri| wrong(&e.to_string()))?;
        if uri.scheme_str() != Some("https") {
            return Err(wrong("the URL must begin with https://, as in https://example.org/"));
        }
        let Some(authority) = uri.authority() else { return Err(wrong("the URL has no host")) };
        if authority.as_str().contains('@') {
            return Err(wrong("the URL must not contain a user name"));
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        let port = match (authority.port_u16(), authority.port()) {
            (Some(port), _) => port,
            (None, Some(_)) => return Err(wrong("the port of the URL is not between 0 and 65535")),
            // The `http` crate does not report an error for `host:` or `host:99999`, but returns no
            // port.
            (None, None) if authority.as_str().len() != authority.host().len() => {
                return Err(wrong("the port of the URL is not between 0 and 65535"));
            }
            (None, None) => 443,
        };
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let target = Self { authority: authority.as_str().to_owned(), host: host.to_owned(), port };
        Ok((target, path))
    }

    /// Returns the host name, or the IP address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the UDP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the host name or address that the server's certificate must be valid for.
    pub(super) fn server_name(&self) -> &str {
        &self.host
    }

    /// Returns the URL of a path at this target.
    pub(super) fn uri(&self, path: &PathAndQuery) -> Result<Uri, http::Error> {
        Uri::builder()
            .scheme("https")
            .authority(self.authority.as_str())
            .path_and_query(path.clone())
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_split() {
        for (url, host, port, path) in [
            ("https://example.org", "example.org", 443, "/"),
            ("https://example.org:4433/a?b=c", "example.org", 4433, "/a?b=c"),
            ("https://[::1]:1/x", "::1", 1, "/x"),
            ("https://192.0.2.1/", "192.0.2.1", 443, "/"),
        ] {
            let (target, rest) = Target::parse(url).unwrap();
            assert_eq!((target.host(), target.port(), rest.as_str()), (host, port, path), "{url}");
        }
    }

    // RFC 9114 s.3.1.2 #1, s.4.3.1 #1
    #[test]
    fn url_errors_say_why() {
        for url in [
            "",
            "example.org",
            "/path",
            "http://example.org/",
            "https://",
            "https:///x",
            "https://user@example.org/",
            "https://example.org:99999/",
            "https://example.org:x/",
            "https://example.org:/",
            "https://exa mple.org/",
            "https://[::1/",
        ] {
            let error = Target::parse(url).unwrap_err();
            assert!(matches!(error, ClientError::Url { .. }), "{url}: {error}");
        }
    }
}
