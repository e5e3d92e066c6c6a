//! The HTTP of a proxy: the head of a request, and answers that refuse it.

use crate::rules::Host;

/// The longest head of a request: what node accepts. All connections together hold no more than that many times as much.
pub(crate) const HEAD_MAX: usize = 16 << 10;

/// The head of a request to a proxy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The head that the server gets; absent for a tunnel.
    pub(crate) forwarded: Option<Vec<u8>>,
}

/// Returns the length of a head, with the empty line at its end, if that was received.
pub(crate) fn head_length(received: &[u8]) -> Option<usize> {
    received.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Reads a head. The error is the reason for the client.
pub(crate) fn parse(head: &[u8]) -> Result<Request, String> {
    let text = std::str::from_utf8(head).map_err(|_| "the request is not text".to_owned())?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut words = first.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("the request is malformed".to_owned());
    };
    if !version.starts_with("HTTP/1.") {
        return Err(format!("{version} is not spoken by this proxy"));
    }
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        return Ok(Request { host, port, forwarded: None });
    }
    let rest = target
        .strip_prefix("http://")
        .ok_or_else(|| "this is a proxy: the request must be CONNECT, or name an http:// address".to_owned())?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(at);
    let (host, port) = authority(named, Some(80))?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let forwarded = forwarded(method, &path, named, lines);
    Ok(Request { host, port, forwarded: Some(forwarded) })
}

fn authority(text: &str, default: Option<u16>) -> Result<(Host, u16), String> {
    let wrong = || format!("`{}` is not a host and a port", text.escape_default());
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().map_err(|_| wrong())?)),
        Some(_) | None => (text, default),
    };
    let host = Host::parse(host).ok_or_else(wrong)?;
    port.filter(|port| *port != 0).map(|port| (host, port)).ok_or_else(wrong)
}

/// Writes the head for the server: with its own name, and for one request only, because the next one may be for another
/// server.
fn forwarded<'a>(method: &str, path: &str, named: &str, lines: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {named}\r\n");
    let mut upgrades = false;
    for line in lines.take_while(|line| !line.is_empty()) {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            "host" | "proxy-connection" | "proxy-authorization" | "keep-alive" => {}
            "connection" => upgrades |= line.to_ascii_lowercase().contains("upgrade"),
            _ => {
                head.push_str(line);
                head.push_str("\r\n");
            }
        }
    }
    head.push_str(if upgrades { "Connection: Upgrade\r\n\r\n" } else { "Connection: close\r\n\r\n" });
    head.into_bytes()
}

/// Writes an answer that is an error. The reason is in the first line, which many clients show, and in the body.
pub(crate) fn refusal(code: u16, reason: &str) -> Vec<u8> {
    let line: String = reason.chars().filter(|char| char.is_ascii_graphic() || *char == ' ').collect();
    let length = reason.len() + 1;
    format!(
        "HTTP/1.1 {code} {line}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{reason}\n"
    )
    .into_bytes()
}

pub(crate) const CONNECTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Result<(String, u16, Option<String>), String> {
        let request = parse(head.as_bytes())?;
        let forwarded = request.forwarded.map(|head| String::from_utf8(head).unwrap());
        Ok((request.host.to_string(), request.port, forwarded))
    }

    #[test]
    fn a_tunnel_names_a_host_and_a_port() {
        assert_eq!(read("CONNECT A.com:443 HTTP/1.1\r\n\r\n"), Ok(("a.com".into(), 443, None)));
        assert_eq!(read("CONNECT [::1]:22 HTTP/1.1\r\n\r\n"), Ok(("::1".into(), 22, None)));
        for wrong in [
            "CONNECT a.com HTTP/1.1",
            "CONNECT a.com:x HTTP/1.1",
            "CONNECT a.com:0 HTTP/1.1",
            "GET / HTTP/1.1",
            "x",
            "GET http://a HTTP/2",
        ] {
            assert!(read(&format!("{wrong}\r\n\r\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plain_request_goes_to_the_server_that_its_address_names() {
        let head = "GET http://a.com:81/x?y HTTP/1.1\r\nHost: evil.com\r\nProxy-Connection: keep-alive\r\n\
                    Connection: keep-alive\r\nAccept: */*\r\n\r\n";
        let expect = "GET /x?y HTTP/1.1\r\nHost: a.com:81\r\nAccept: */*\r\nConnection: close\r\n\r\n";
        assert_eq!(read(head), Ok(("a.com".into(), 81, Some(expect.into()))));
        let (_, port, head) = read("GET http://a.com?y HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!((port, head.unwrap().lines().next()), (80, Some("GET /?y HTTP/1.1")));
        let (.., head) = read("GET http://a.com/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n").unwrap();
        assert!(head.unwrap().contains("Connection: Upgrade\r\n"));
    }

    #[test]
    fn a_refusal_has_its_reason_in_the_first_line() {
        let text = String::from_utf8(refusal(403, "a.com\r\n is not allowed")).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 a.com is not allowed\r\n"), "{text}");
    }
}
