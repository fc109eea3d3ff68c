// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends spans to a receiver: bounded queue, batches, repetition, and counts of losses.
//!
//! If the receiver is slow, the queue fills and the producer waits. Events then stay in the
//! kernel's ring buffer, which counts those without room. Nothing else is dropped before it was
//! offered to the receiver.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::span::Span;

/// A way to send batches.
pub trait Transport {
    /// Sends `spans`, and returns the receiver's response.
    ///
    /// # Errors
    /// [`Failed`] if the receiver did not accept the batch.
    fn send(&mut self, spans: &[Span]) -> Result<Accepted, Failed>;
}

/// The response to an accepted batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Spans of the batch that the receiver refused.
    pub rejected: u64,
    /// The reason.
    pub message: Option<String>,
}

/// The receiver did not accept a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    /// Whether another attempt can succeed.
    pub again: bool,
    /// The least delay before another attempt, if the receiver asks for one.
    pub after: Option<Duration>,
    /// The reason.
    pub message: String,
}

/// Limits for sending spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Capacity of the queue in spans.
    pub queue: usize,
    /// Most spans in a batch.
    pub batch: usize,
    /// How long a span waits for others in its batch.
    pub delay: Duration,
    /// How long a batch is repeated.
    pub patience: Duration,
    /// How long the rest may take to be sent at the end.
    pub flush: Duration,
}

/// The fate of the spans.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Spans that the receiver accepted.
    pub accepted: u64,
    /// Spans that the receiver refused in batches that it accepted.
    pub rejected: u64,
    /// Spans that could not be sent.
    pub unsent: u64,
    /// Repeated attempts to send a batch.
    pub repeated: u64,
    /// The last reason for a refusal, a failure or a repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Longest reason that is kept, in bytes.
const MAX_REASON: usize = 500;
/// First pause before a batch is repeated. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a waiting thread checks whether the end has come.
const GLANCE: Duration = Duration::from_millis(20);

/// The deadline for sending the rest.
#[derive(Debug, Default)]
struct SendDeadline(Mutex<Option<Instant>>);

impl SendDeadline {
    fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, end: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn is_over(&self) -> bool {
        self.get().is_some_and(|end| Instant::now() >= end)
    }
}

/// The queue and the thread that empties it.
#[derive(Debug)]
pub struct Exporter {
    queue: SyncSender<Span>,
    worker: JoinHandle<Sent>,
    end: Arc<SendDeadline>,
    flush: Duration,
    waited: AtomicU64,
}

impl Exporter {
    /// Starts to send by `transport`, which is made in the thread that uses it.
    ///
    /// # Errors
    /// The system's error if it cannot start a thread, or the error of `transport`.
    pub fn start<T: Transport>(
        limits: Limits,
        transport: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, spans) = sync_channel(limits.queue);
        let (ready, made) = sync_channel(1);
        let end = Arc::new(SendDeadline::default());
        let seen = Arc::clone(&end);
        let worker = thread::Builder::new().name("exporter".to_owned()).spawn(move || match transport() {
            Ok(transport) => {
                let _ = ready.send(Ok(()));
                Worker { transport, limits, end: seen, sent: Sent::default() }.run(&spans)
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                Sent::default()
            }
        })?;
        made.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of the exporter ended")))?;
        Ok(Self { queue, worker, end, flush: limits.flush, waited: AtomicU64::new(0) })
    }

    /// Puts a span into the queue. Waits while the queue is full.
    pub fn put(&self, span: Span) {
        use std::sync::mpsc::TrySendError;
        if let Err(TrySendError::Full(span)) = self.queue.try_send(span) {
            self.waited.fetch_add(1, Ordering::Relaxed);
            // The thread receives spans until no sender is left.
            let _ = self.queue.send(span);
        }
    }

    /// Returns how many spans waited because the queue was full.
    pub fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Returns a handle for another thread than one that may wait in [`Exporter::put`].
    pub fn hurry(&self) -> Hurry {
        Hurry { end: Arc::clone(&self.end), flush: self.flush }
    }

    /// Sends the rest within the allowed time. Returns the fate of all spans.
    ///
    /// # Errors
    /// If the thread panicked.
    pub fn finish(self) -> io::Result<Sent> {
        self.hurry().now();
        drop(self.queue);
        self.worker.join().map_err(|_| io::Error::other("the thread of the exporter panicked"))
    }
}

/// Limits the remaining time of an [`Exporter`].
#[derive(Debug)]
pub struct Hurry {
    end: Arc<SendDeadline>,
    flush: Duration,
}

impl Hurry {
    /// Starts the time for sending the rest.
    pub fn now(&self) {
        self.end.set(Some(Instant::now() + self.flush));
    }

    /// Removes the limit until [`Hurry::now`] or the end.
    pub fn not_yet(&self) {
        self.end.set(None);
    }
}

/// The sending side.
struct Worker<T> {
    transport: T,
    limits: Limits,
    end: Arc<SendDeadline>,
    sent: Sent,
}

impl<T: Transport> Worker<T> {
    fn run(mut self, spans: &Receiver<Span>) -> Sent {
        let mut batch = Vec::with_capacity(self.limits.batch);
        // A batch starts with a span, and is sent when it is full or the delay is over.
        while let Ok(first) = spans.recv() {
            batch.push(first);
            let late = Instant::now() + self.limits.delay;
            while batch.len() < self.limits.batch {
                match spans.recv_timeout(late.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            self.send(&batch);
            batch.clear();
        }
        self.sent
    }

    /// Sends a batch until it is accepted or the time is over.
    fn send(&mut self, batch: &[Span]) {
        let give_up = Instant::now() + self.limits.patience;
        let mut pause = FIRST_PAUSE;
        let count = batch.len() as u64;
        loop {
            if self.end.is_over() {
                self.sent.unsent += count;
                self.reason("the time at the end was over");
                return;
            }
            match self.transport.send(batch) {
                Ok(accepted) => {
                    let rejected = accepted.rejected.min(count);
                    self.sent.rejected += rejected;
                    self.sent.accepted += count - rejected;
                    if let Some(message) = accepted.message {
                        self.reason(&message);
                    }
                    return;
                }
                Err(failed) => {
                    self.reason(&failed.message);
                    let wait = failed.after.unwrap_or(pause);
                    if !failed.again || Instant::now() + wait >= give_up || !self.wait(wait) {
                        self.sent.unsent += count;
                        return;
                    }
                    self.sent.repeated += 1;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits. Returns whether time is left.
    fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if self.end.is_over() {
                return false;
            }
            thread::sleep(GLANCE.min(until.saturating_duration_since(Instant::now())));
        }
        true
    }

    fn reason(&mut self, text: &str) {
        let cut = text.floor_char_boundary(MAX_REASON);
        self.sent.reason = Some(text[..cut].to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        queue: 4,
        batch: 3,
        delay: Duration::from_millis(10),
        patience: Duration::from_secs(60),
        flush: Duration::from_secs(60),
    };

    fn span(number: u8) -> Span {
        Span {
            trace: [1; 16],
            id: [number; 8],
            parent: None,
            name: "MPI_File_read",
            begin: 0,
            end: 0,
            failed: false,
            attributes: Vec::new(),
        }
    }

    fn failed(again: bool, after: Option<Duration>) -> Failed {
        Failed { again, after, message: "no".to_owned() }
    }

    /// Answers from a list, then accepts everything. Keeps what it accepted.
    struct Scripted {
        answers: Vec<Result<Accepted, Failed>>,
        taken: Arc<Mutex<Vec<Vec<u8>>>>,
    }

    impl Transport for Scripted {
        fn send(&mut self, spans: &[Span]) -> Result<Accepted, Failed> {
            let answer = if self.answers.is_empty() { Ok(Accepted::default()) } else { self.answers.remove(0) };
            if answer.is_ok() {
                self.taken.lock().unwrap().push(spans.iter().map(|span| span.id[0]).collect());
            }
            answer
        }
    }

    fn run(limits: Limits, spans: u8, answers: Vec<Result<Accepted, Failed>>) -> (Sent, Vec<Vec<u8>>) {
        let taken = Arc::default();
        let transport = Scripted { answers, taken: Arc::clone(&taken) };
        let exporter = Exporter::start(limits, move || Ok(transport)).unwrap();
        (0..spans).for_each(|number| exporter.put(span(number)));
        let sent = exporter.finish().unwrap();
        assert_eq!(sent.accepted + sent.rejected + sent.unsent, u64::from(spans), "{sent:?}");
        let taken = taken.lock().unwrap().clone();
        (sent, taken)
    }

    #[test]
    fn spans_are_sent_in_order_and_batches() {
        let limits = Limits { delay: Duration::from_secs(60), ..LIMITS };
        let (sent, taken) = run(limits, 7, Vec::new());
        assert_eq!(taken, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
        assert_eq!(sent, Sent { accepted: 7, ..Sent::default() });
    }

    #[test]
    fn a_batch_is_sent_again_until_it_is_taken() {
        let limits = Limits { delay: Duration::from_secs(60), ..LIMITS };
        let answers = vec![Err(failed(true, Some(Duration::from_millis(1)))), Err(failed(true, None))];
        let (sent, taken) = run(limits, 4, answers);
        assert_eq!(taken, [vec![0, 1, 2], vec![3]]);
        assert_eq!((sent.accepted, sent.repeated, sent.reason.as_deref()), (4, 2, Some("no")));
    }

    #[test]
    fn what_is_not_taken_is_counted() {
        let limits = Limits { delay: Duration::from_secs(60), ..LIMITS };
        let rejected = Accepted { rejected: 2, message: Some("x".repeat(600)) };
        let (sent, taken) = run(limits, 6, vec![Err(failed(false, None)), Ok(rejected)]);
        assert_eq!(taken, [[3, 4, 5]]);
        assert_eq!((sent.accepted, sent.rejected, sent.unsent, sent.repeated), (1, 2, 3, 0));
        assert_eq!(sent.reason.unwrap().len(), MAX_REASON);
        // More spans cannot be refused than there were.
        let (sent, _) = run(limits, 3, vec![Ok(Accepted { rejected: 90, message: None })]);
        assert_eq!((sent.accepted, sent.rejected), (0, 3));
    }

    #[test]
    fn patience_ends() {
        let again = || Err(failed(true, None));
        let limits = Limits { delay: Duration::from_secs(60), patience: Duration::from_millis(150), ..LIMITS };
        let (sent, taken) = run(limits, 3, vec![again(), again(), again(), again()]);
        assert_eq!((sent.unsent, sent.repeated, taken.len()), (3, 1, 0), "after 100 ms, and not after 200 more");
        let long = Err(failed(true, Some(Duration::from_secs(3600))));
        assert_eq!(run(limits, 3, vec![long]).0.unsent, 3, "a receiver cannot make it wait for longer");
    }

    #[test]
    fn at_the_end_nothing_waits_for_long() {
        let limits = Limits { flush: Duration::from_millis(100), ..LIMITS };
        let begin = Instant::now();
        let (sent, _) = run(limits, 3, vec![Err(failed(true, Some(Duration::from_secs(30))))]);
        assert_eq!(sent.unsent, 3);
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_full_queue_makes_the_other_side_wait() {
        struct Slow;
        impl Transport for Slow {
            fn send(&mut self, _: &[Span]) -> Result<Accepted, Failed> {
                thread::sleep(Duration::from_millis(20));
                Ok(Accepted::default())
            }
        }
        let exporter = Exporter::start(LIMITS, || Ok(Slow)).unwrap();
        (0..30).for_each(|number| exporter.put(span(number)));
        assert!(exporter.waited() > 0);
        assert_eq!(exporter.finish().unwrap().accepted, 30);
    }

    #[test]
    fn a_transport_that_cannot_be_made_is_an_error() {
        let error = Exporter::start(LIMITS, || -> io::Result<Scripted> { Err(io::Error::other("no address")) });
        assert_eq!(error.unwrap_err().to_string(), "no address");
    }
}
