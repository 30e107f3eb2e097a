//! Messages as MongoDB frames them: a header of four little-endian i32 (length, id, id of the answered request, kind),
//! then flags, then sections, one of which is the body, a BSON document.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const HEADER: usize = 16;
const LONGEST: usize = 64 << 20;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;
/// In a request: no reply is sent. In a reply: another one follows without a request.
const MORE_TO_COME: i32 = 1 << 1;
/// In a request: it may get more than one reply.
const EXHAUST_ALLOWED: i32 = 1 << 16;

pub struct Message(Vec<u8>);

impl Message {
    /// None: the peer closed the connection between two messages.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Message>> {
        let mut bytes = vec![0; HEADER];
        if from.read(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut bytes[1..])?;
        let length = int(&bytes, 0).unwrap_or(0) as usize;
        if !(HEADER..=LONGEST).contains(&length) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
        }
        bytes.resize(length, 0);
        from.read_exact(&mut bytes[HEADER..])?;
        Ok(Some(Message(bytes)))
    }

    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.0)
    }

    /// The command `{name: 1, $db: "admin"}`.
    pub fn command(name: &str) -> Message {
        let mut body = vec![0; 4];
        body.push(0x10);
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0");
        let length = body.len() as i32;
        body[..4].copy_from_slice(&length.to_le_bytes());
        let mut bytes = Vec::new();
        for value in [(HEADER + 5) as i32 + length, 1, 0, OP_MSG, 0] {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.push(0);
        bytes.extend_from_slice(&body);
        Message(bytes)
    }

    pub fn id(&self) -> i32 {
        int(&self.0, 4).unwrap_or(0)
    }

    pub fn response_to(&self) -> i32 {
        int(&self.0, 8).unwrap_or(0)
    }

    pub fn set_response_to(&mut self, id: i32) {
        self.0[8..12].copy_from_slice(&id.to_le_bytes());
    }

    /// The same message under another id.
    pub fn copy(&self, id: i32) -> Message {
        let mut bytes = self.0.clone();
        bytes[4..8].copy_from_slice(&id.to_le_bytes());
        Message(bytes)
    }

    /// Whether a request may get more than one reply.
    pub fn may_stream(&self) -> bool {
        self.op() == OP_MSG && int(&self.0, HEADER).unwrap_or(0) & EXHAUST_ALLOWED != 0
    }

    /// Whether a request gets a reply.
    pub fn has_reply(&self) -> bool {
        self.op() != OP_MSG || int(&self.0, HEADER).unwrap_or(0) & MORE_TO_COME == 0
    }

    /// The name of a request's command: the first key of its body.
    pub fn name(&self) -> String {
        let body = match self.op() {
            OP_COMPRESSED => return "compressed".to_owned(),
            OP_QUERY => self.query(),
            _ => self.body(),
        };
        body.and_then(|body| Some(text(body.get(5..)?))).unwrap_or_default()
    }

    fn op(&self) -> i32 {
        int(&self.0, 12).unwrap_or(0)
    }

    /// The body of an OP_MSG. Document sequences may precede it.
    pub fn body(&self) -> Option<&[u8]> {
        let mut sections = self.0.get(HEADER + 4..)?;
        loop {
            let (kind, rest) = sections.split_first()?;
            if *kind == 0 {
                return rest.get(..int(rest, 0)? as usize);
            }
            sections = rest.get(int(rest, 0)? as usize..)?;
        }
    }

    /// The document of an OP_QUERY, which drivers still use for their first message.
    fn query(&self) -> Option<&[u8]> {
        let collection = self.0.get(HEADER + 4..)?;
        collection.get(text(collection).len() + 1 + 8..)
    }
}

/// Sends a command to the server on this port of 127.0.0.1, over a new connection, and returns the body of the reply.
pub fn ask(port: u16, name: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(timeout))?;
    Message::command(name).write(&mut stream)?;
    let reply = Message::read(&mut stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(reply.body().ok_or(io::ErrorKind::InvalidData)?.to_vec())
}

/// The integers in a document: `{a: 1, b: {c: 2}}` gives `a` = 1 and `b.c` = 2. None if it is
/// truncated, or has types that this parser does not know.
pub fn numbers(document: &[u8]) -> Option<BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    let mut rest = document.get(4..)?;
    loop {
        let (kind, named) = rest.split_first()?;
        if *kind == 0 {
            return Some(all);
        }
        let name = text(named);
        let value = named.get(name.len() + 1..)?;
        let length = match kind {
            0x01 | 0x09 => 8,
            0x03 => {
                let length = int(value, 0)? as usize;
                for (inner, number) in numbers(value.get(..length)?)? {
                    all.insert(format!("{name}.{inner}"), number);
                }
                length
            }
            0x08 => 1,
            0x10 => {
                all.insert(name, int(value, 0)? as u64);
                4
            }
            0x12 => {
                all.insert(name, u64::from_le_bytes(value.get(..8)?.try_into().ok()?));
                8
            }
            _ => return None,
        };
        rest = value.get(length..)?;
    }
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads up to the byte 0.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}
