// SPDX-License-Identifier: MIT OR Apache-2.0
//! The relay: the process that srun starts on a node. It starts the agent, forwards its messages to
//! the command, and answers the processes of its node.

#![allow(clippy::disallowed_methods, reason = "the relay's output is a pipe to the program that started it")]

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    os::unix::net::UnixListener,
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use bpfassay_packages::digest::Digest;
use bpfassay_protocol::{
    frame::Decoder,
    job::{Job, Task},
    message::{GuestMessage, RunOutcome},
    with_causes,
};
use rustix::process::{Pid, geteuid};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    process::Child,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use super::{
    node::{NodeError, address, of_ranks, of_stand, program_of_stand},
    node_wire::{self, Begin, FromNode, FromRelay, MAX_LINE, MAX_LOCAL, ToNode, ToRelay, WaitingStandIn},
};
use crate::{
    here_process::{AGENT, Agent, PAYLOAD, arguments, ask_to_stop, clear, kill, start, unnamed},
    here_reason::MachineLimits,
    here_tools::ToolPlaces,
};

/// How long a stopping agent can take to remove what it made. Slurm kills the rest of a step after
/// `KillWait`, 30 s by default.
const ENDING: Duration = Duration::from_secs(25);

/// How long a process of this node can take to introduce itself.
const GREETING: Duration = Duration::from_secs(10);

/// Runs the relay of this node until its agent has ended. All relays of one command share `token`.
///
/// # Errors
/// [`NodeError`]. A failure of the agent is forwarded as a message.
pub async fn relay(token: &str) -> Result<(), NodeError> {
    let own = std::process::id();
    let stand = listen(&of_stand(own)).map_err(NodeError::Relay)?;
    let ranks = listen(&of_ranks(token)).map_err(NodeError::Relay)?;
    let mut orders = orders();
    let first = orders.recv().await;
    let Some(Ok(ToNode::Begin(begin))) = first else {
        let what =
            first.map_or_else(|| "it ended".to_owned(), |first| format!("{first:?}").chars().take(200).collect());
        return Err(NodeError::Relay(io::Error::new(io::ErrorKind::InvalidData, format!("no job came: {what}"))));
    };
    let problem = match Relay::begin(*begin, own) {
        Ok(mut relay) => relay.serve(&mut orders, &stand, &ranks).await.map_err(NodeError::Relay)?,
        Err(problem) => Some(problem),
    };
    send(&FromNode::Ended { problem }).map_err(NodeError::Relay)
}

/// Listens at the abstract socket `name`.
fn listen(name: &str) -> io::Result<tokio::net::UnixListener> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
    listener.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(listener)
}

/// Sends `message` to the command.
fn send(message: &FromNode) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&node_wire::line(message)?)?;
    out.flush()
}

/// Reads the command's orders on a detached thread, because reading stdin is not cancellable.
fn orders() -> mpsc::Receiver<io::Result<ToNode>> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        use std::io::{BufRead as _, Read as _};
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let order = match input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) => node_wire::message(&line),
                Err(error) => Err(error),
            };
            let is_end = order.is_err();
            if sender.blocking_send(order).is_err() || is_end {
                return;
            }
        }
    });
    receiver
}

/// A relay whose agent has been started.
struct Relay {
    agent: Agent,
    child: Child,
    job: Job,
    is_first: bool,
    /// The stand-in for IOR, and its cgroup.
    standing: Option<(UnixStream, String)>,
    /// The last report to the command about the stand-in.
    waiting: Option<WaitingStandIn>,
}

impl Relay {
    /// Starts the agent.
    fn begin(Begin { mount, job, is_first }: Begin, own: u32) -> Result<Self, String> {
        let program = |name: &str| {
            which::which(name).map_err(|_| format!("there is no program {name} in PATH: install it on all nodes"))
        };
        let own_program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let mut programs = BTreeMap::new();
        let named = [AGENT].iter().chain(&PAYLOAD).map(|name| Ok((*name, program(name)?)));
        let named: Vec<(&str, PathBuf)> = named.collect::<Result<_, String>>()?;
        for (name, path) in
            named.iter().map(|(name, path)| (*name, path.as_path())).chain([("bpfassay", &*own_program)])
        {
            let digest = Digest::of_file(path).map_err(|error| with_causes(&error))?;
            programs.insert(name.to_owned(), digest.to_string());
        }
        let agent = Agent {
            program: program(AGENT)?,
            mount,
            external_ior: Some(program_of_stand(own)),
            tools: ToolPlaces::default(),
            limits: MachineLimits::of_this_machine(&rustix::system::uname().release().to_string_lossy()),
        };
        let failed = |error: io::Error| format!("could not start {}: {error}", agent.program.display());
        let file = unnamed(&job).map_err(failed)?;
        let child = start(&agent, &arguments(&agent), file, Stdio::inherit()).map_err(failed)?;
        send(&FromNode::Begun { programs }).map_err(|error| error.to_string())?;
        Ok(Self { agent, child, job, is_first, standing: None, waiting: None })
    }

    /// Forwards messages in both directions until the agent has ended. Returns why the agent ended,
    /// if it ended early.
    ///
    /// # Errors
    /// The system's error. The agent ends by itself when this process does.
    async fn serve(
        &mut self,
        orders: &mut mpsc::Receiver<io::Result<ToNode>>,
        stand: &tokio::net::UnixListener,
        ranks: &tokio::net::UnixListener,
    ) -> io::Result<Option<String>> {
        let group = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let mut output = self.child.stdout.take().ok_or_else(|| io::Error::other("the agent has no output"))?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        let mut is_stopping = false;
        let mut last_words = None;
        let deadline = tokio::time::sleep(Duration::MAX);
        tokio::pin!(deadline);
        loop {
            let mut stop = false;
            tokio::select! {
                read = output.read(&mut buffer) => match read? {
                    0 => break,
                    length => {
                        decoder.push(&buffer[..length]);
                        if let Err(problem) = self.pass_on(&mut decoder) {
                            last_words = Some(problem);
                            stop = true;
                        }
                    }
                },
                order = orders.recv(), if !is_stopping => match order {
                    Some(Ok(ToNode::Over { problem })) => self.over(problem).await,
                    Some(Ok(ToNode::Begin(_)) | Err(_)) | None => stop = true,
                },
                _ = terminated.recv(), if !is_stopping => stop = true,
                came = stand.accept() => self.greet(came?.0).await?,
                came = ranks.accept() => self.greet(came?.0).await?,
                () = &mut deadline => break,
            }
            if stop && !is_stopping {
                is_stopping = true;
                ask_to_stop(group);
                deadline.as_mut().reset(tokio::time::Instant::now() + ENDING);
            }
        }
        let status = tokio::time::timeout(ENDING, self.child.wait()).await;
        kill(group);
        let has_exited = matches!(&status, Ok(Ok(status)) if status.code().is_some());
        if !has_exited && !clear(&self.agent, Stdio::inherit()).await.unwrap_or(false) {
            return Ok(Some("the agent was killed, and what it left could not all be removed".to_owned()));
        }
        Ok(last_words.or(match status {
            Ok(Ok(status)) if status.success() => None,
            Ok(Ok(status)) => Some(format!("the agent ended: {status}")),
            Ok(Err(error)) => Some(format!("the agent ended: {error}")),
            Err(_) => Some(format!("the agent did not end within {} s", ENDING.as_secs())),
        }))
    }

    /// Forwards the decoded messages. Refusals get an explanation from this node.
    fn pass_on(&self, decoder: &mut Decoder) -> Result<(), String> {
        while let Some(mut message) = decoder.next::<GuestMessage>().map_err(|error| with_causes(&error))? {
            if let GuestMessage::RunEnded { run, outcome } = &mut message
                && let RunOutcome::Refused(refusal) = outcome.as_mut()
            {
                let Task::Runs { runs } = &self.job.task else { return Err("the job has no runs".to_owned()) };
                let spec = runs.iter().find(|spec| spec.id == *run);
                self.agent.limits.explain(spec.map(|spec| spec.probe.probe), refusal);
            }
            send(&FromNode::Message(Box::new(message))).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Tells the stand-in that IOR has ended.
    async fn over(&mut self, problem: Option<String>) {
        self.waiting = None;
        let Some((mut stream, _)) = self.standing.take() else { return };
        // If the stand-in has ended, the agent ended it and reports why.
        if let Ok(line) = node_wire::line(&FromRelay::Over { problem, is_first: self.is_first }) {
            let _ = stream.write_all(&line).await;
        }
    }

    /// Answers a process of this node if it belongs to this user.
    ///
    /// # Errors
    /// The command cannot be reached any more.
    async fn greet(&mut self, stream: UnixStream) -> io::Result<()> {
        if !stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw()) {
            return Ok(());
        }
        let mut stream = BufReader::new(stream);
        let greeted = tokio::time::timeout(GREETING, node_wire::next(&mut stream, MAX_LOCAL)).await;
        let Ok(Ok(Some(greeting))) = greeted else { return Ok(()) };
        let mut stream = stream.into_inner();
        match greeting {
            ToRelay::Stand { arguments, directory, cgroup } => {
                let waiting = WaitingStandIn { arguments, directory, ranks: 0 };
                self.standing = Some((stream, cgroup));
                self.waiting = Some(waiting.clone());
                send(&FromNode::Waiting(waiting))
            }
            ToRelay::Rank => {
                let answer = match (&self.standing, &mut self.waiting) {
                    (Some((_, cgroup)), Some(waiting)) => {
                        waiting.ranks = waiting.ranks.saturating_add(1);
                        send(&FromNode::Waiting(waiting.clone()))?;
                        FromRelay::Join { cgroup: cgroup.clone() }
                    }
                    _ => FromRelay::NoRun,
                };
                // If a rank has ended, IOR fails, and the launcher reports this.
                let _ = stream.write_all(&node_wire::line(&answer)?).await;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_ior_is_the_program_of_the_relay() {
        let stand = program_of_stand(std::process::id()).canonicalize().unwrap();
        assert_eq!(stand, std::env::current_exe().unwrap().canonicalize().unwrap());
    }

    /// A rank reaches only its node's relay, and none after that relay has ended.
    #[tokio::test]
    async fn a_socket_is_found_by_its_name_and_is_gone_with_its_process() {
        let name = of_ranks(&format!("test-{}", std::process::id()));
        let listener = listen(&name).unwrap();
        let address = address(&name).unwrap();
        std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        assert!(listen(&name).is_err());
        drop(listener);
        assert!(std::os::unix::net::UnixStream::connect_addr(&address).is_err());
    }
}
