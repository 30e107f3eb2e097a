//! The HTTP server of `ringreel metrics --listen`: hyper, on the calling thread, with a limit on the
//! number of connections and on the time that each may take.

use super::signals::Stop;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ringreel::swap::manager::until;
use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

/// Open connections; further ones wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 256;
/// Most bytes of a request's head, and most header fields.
const MAX_HEAD: usize = 16 << 10;
const MAX_FIELDS: usize = 64;
/// Longest time for a request's head to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest time for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// A response with status 200.
pub struct Answer {
    pub content_type: &'static str,
    pub body: String,
}

/// Serves `answer(path)` until `stop` is set; `None` becomes status 404.
///
/// # Errors
/// The listener cannot be used.
pub fn serve(
    listener: TcpListener,
    stop: Stop,
    answer: impl FnMut(&str) -> Option<Answer> + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    LocalSet::new().block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            () = accept(listener, Rc::new(RefCell::new(answer))) => {}
            () = until(|| stop.is_set()) => {}
        }
        Ok(())
    })
}

async fn accept(listener: tokio::net::TcpListener, answer: Rc<RefCell<impl FnMut(&str) -> Option<Answer> + 'static>>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let answer = answer.clone();
                tokio::task::spawn_local(async move {
                    serve_one(stream, &answer).await;
                    drop(permit);
                });
            }
            // The client has disconnected, or this process has too many open files: both are transient.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_one(stream: TcpStream, answer: &RefCell<impl FnMut(&str) -> Option<Answer>>) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(respond(&request, answer)) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        .keep_alive(false)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "cannot serve a request"),
        Err(_) => tracing::debug!("connection closed after {CONNECTION_TIMEOUT:?}"),
    }
}

fn respond<T>(request: &Request<T>, answer: &RefCell<impl FnMut(&str) -> Option<Answer>>) -> Response<String> {
    let with = |status, content_type, body| {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    };
    const TEXT: &str = "text/plain; charset=utf-8";
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = with(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are allowed\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let found = (answer.borrow_mut())(request.uri().path());
    match found {
        Some(Answer { content_type, body }) => with(StatusCode::OK, content_type, body),
        None => with(StatusCode::NOT_FOUND, TEXT, "the pages are /metrics and /json\n".to_owned()),
    }
}
