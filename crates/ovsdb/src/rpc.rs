//! JSON-RPC 1.0 over a stream: framing, parsing and formatting of messages (RFC 7047 section 4).
//!
//! Messages follow each other without a delimiter. [`Framer`] finds the end of a message by counting brackets outside
//! of strings. Each byte is examined once, even if a message arrives in several pieces. The amount of buffered data is
//! limited.

use serde_json::{Value, json};

/// Maximum nesting depth of brackets in a message. OVSDB messages have a depth of less than ten.
const DEPTH_LIMIT: u32 = 64;

/// Reason why no more JSON-RPC messages can be read from a stream.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// A message exceeds the maximum length of the [`Framer`].
    #[error("a message is longer than {limit} bytes")]
    TooLong {
        /// Maximum length of a JSON-RPC message in bytes.
        limit: usize,
    },
    /// The brackets of a JSON-RPC message are nested too deeply.
    #[error("a message has more than {DEPTH_LIMIT} brackets within each other")]
    TooDeep,
    /// A message does not begin with an object. The value is the first byte of the message.
    #[error("byte 0x{0:02x} stands where a message should begin")]
    NoObject(u8),
    /// A message is not valid JSON.
    #[error("a message is not JSON")]
    Json(#[from] serde_json::Error),
    /// A message is valid JSON, but not a request, notification or reply. The value is the beginning of the message.
    #[error("a message is neither request, notification nor reply: {0}")]
    Shape(String),
}

/// Splits a byte stream into JSON-RPC messages.
#[derive(Debug)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Number of bytes at the beginning of the buffer in which no end of a message was found.
    seen: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    limit: usize,
}

impl Framer {
    /// Creates a framer for messages of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Framer { bytes: Vec::new(), seen: 0, depth: 0, in_string: false, escaped: false, limit }
    }

    /// Appends bytes that were received from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete message as text. Returns `None` if the stream contains no other complete message yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the stream does not consist of messages, or if a message exceeds the limits. The stream
    /// cannot be read any more then.
    pub fn next_text(&mut self) -> Result<Option<Vec<u8>>, RpcError> {
        if self.depth == 0 {
            let blank = self.bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.bytes.drain(..blank);
        }
        while let Some(&byte) = self.bytes.get(self.seen) {
            self.seen += 1;
            if self.seen > self.limit {
                return Err(RpcError::TooLong { limit: self.limit });
            }
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' => self.depth += 1,
                other if self.depth == 0 => return Err(RpcError::NoObject(other)),
                b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                b'"' => self.in_string = true,
                _ => {}
            }
            if self.depth > DEPTH_LIMIT {
                return Err(RpcError::TooDeep);
            }
            if self.depth == 0 {
                let rest = self.bytes.split_off(self.seen);
                self.seen = 0;
                return Ok(Some(std::mem::replace(&mut self.bytes, rest)));
            }
        }
        Ok(None)
    }

    /// Returns the next complete message. Returns `None` if the stream contains no other complete message yet.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Framer::next_text`]. Also returns an error if the text is not a message.
    pub fn next_message(&mut self) -> Result<Option<Message>, RpcError> {
        self.next_text()?.map(|text| Message::read(serde_json::from_slice(&text)?)).transpose()
    }
}

/// A message of JSON-RPC 1.0.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// A JSON-RPC request, which requires a reply.
    Request {
        /// Name of the method that the peer should execute.
        method: String,
        /// Parameters of the method, as JSON values.
        params: Vec<Value>,
        /// Identifier of the request, which the reply must contain.
        id: Value,
    },
    /// A JSON-RPC notification, which has no reply.
    Notification {
        /// Name of the method that the peer should execute.
        method: String,
        /// Parameters of the method, as JSON values.
        params: Vec<Value>,
    },
    /// A JSON-RPC reply to a request, with a result or an error.
    Reply {
        /// Identifier of the request to which the message replies.
        id: Value,
        /// Result of the request, or the error that the peer returned.
        outcome: Result<Value, Value>,
    },
}

impl Message {
    /// Parses a JSON value as a JSON-RPC message.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is not a message.
    pub fn read(mut value: Value) -> Result<Message, RpcError> {
        let shape = |value: &Value| RpcError::Shape(shortened(&value.to_string()));
        let Some(object) = value.as_object_mut() else { return Err(shape(&value)) };
        let id = object.remove("id").unwrap_or_default();
        if let Some(method) = object.remove("method") {
            return match (method, object.remove("params")) {
                (Value::String(method), Some(Value::Array(params))) if id.is_null() => {
                    Ok(Message::Notification { method, params })
                }
                (Value::String(method), Some(Value::Array(params))) => {
                    Ok(Message::Request { method, params, id })
                }
                _ => Err(shape(&value)),
            };
        }
        match (object.remove("result"), object.remove("error").unwrap_or_default()) {
            _ if id.is_null() => Err(shape(&value)),
            (Some(result), Value::Null) => Ok(Message::Reply { id, outcome: Ok(result) }),
            (_, Value::Null) => Err(shape(&value)),
            (_, error) => Ok(Message::Reply { id, outcome: Err(error) }),
        }
    }

    /// Encodes the message as JSON text.
    pub fn bytes(&self) -> Vec<u8> {
        let value = match self {
            Message::Request { method, params, id } => json!({"method": method, "params": params, "id": id}),
            Message::Notification { method, params } => {
                json!({"method": method, "params": params, "id": null})
            }
            Message::Reply { id, outcome: Ok(result) } => json!({"result": result, "error": null, "id": id}),
            Message::Reply { id, outcome: Err(error) } => json!({"result": null, "error": error, "id": id}),
        };
        value.to_string().into_bytes()
    }
}

/// Returns the beginning of a text (at most 200 characters), for use in an error message or the log.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(framer: &mut Framer) -> Result<Vec<Vec<u8>>, RpcError> {
        let mut found = Vec::new();
        while let Some(text) = framer.next_text()? {
            found.push(text);
        }
        Ok(found)
    }

    /// Generates JSON values of all kinds, including brackets and quotes in strings.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            r#"[\[\]{}"\\a ,:\n\u{e9}]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(r#"[a{}"\\]{0,3}"#, inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_the_stream_is_cut(
            values in prop::collection::vec(value(), 1..5),
            cuts in prop::collection::vec(1usize..20, 1..50),
        ) {
            let messages: Vec<Value> = values.into_iter().map(|value| json!({"x": value})).collect();
            let stream: Vec<u8> = messages.iter().flat_map(|message| format!("{message} \n").into_bytes()).collect();
            let mut framer = Framer::new(1 << 20);
            let mut found = Vec::new();
            let (mut rest, mut cuts) = (stream.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                framer.push(piece);
                found.extend(all(&mut framer).unwrap());
                rest = tail;
            }
            let found: Vec<Value> = found.iter().map(|text| serde_json::from_slice(text).unwrap()).collect();
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut framer = Framer::new(100);
            framer.push(&bytes);
            while let Ok(Some(_)) = framer.next_message() {}
        }

        #[test]
        fn a_message_is_read_as_it_was_written(params in prop::collection::vec(value(), 0..3), id in 1u64..9) {
            let request = Message::Request { method: "m".into(), params: params.clone(), id: id.into() };
            let news = Message::Notification { method: "m".into(), params };
            let answer = Message::Reply { id: id.into(), outcome: Err(json!("no")) };
            for message in [request, news, answer] {
                let value = serde_json::from_slice(&message.bytes()).unwrap();
                prop_assert_eq!(Message::read(value).unwrap(), message);
            }
        }
    }

    #[test]
    fn limits_are_kept() {
        let mut framer = Framer::new(10);
        framer.push(br#"{"a":"#);
        assert!(framer.next_text().unwrap().is_none());
        framer.push(b"123456789}");
        assert!(matches!(framer.next_text(), Err(RpcError::TooLong { limit: 10 })));

        let mut framer = Framer::new(1 << 20);
        framer.push(&[b"{\"a\":".as_slice(), &[b'['; 100]].concat());
        assert!(matches!(framer.next_text(), Err(RpcError::TooDeep)));

        let mut framer = Framer::new(1 << 20);
        framer.push(b" GET / HTTP/1.1");
        assert!(matches!(framer.next_text(), Err(RpcError::NoObject(b'G'))));
    }

    #[test]
    fn what_is_no_message_is_told() {
        for text in
            ["{}", r#"{"method":1,"params":[],"id":1}"#, r#"{"method":"x","id":1}"#, r#"{"result":1}"#]
        {
            let value = serde_json::from_str(text).unwrap();
            assert!(matches!(Message::read(value), Err(RpcError::Shape(_))), "{text}");
        }
    }
}
