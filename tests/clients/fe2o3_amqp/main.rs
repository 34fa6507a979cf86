//! fe2o3-amqp as a client that takes orders: one JSON command a line on stdin, one JSON answer a line on stdout. See ../driving.py.

mod values;

use std::collections::{HashMap, VecDeque};
use std::io::{stdin, stdout, BufRead, Write};
use std::time::Duration;

use fe2o3_amqp::connection::{ConnectionHandle, OpenError};
use fe2o3_amqp::link::delivery::DeliveryInfo;
use fe2o3_amqp::link::{CreditMode, DetachError, LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::{Error, SenderSettleMode};
use fe2o3_amqp::types::messaging::{
    Accepted, Body, DistributionMode, Message, Modified, Outcome, Rejected, Released, Source, Target,
};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use serde_json::{json, Value as Json};
use tokio::sync::mpsc;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

/// An error of the broker or of the library.
struct Failure {
    level: &'static str,
    condition: Option<String>,
    description: String,
}

type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    fn of(level: &'static str, error: &Error) -> Self {
        let condition = match Value::try_from_serializable(&error.condition) {
            Ok(Value::Symbol(symbol)) => Some(symbol.0),
            _ => None,
        };
        let description = error.description.clone().unwrap_or_default();
        Failure { level, condition, description }
    }

    fn here(error: impl std::fmt::Display) -> Self {
        Failure { level: "client", condition: None, description: error.to_string() }
    }

    fn shown(self) -> Json {
        json!({"error": {"level": self.level, "condition": self.condition, "description": self.description}})
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::RemoteClosedWithError(theirs) => Failure::of("connection", theirs),
            _ => Failure { level: "connection", condition: None, description: error.to_string() },
        }
    }
}

impl From<SenderAttachError> for Failure {
    fn from(error: SenderAttachError) -> Self {
        match &error {
            SenderAttachError::RemoteClosedWithError(theirs) => Failure::of("link", theirs),
            _ => Failure::here(error),
        }
    }
}

impl From<ReceiverAttachError> for Failure {
    fn from(error: ReceiverAttachError) -> Self {
        match &error {
            ReceiverAttachError::RemoteClosedWithError(theirs) => Failure::of("link", theirs),
            _ => Failure::here(error),
        }
    }
}

impl From<LinkStateError> for Failure {
    fn from(error: LinkStateError) -> Self {
        match &error {
            LinkStateError::RemoteClosedWithError(theirs) | LinkStateError::RemoteDetachedWithError(theirs) => {
                Failure::of("link", theirs)
            }
            _ => Failure::here(error),
        }
    }
}

impl From<DetachError> for Failure {
    fn from(error: DetachError) -> Self {
        LinkStateError::from(error).into()
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        match error {
            SendError::LinkStateError(state) => state.into(),
            SendError::Detached(detached) => detached.into(),
            other => Failure::here(other),
        }
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::LinkStateError(state) => state.into(),
            other => Failure::here(other),
        }
    }
}

struct Taking {
    link: Receiver,
    issued: u32, // credit not used up
    arrived: VecDeque<Delivery<Body<Value>>>,
    held: Vec<DeliveryInfo>,
}

#[derive(Default)]
struct Client {
    connection: Option<ConnectionHandle<()>>,
    sessions: HashMap<u64, SessionHandle<()>>,
    senders: HashMap<String, Sender>,
    receivers: HashMap<String, Taking>,
    links: u32, // made so far, for their names
}

impl Client {
    async fn open(&mut self, command: &Json) -> Result<Json> {
        let mut builder = Connection::builder().container_id(command["container"].as_str().unwrap_or("fe2o3-amqp"));
        if let Some(user) = command["user"].as_str() {
            let (username, password) = (user.to_owned(), command["password"].as_str().unwrap_or_default().to_owned());
            builder = builder.sasl_profile(SaslProfile::Plain { username, password });
        } else if command["mechanism"] != "none" {
            builder = builder.sasl_profile(SaslProfile::Anonymous);
        }
        if let Some(idle) = command["idle"].as_u64() {
            builder = builder.idle_time_out(idle as u32 * 1000);
        }
        self.connection = Some(builder.open(command["url"].as_str().unwrap_or_default()).await?);
        Ok(json!({}))
    }

    async fn session(&mut self, command: &Json) -> Result<u64> {
        let number = command["session"].as_u64().unwrap_or(0);
        if !self.sessions.contains_key(&number) {
            let connection = self.connection.as_mut().ok_or_else(|| Failure::here("no connection"))?;
            self.sessions.insert(number, Session::begin(connection).await.map_err(Failure::here)?);
        }
        Ok(number)
    }

    fn link_name(&mut self) -> String {
        self.links += 1;
        format!("link-{}", self.links)
    }

    async fn sender(&mut self, command: &Json) -> Result<&mut Sender> {
        let (number, name) = (self.session(command).await?, self.link_name());
        let (to, settled) = (command["to"].as_str(), command["settled"] == true);
        let known = format!("{number} {settled} {to:?}");
        if !self.senders.contains_key(&known) {
            let mode = if settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
            let target = Target { address: to.map(str::to_owned), ..Default::default() };
            let builder = Sender::builder().name(name).target(target).sender_settle_mode(mode);
            let link = builder.attach(self.sessions.get_mut(&number).unwrap()).await?;
            self.senders.insert(known.clone(), link);
        }
        Ok(self.senders.get_mut(&known).unwrap())
    }

    async fn send(&mut self, command: &Json) -> Result<Json> {
        let settled = command["settled"] == true;
        let sender = self.sender(command).await?;
        let mut sent = Vec::new();
        for given in command["messages"].as_array().unwrap() {
            let message: Message<Body<Value>> = values::message_of(given);
            sent.push(sender.send_batchable(message).await?);
        }
        let mut outcomes = Vec::new();
        for delivery in sent {
            let outcome = delivery.await?;
            outcomes.push(if settled { json!({"outcome": "none"}) } else { shown_outcome(&outcome) });
        }
        Ok(json!({"outcomes": outcomes}))
    }

    async fn receiver(&mut self, command: &Json) -> Result<&mut Taking> {
        let (number, name) = (self.session(command).await?, self.link_name());
        let (from, browse) = (command["from"].as_str().unwrap_or_default(), command["browse"] == true);
        let known = format!("{number} {browse} {from}");
        if !self.receivers.contains_key(&known) {
            let mut source = Source::builder().address(from);
            if browse {
                source = source.distribution_mode(DistributionMode::Copy);
            }
            let builder = Receiver::builder().name(name).source(source.build()).credit_mode(CreditMode::Manual);
            let link = builder.attach(self.sessions.get_mut(&number).unwrap()).await?;
            let taking = Taking { link, issued: 0, arrived: VecDeque::new(), held: Vec::new() };
            self.receivers.insert(known.clone(), taking);
        }
        Ok(self.receivers.get_mut(&known).unwrap())
    }

    async fn receive(&mut self, command: &Json) -> Result<Json> {
        let from = self.receiver(command).await?;
        let count = command["count"].as_u64().unwrap_or(1) as usize;
        let credit = command["credit"].as_u64().unwrap_or(count as u64) as usize;
        let wanted = credit.saturating_sub(from.arrived.len()) as u32;
        if wanted > from.issued {
            from.link.set_credit(wanted).await.map_err(LinkStateError::from)?;
            from.issued = wanted;
        }
        while from.arrived.len() < count {
            from.arrived.push_back(from.link.recv().await?);
            from.issued -= 1;
        }
        let mut messages = Vec::new();
        for delivery in from.arrived.drain(..count) {
            messages.push(values::shown(delivery.message()));
            if command["outcome"] == "hold" {
                from.held.push(delivery.into());
            } else {
                settle(&from.link, delivery.into(), &command["outcome"]).await?;
            }
        }
        Ok(json!({"messages": messages}))
    }

    async fn settle(&mut self, command: &Json) -> Result<Json> {
        let from = self.receiver(command).await?;
        for delivery in from.held.drain(..) {
            settle(&from.link, delivery, &command["outcome"]).await?;
        }
        Ok(json!({}))
    }

    async fn detach(&mut self, command: &Json) -> Result<Json> {
        let number = self.session(command).await?;
        if let Some(to) = command["to"].as_str() {
            if let Some(link) = self.senders.remove(&format!("{number} false {:?}", Some(to))) {
                link.close().await?;
            }
        }
        if let Some(from) = command["from"].as_str() {
            if let Some(taking) = self.receivers.remove(&format!("{number} false {from}")) {
                taking.link.close().await?;
            }
        }
        Ok(json!({}))
    }

    async fn close(&mut self) -> Result<Json> {
        for (_, link) in self.senders.drain() {
            link.close().await?;
        }
        for (_, taking) in self.receivers.drain() {
            taking.link.close().await?;
        }
        for (_, mut session) in self.sessions.drain() {
            session.end().await.map_err(Failure::here)?;
        }
        if let Some(mut connection) = self.connection.take() {
            connection.close().await.map_err(Failure::here)?;
        }
        Ok(json!({}))
    }

    async fn carried_out(&mut self, command: &Json) -> Result<Json> {
        match command["do"].as_str().unwrap_or_default() {
            "open" => self.open(command).await,
            "send" => self.send(command).await,
            "receive" => self.receive(command).await,
            "settle" => self.settle(command).await,
            "detach" => self.detach(command).await,
            "close" => self.close().await,
            other => Err(Failure::here(format!("an unknown command: {other}"))),
        }
    }
}

async fn settle(link: &Receiver, delivery: DeliveryInfo, outcome: &Json) -> Result<()> {
    let done = match (outcome.as_str(), &outcome["reject"], &outcome["modify"]) {
        (None | Some("accept"), Json::Null, Json::Null) => link.dispose(delivery, Accepted {}).await,
        (Some("release"), ..) => link.dispose(delivery, Released {}).await,
        (None, Json::Null, modify) => {
            let flag = |name: &str| modify[name].as_bool();
            let modified = Modified {
                delivery_failed: flag("failed"),
                undeliverable_here: flag("undeliverable"),
                message_annotations: values::fields_of(&modify["annotations"]),
            };
            link.dispose(delivery, modified).await
        }
        (_, reason, _) => link.dispose(delivery, Rejected { error: values::error_of(reason) }).await,
    };
    done.map_err(|error| LinkStateError::from(error).into())
}

fn shown_outcome(outcome: &Outcome) -> Json {
    match outcome {
        Outcome::Accepted(_) => json!({"outcome": "accepted"}),
        Outcome::Released(_) => json!({"outcome": "released"}),
        Outcome::Modified(_) => json!({"outcome": "modified"}),
        Outcome::Rejected(Rejected { error: None }) => json!({"outcome": "rejected"}),
        Outcome::Rejected(Rejected { error: Some(error) }) => {
            let reason = Failure::of("link", error);
            json!({"outcome": "rejected", "condition": reason.condition, "description": reason.description})
        }
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (lines, mut commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in stdin().lock().lines() {
            let _ = lines.send(line.unwrap());
        }
    });
    runtime.block_on(async {
        let mut client = Client::default();
        while let Some(line) = commands.recv().await {
            let command: Json = serde_json::from_str(&line).unwrap();
            let answer = match timeout(PATIENCE, client.carried_out(&command)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(failure)) => failure.shown(),
                Err(_) => Failure::here(format!("not within {PATIENCE:?}")).shown(),
            };
            writeln!(stdout(), "{answer}").unwrap();
        }
    });
    std::process::exit(0);
}
