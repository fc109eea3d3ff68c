// SPDX-License-Identifier: MIT OR Apache-2.0
//! A headless Chromium, controlled by its DevTools protocol over two pipes
//! (<https://chromedevtools.github.io/devtools-protocol/>; with `--remote-debugging-pipe`, messages
//! end with a zero byte).

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// The environment variable that names the browser, or is `off`.
const VARIABLE: &str = "BPFASSAY_BROWSER";
/// The browser's names in Debian and elsewhere.
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// The timeout for any answer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Finds the browser for the tests; `None`, with a message, if there is none and none is required.
pub(crate) fn find() -> Option<PathBuf> {
    match env::var_os(VARIABLE) {
        Some(value) if value == "off" => {
            println!("SKIPPED: {VARIABLE}=off: the page is not tested in a browser");
            None
        }
        Some(path) => Some(path.into()),
        None => {
            let path = env::var_os("PATH").unwrap_or_default();
            let found = NAMES.iter().flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name)));
            let found = found.into_iter().find(|file| file.is_file());
            if found.is_none() {
                println!("SKIPPED: no Chromium here: install chromium-headless-shell, or name one in {VARIABLE}");
            }
            found
        }
    }
}

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// Events that the page sent without a request.
    events: Vec<Value>,
    // The directory is removed when the browser has ended.
    profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let log = fs::File::create(profile.path().join("log")).unwrap();
        // The protocol uses descriptors 3 and 4. root cannot have the browser's sandbox, so it is
        // off: the page is ours.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >&2"])
            .arg(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self { child, input, messages, last_id: 0, session: None, events: Vec::new(), profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens `file` and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.canonicalize().unwrap().display());
        let answer = self.call("Page.navigate", json!({"url": url}));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive();
            self.events.push(event);
        }
    }

    /// Returns all requests to the network or for files, and all messages of the console.
    pub(crate) fn requests_and_complaints(&self) -> (Vec<String>, Vec<String>) {
        let (mut requests, mut complaints) = (Vec::new(), Vec::new());
        for event in &self.events {
            match event["method"].as_str() {
                Some("Network.requestWillBeSent") => {
                    requests.push(event["params"]["request"]["url"].as_str().unwrap().to_owned());
                }
                Some("Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown") => {
                    complaints.push(event["params"].to_string());
                }
                _ => {}
            }
        }
        (requests, complaints)
    }

    /// Sets the width of the window, in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32) {
        let metrics = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Sets the `medium`, `screen` or `print`, and the `scheme`, `light` or `dark`.
    pub(crate) fn show_as(&mut self, medium: &str, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": medium, "features": features}));
    }

    /// Evaluates `expression` in JavaScript, and waits for its promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let order = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", order);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Returns a picture of the whole page, as a PNG in base64.
    pub(crate) fn screenshot(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        picture["data"].as_str().unwrap().to_owned()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut order = json!({"id": self.last_id, "method": method, "params": params});
        if let Some(session) = &self.session {
            order["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{order}\0").as_bytes()).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] != self.last_id {
                self.events.push(message);
                continue;
            }
            assert!(message["error"].is_null(), "{method}: {}", message["error"]);
            return message["result"].take();
        }
    }

    fn receive(&self) -> Value {
        self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.profile.path().join("log")).unwrap_or_default();
            panic!("the browser does not answer: {error}\n{log}")
        })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
