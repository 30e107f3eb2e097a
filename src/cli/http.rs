//! A small server of text: one thread, one request after another, each bounded in size and time.

use super::signals::Stop;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Most bytes of a request's head.
const MAX_HEAD: usize = 8 << 10;
/// Most header fields.
const MAX_FIELDS: usize = 64;
/// Longest time that one request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(3);

/// An answer with status 200.
pub struct Answer {
    pub content_type: &'static str,
    pub body: String,
}

/// Serves what `answer` gives for a path (none: there is no such page) until it is to stop.
///
/// # Errors
/// When no connection can be taken at all.
pub fn serve(listener: &TcpListener, stop: &Stop, mut answer: impl FnMut(&str) -> Option<Answer>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    while !stop.is_set() {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = one(stream, &mut answer) {
                    tracing::debug!(%error, "a request was not answered");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(stop.sleep(Duration::from_millis(20))),
            // One who went away before he was heard; or there are too many open files, which passes.
            Err(error) => {
                tracing::debug!(%error, "a connection was not taken");
                stop.sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

fn one(mut stream: TcpStream, answer: &mut impl FnMut(&str) -> Option<Answer>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let plain = |body: &str| Answer { content_type: "text/plain; charset=utf-8", body: body.to_owned() };
    let (status, with_body, answer) = match head(&mut stream)? {
        None => ("400 Bad Request", true, plain("this is no request that is understood here\n")),
        Some((method, _)) if method != "GET" && method != "HEAD" => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", true, plain("only GET and HEAD\n"))
        }
        Some((method, path)) => match answer(path.split('?').next().unwrap_or_default()) {
            Some(answer) => ("200 OK", method == "GET", answer),
            None => ("404 Not Found", method == "GET", plain("there is /metrics, and /json\n")),
        },
    };
    let Answer { content_type, body } = answer;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// Method and target of a request; none where it is none, or too long.
fn head(stream: &mut TcpStream) -> io::Result<Option<(String, String)>> {
    let deadline = Instant::now() + PATIENCE;
    let (mut bytes, mut chunk) = (Vec::new(), [0; 1024]);
    while bytes.len() < MAX_HEAD {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let n = stream.read(&mut chunk)?;
        if n == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk[..n]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&bytes) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => {
                return Ok(request.method.zip(request.path).map(|(method, path)| (method.to_owned(), path.to_owned())));
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}
