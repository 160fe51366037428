//! OVSDB protocol on one connection to the server. A session has no socket: its user passes received messages to the
//! session, and sends the messages that the session returns. The session maintains the replica.
//!
//! ```text
//!   get_schema ──> monitor_cond_since ─(refused)─> monitor_cond ─(refused)─> monitor ──> updates until the connection ends
//!   lock ─────────────────────────────────────────────────────────────────────────────> granted, granted later, or stolen
//! ```
//!
//! The state of a session can be passed to the next one ([`Session::resume`]). The server then sends only the
//! changes since the last transaction, if it still has the history from that transaction on. The previous
//! replica is kept until the reply arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::replica::{NEEDED, Replica, UpdateError};
use crate::rpc::{Message, shortened};
use crate::schema::{Schema, SchemaError};
use crate::status::SwitchStatus;

/// Name of the database on the server (ovs-vswitchd.conf.db(5)).
const DATABASE: &str = "Open_vSwitch";
/// Identifier that the client chose for its monitor request. The server's update messages contain this identifier.
const MONITOR: &str = "trivium";
/// Identifier of the client's echo requests (probes).
const ECHO: &str = "echo";
/// Transaction identifier that no server knows, for the first `monitor_cond_since` request. The server then sends the
/// complete contents of the tables.
const NEVER: &str = "00000000-0000-0000-0000-000000000000";

/// Reason why an OVSDB session cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server does not have the database `Open_vSwitch`. The value is the error text of the server.
    #[error("the server has no database {DATABASE}: {0}")]
    Database(String),
    /// The database schema that the server sent is invalid.
    #[error("the schema of {DATABASE} cannot be used")]
    Schema(#[from] SchemaError),
    /// The database schema lacks a column that the client requires.
    #[error("the schema of {DATABASE} has no column {column} in {table}; is it that of Open vSwitch?")]
    Column {
        /// Name of the table that should have the column.
        table: &'static str,
        /// Name of the missing column.
        column: &'static str,
    },
    /// The server refuses an OVSDB method that the client requires.
    #[error("the server refuses `{method}`: {why}")]
    Refused {
        /// Name of the method that the server refuses.
        method: &'static str,
        /// Error text that the server returned.
        why: String,
    },
    /// A table update that the server sent is invalid.
    #[error("an update cannot be taken")]
    Update(#[from] UpdateError),
    /// The server has sent an unexpected message. The value describes the message.
    #[error("{0}")]
    Unexpected(String),
}

/// Effect of a message from the server on the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The message has no effect that concerns the user of the session.
    Nothing,
    /// The replica of the tables has changed. It contains the complete state after one more transaction of the
    /// database.
    Changed,
    /// The server has sent a message about the OVSDB lock. The value is true if the session now
    /// holds the lock.
    Locked(bool),
    /// The server has committed the transaction that this session sent.
    Committed,
    /// The server has refused the transaction that this session sent. The value is the reason.
    Refused(String),
}

/// OVSDB methods for monitoring tables, in descending order of capability. Every server supports the last method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Since,
    Conditional,
    Plain,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Since => "monitor_cond_since",
            Method::Conditional => "monitor_cond",
            Method::Plain => "monitor",
        }
    }

    fn next(self) -> Option<Method> {
        match self {
            Method::Since => Some(Method::Conditional),
            Method::Conditional => Some(Method::Plain),
            Method::Plain => None,
        }
    }
}

/// Kind of a request to the server for which no reply has arrived yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Schema,
    Lock,
    Monitor(Method),
    Transaction,
}

/// State of the OVSDB protocol on one connection to the server.
#[derive(Debug, Default)]
pub struct Session {
    lock: String,
    locked: bool,
    numbers: u64,
    asked: BTreeMap<u64, Asked>,
    outgoing: Vec<Message>,
    /// Replica of the server's tables, shared with the thread that reads the desired configuration.
    replica: Arc<Replica>,
    /// Whether the replica was brought up to date with the server on this connection.
    whole: bool,
    /// Identifier of the last transaction that the replica contains. The server assigns the
    /// identifier. `None` if the server has sent no identifier.
    since: Option<String>,
}

impl Session {
    /// Creates a session that requests the OVSDB lock with the name `lock`.
    pub fn new(lock: &str) -> Session {
        Session::resume(lock, Session::default())
    }

    /// Creates a session on a new connection from the state of the session `last`, whose connection was lost. The new
    /// session requests the OVSDB lock with the name `lock` again.
    pub fn resume(lock: &str, last: Session) -> Session {
        // An incomplete replica does not represent a transaction.
        let (replica, since) =
            if *last.replica == Replica::default() { Default::default() } else { (last.replica, last.since) };
        let mut session = Session { lock: lock.to_owned(), replica, since, ..Session::default() };
        session.ask(Asked::Schema, "get_schema", vec![json!(DATABASE)]);
        session.ask(Asked::Lock, "lock", vec![json!(lock)]);
        session
    }

    /// Returns the replica of the server's tables. Returns `None` until the replica is synchronized on this connection.
    /// Another thread can read a clone of the returned reference. While such a clone exists, an update changes a copy
    /// of the replica instead of the replica itself.
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.whole.then_some(&self.replica)
    }

    /// Returns whether the session holds the OVSDB lock.
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Returns the messages to send to the server, and removes them from the session.
    pub fn outgoing(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.outgoing)
    }

    /// Queues an echo request, with which the session probes the server.
    pub fn probe(&mut self) {
        let id = json!(ECHO);
        self.outgoing.push(Message::Request { method: "echo".to_owned(), params: Vec::new(), id });
    }

    /// Returns whether a transaction can begin: the replica is complete, the session holds the OVSDB lock, and no other
    /// transaction of the session is in progress.
    pub fn is_free(&self) -> bool {
        self.locked && self.whole && !self.asked.values().any(|asked| *asked == Asked::Transaction)
    }

    /// Begins a transaction that writes those values of the status `told` that differ from the database. Returns
    /// whether a transaction was begun. No transaction is begun if no value differs, or if [`Session::is_free`] is
    /// false.
    pub fn tell(&mut self, told: &SwitchStatus) -> bool {
        if !self.is_free() {
            return false;
        }
        let operations = told.operations(&self.replica);
        if operations.is_empty() {
            return false;
        }
        let mut params = vec![json!(DATABASE), json!({"op": "assert", "lock": self.lock})];
        params.extend(operations);
        self.ask(Asked::Transaction, "transact", params);
        true
    }

    fn ask(&mut self, asked: Asked, method: &str, params: Vec<Value>) {
        self.numbers += 1;
        self.asked.insert(self.numbers, asked);
        let id = json!(self.numbers);
        self.outgoing.push(Message::Request { method: method.to_owned(), params, id });
    }

    fn monitor(&mut self, method: Method) {
        let mut params = vec![json!(DATABASE), json!(MONITOR), self.replica.monitored()];
        if method == Method::Since {
            params.push(json!(self.since.as_deref().unwrap_or(NEVER)));
        }
        self.ask(Asked::Monitor(method), method.name(), params);
    }

    /// Processes a message from the server. Returns the effect of the message on the session.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection must be closed.
    pub fn take(&mut self, message: Message) -> Result<Event, SessionError> {
        match message {
            Message::Request { method, params, id } => {
                let outcome = match method.as_str() {
                    "echo" => Ok(Value::Array(params)),
                    _ => Err(json!("unknown method")),
                };
                self.outgoing.push(Message::Reply { id, outcome });
                Ok(Event::Nothing)
            }
            Message::Notification { method, params } => self.news(&method, &params),
            Message::Reply { id, outcome } => {
                let Some(asked) = id.as_u64().and_then(|id| self.asked.remove(&id)) else {
                    // Reply to a probe.
                    return match id.as_str() {
                        Some(ECHO) => Ok(Event::Nothing),
                        _ => Err(unexpected("an answer to nothing", &id)),
                    };
                };
                self.answer(asked, outcome)
            }
        }
    }

    fn news(&mut self, method: &str, params: &[Value]) -> Result<Event, SessionError> {
        let ours = |id: &Value| id.as_str() == Some(MONITOR);
        match (method, params) {
            ("update", [id, updates]) if ours(id) && self.whole => {
                Arc::make_mut(&mut self.replica).update(updates)?;
                Ok(Event::Changed)
            }
            ("update2", [id, updates]) if ours(id) && self.whole => {
                Arc::make_mut(&mut self.replica).update2(updates)?;
                Ok(Event::Changed)
            }
            ("update3", [id, since, updates]) if ours(id) && self.whole => {
                Arc::make_mut(&mut self.replica).update2(updates)?;
                self.since = since.as_str().map(str::to_owned);
                Ok(Event::Changed)
            }
            ("locked" | "stolen", [name]) if name.as_str() == Some(&self.lock) => {
                self.locked = method == "locked";
                Ok(Event::Locked(self.locked))
            }
            // The server cancels monitors when a schema changes. The client then starts again on a new
            // connection.
            _ => Err(unexpected("a notification that was not asked for", &json!(method))),
        }
    }

    fn answer(&mut self, asked: Asked, outcome: Result<Value, Value>) -> Result<Event, SessionError> {
        match (asked, outcome) {
            (Asked::Schema, Err(error)) => Err(SessionError::Database(said(&error))),
            (Asked::Schema, Ok(schema)) => {
                let schema = Schema::read(&schema)?;
                let lacks =
                    |(table, column): &&(&'static str, &'static str)| schema.column(table, column).is_none();
                if let Some(&(table, column)) = NEEDED.iter().find(lacks) {
                    return Err(SessionError::Column { table, column });
                }
                // Rows of another schema cannot be reused.
                if *self.replica.schema() != schema {
                    self.replica = Arc::new(Replica::new(Arc::new(schema)));
                    self.since = None;
                }
                self.monitor(Method::Since);
                Ok(Event::Nothing)
            }
            (Asked::Lock, Ok(answer)) => {
                self.locked = answer.get("locked").and_then(Value::as_bool).unwrap_or_default();
                Ok(Event::Locked(self.locked))
            }
            (Asked::Lock, Err(error)) => Err(SessionError::Refused { method: "lock", why: said(&error) }),
            (Asked::Monitor(method), Err(error)) => match method.next() {
                Some(next) => {
                    self.monitor(next);
                    Ok(Event::Nothing)
                }
                None => Err(SessionError::Refused { method: method.name(), why: said(&error) }),
            },
            (Asked::Monitor(method), Ok(answer)) => self.begin(method, &answer),
            (Asked::Transaction, Err(error)) => Ok(Event::Refused(said(&error))),
            (Asked::Transaction, Ok(answer)) => Ok(committed(&answer)),
        }
    }

    /// Processes the server's reply to a monitor request, which contains the initial contents of the tables.
    fn begin(&mut self, method: Method, answer: &Value) -> Result<Event, SessionError> {
        let fresh = || Replica::new(self.replica.shared_schema());
        let (replica, since) = match (method, answer.as_array().map(Vec::as_slice)) {
            (Method::Since, Some([found, since, updates])) => {
                let mut replica =
                    if found.as_bool() == Some(true) { Replica::clone(&self.replica) } else { fresh() };
                replica.update2(updates)?;
                (replica, since.as_str().map(str::to_owned))
            }
            (Method::Since, _) => return Err(unexpected("an answer to monitor_cond_since", answer)),
            (Method::Conditional, _) => {
                let mut replica = fresh();
                replica.update2(answer)?;
                (replica, None)
            }
            (Method::Plain, _) => {
                let mut replica = fresh();
                replica.update(answer)?;
                (replica, None)
            }
        };
        (self.replica, self.since, self.whole) = (Arc::new(replica), since, true);
        Ok(Event::Changed)
    }
}

/// Returns whether the server has committed or refused a transaction. The server's reply contains the results of the
/// operations, and an additional error if the commit failed (RFC 7047 section 4.1.3).
fn committed(answer: &Value) -> Event {
    let mut errors = answer.as_array().into_iter().flatten().filter(|result| result.get("error").is_some());
    match errors.next_back() {
        Some(error) => Event::Refused(said(error)),
        None => Event::Committed,
    }
}

/// Returns the text of an error message that the server sent.
fn said(error: &Value) -> String {
    let part = |key: &str| error.get(key).and_then(Value::as_str);
    let text = match (part("error"), part("details")) {
        (Some(error), Some(details)) => format!("{error}: {details}"),
        (Some(error), None) => error.to_owned(),
        _ => error.as_str().map_or_else(|| error.to_string(), str::to_owned),
    };
    shortened(&text)
}

fn unexpected(what: &str, value: &Value) -> SessionError {
    SessionError::Unexpected(format!("{what}: {}", shortened(&value.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::InterfaceStatus;
    use crate::{Desired, Uuid};
    use proptest::prelude::*;

    fn id(number: u8) -> String {
        Uuid(number.into()).to_string()
    }

    fn schema() -> Value {
        let column = |kind: Value| json!({"type": kind});
        let many = |kind: &str| column(json!({"key": kind, "min": 0, "max": "unlimited"}));
        json!({"version": "8.3.1", "tables": {
            "Open_vSwitch": {"columns": {"bridges": many("uuid"), "next_cfg": column(json!("integer")), "cur_cfg": column(json!("integer"))}},
            "Bridge": {"columns": {"name": column(json!("string")), "ports": many("uuid")}},
            "Port": {"columns": {"name": column(json!("string")), "interfaces": many("uuid")}},
            "Interface": {"columns": {"name": column(json!("string")), "type": column(json!("string")),
                "ofport": column(json!({"key": "integer", "min": 0, "max": 1}))}},
        }})
    }

    fn reply(id: u64, result: Value) -> Message {
        Message::Reply { id: json!(id), outcome: Ok(result) }
    }

    fn methods(session: &mut Session) -> Vec<String> {
        let name = |message: Message| match message {
            Message::Request { method, .. } | Message::Notification { method, .. } => method,
            Message::Reply { .. } => "reply".to_owned(),
        };
        session.outgoing().into_iter().map(name).collect()
    }

    /// Returns a session that holds the OVSDB lock and whose replica contains one interface.
    fn ready() -> Session {
        let mut session = Session::new("lock");
        assert_eq!(methods(&mut session), ["get_schema", "lock"]);
        session.take(reply(1, schema())).unwrap();
        assert_eq!(session.take(reply(2, json!({"locked": true}))).unwrap(), Event::Locked(true));
        assert_eq!(methods(&mut session), ["monitor_cond_since"]);
        let rows = json!({"Open_vSwitch": {id(1): {"initial": {"next_cfg": 1}}}, "Interface": {id(2): {"initial": {"name": "p"}}}});
        assert!(session.replica().is_none());
        assert_eq!(session.take(reply(3, json!([false, id(50), rows]))).unwrap(), Event::Changed);
        session
    }

    #[test]
    fn a_server_that_knows_less_is_asked_for_less() {
        let mut session = Session::new("lock");
        session.take(reply(1, schema())).unwrap();
        methods(&mut session);
        let refused = |id: u64| Message::Reply { id: json!(id), outcome: Err(json!("unknown method")) };
        session.take(refused(3)).unwrap();
        assert_eq!(methods(&mut session), ["monitor_cond"]);
        session.take(refused(4)).unwrap();
        assert_eq!(methods(&mut session), ["monitor"]);
        let rows = json!({"Open_vSwitch": {id(1): {"new": {"next_cfg": 4}}}});
        session.take(reply(5, rows)).unwrap();
        assert_eq!(Desired::read(session.replica().unwrap()).unwrap().next_cfg, 4);
        let update = json!({"Open_vSwitch": {id(1): {"old": {"next_cfg": 4}, "new": {"next_cfg": 5}}}});
        let news = Message::Notification { method: "update".into(), params: vec![json!(MONITOR), update] };
        session.take(news).unwrap();
        assert_eq!(Desired::read(session.replica().unwrap()).unwrap().next_cfg, 5);
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        let old = ready();
        let mut session = Session::resume("lock", old);
        methods(&mut session);
        session.take(reply(1, schema())).unwrap();
        let asked = session.outgoing();
        let Message::Request { params, .. } = &asked[0] else { panic!("{asked:?}") };
        assert_eq!(params[3], json!(id(50)));
        let rows = json!({"Open_vSwitch": {id(1): {"modify": {"next_cfg": 9}}}});
        session.take(reply(3, json!([true, id(51), rows]))).unwrap();
        let replica = session.replica().unwrap();
        assert_eq!(Desired::read(replica).unwrap().next_cfg, 9);
        assert!(replica.row("Interface", Uuid(2)).is_some());
    }

    #[test]
    fn one_transaction_at_a_time_with_the_lock_alone() {
        let mut session = ready();
        let interface = InterfaceStatus { ofport: Some(1), ..InterfaceStatus::default() };
        let told = SwitchStatus { interfaces: [(Uuid(2), interface)].into(), ..SwitchStatus::default() };
        assert!(session.tell(&told));
        assert!(!session.tell(&told), "one is under way");
        let asked = session.outgoing();
        let Message::Request { method, params, .. } = &asked[0] else { panic!("{asked:?}") };
        assert_eq!((method.as_str(), &params[1]), ("transact", &json!({"op": "assert", "lock": "lock"})));
        let refused = json!([{}, {"error": "not owner", "details": "Asserted lock lock not held."}]);
        let event = session.take(reply(4, refused)).unwrap();
        assert_eq!(event, Event::Refused("not owner: Asserted lock lock not held.".to_owned()));

        let stolen = Message::Notification { method: "stolen".into(), params: vec![json!("lock")] };
        assert_eq!(session.take(stolen).unwrap(), Event::Locked(false));
        assert!(!session.tell(&told));
        let locked = Message::Notification { method: "locked".into(), params: vec![json!("lock")] };
        session.take(locked).unwrap();
        assert!(session.tell(&told));
        assert_eq!(session.take(reply(5, json!([{}, {"count": 1}]))).unwrap(), Event::Committed);
        let update = json!({"Interface": {id(2): {"modify": {"ofport": 1}}}});
        let news = Message::Notification {
            method: "update3".into(),
            params: vec![json!(MONITOR), json!(id(52)), update],
        };
        session.take(news).unwrap();
        assert!(!session.tell(&told), "the database says so already");
    }

    #[test]
    fn a_foreign_schema_is_named() {
        let mut session = Session::new("lock");
        let mut schema = schema();
        schema["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("ports");
        let error = session.take(reply(1, schema)).unwrap_err().to_string();
        assert!(error.contains("ports in Bridge"), "{error}");
    }

    /// Generates values in messages of the server, both valid and invalid ones.
    fn value() -> impl Strategy<Value = Value> {
        let uuid = (1u8..6).prop_map(|number| json!(id(number)));
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0i64..6).prop_map(Value::from),
            uuid,
            prop::sample::select(vec![
                "set", "map", "uuid", "trivium", "lock", "modify", "initial", "new", "delete"
            ])
            .prop_map(Value::from),
        ];
        let key = prop_oneof![
            prop::sample::select(vec![
                "Open_vSwitch",
                "Bridge",
                "Port",
                "Interface",
                "modify",
                "initial",
                "new",
                "old",
                "name",
                "ports",
                "next_cfg",
                "ofport"
            ])
            .prop_map(str::to_owned),
            (1u8..6).prop_map(id),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_the_server_says_is_survived(
            begun in any::<bool>(),
            said in prop::collection::vec((0u8..4, 1u64..6, value(), value()), 0..8),
        ) {
            let mut session = if begun { ready() } else { Session::new("lock") };
            for (kind, number, one, other) in said {
                let methods = ["update", "update2", "update3", "locked", "stolen", "echo"];
                let method = methods[usize::try_from(number).unwrap()].to_owned();
                let message = match kind {
                    0 => reply(number, one),
                    1 => Message::Reply { id: json!(number), outcome: Err(one) },
                    2 => Message::Notification { method, params: vec![json!(MONITOR), one, other] },
                    _ => Message::Request { method, params: vec![one], id: other },
                };
                if session.take(message).is_err() {
                    break;
                }
                let _ = session.replica().and_then(|replica| Desired::read(replica));
                session.tell(&SwitchStatus { cur_cfg: Some(3), ..SwitchStatus::default() });
                session.outgoing();
            }
        }
    }
}
