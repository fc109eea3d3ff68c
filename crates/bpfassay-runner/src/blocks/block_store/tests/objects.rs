// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object store, in memory and behind hostile servers, behaves like a directory.
//! `ci/checks/objects` tests the protocol against a server.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use bpfassay_results::ToDo;
use object_store::{ObjectStore, ObjectStoreExt as _, memory::InMemory, path::Path as ObjectPath};

use super::*;
use crate::blocks::block_store::{
    RunStore,
    object_place::Objects,
    store_error::{BlockStoreError, MAX_ENTRY},
};

const URL: &str = "s3://bucket/ci";

/// A store in memory, with access to its objects.
fn in_memory() -> (Arc<dyn ObjectStore>, BlockStore) {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Objects::of(URL, Box::new(Arc::clone(&objects)), &"ci".into()).opened(true).unwrap();
    (objects, BlockStore::of_objects(store))
}

/// The name of an entry among the objects.
fn location(store: &BlockStore, key: &StoreKey) -> ObjectPath {
    let path = store.entry(key).display().to_string();
    ObjectPath::from(path.strip_prefix("s3://bucket/").unwrap())
}

fn put(objects: &Arc<dyn ObjectStore>, location: &ObjectPath, content: Vec<u8>) {
    done(objects.put(location, content.into())).unwrap();
}

fn bytes(objects: &Arc<dyn ObjectStore>, location: &ObjectPath) -> Vec<u8> {
    done(async { objects.get(location).await.unwrap().bytes().await.unwrap().to_vec() })
}

fn problem(store: &BlockStore, key: &StoreKey) -> String {
    match store.find(key) {
        Err(BlockStoreError::Damaged { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_kept_is_found_again_and_listed() {
    let (objects, store) = in_memory();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    assert_eq!(store.keys().unwrap(), []);
    let mut keys = keep_all(&store, &contents);
    for (block, key) in plan.blocks.iter().zip(&keys) {
        assert_eq!(
            found(&store, key),
            Some(BlockRecords::of(block, of_block(&contents, block)).unwrap().without_log())
        );
    }
    // Other objects are not listed as entries.
    put(&objects, &ObjectPath::from("ci/bpfassay-blocks-1/00/notes.txt"), b"x".to_vec());
    put(&objects, &ObjectPath::from(format!("ci/bpfassay-blocks-1/zz/{}.jsonl", keys[0])), b"x".to_vec());
    put(&objects, &ObjectPath::from("elsewhere/x"), b"x".to_vec());
    keys.sort_unstable();
    assert_eq!(store.keys().unwrap(), keys);
    let other: StoreKey = Digest::of(b"other").to_string().parse().unwrap();
    assert!(found(&store, &other).is_none());
    // A run reuses the entries, and reports where they come from.
    let (setup, provenance) = (host_setup(&plan), shared(&contents.header.provenance));
    let with = reuse(store);
    let reuse = RunStore { with: &with, plan: &plan, provenance: &provenance };
    let taken = done(reuse.look_up(&setup, &ToDo::fresh(plan.blocks[0].clone()))).unwrap();
    let JournalEntry::BlockStarted(started) = &taken[0] else { panic!("no start") };
    assert_eq!(started.reused.as_ref().unwrap().store, URL);
}

#[test]
fn a_store_is_made_once_and_a_missing_one_is_no_store() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let of = || Objects::of(URL, Box::new(Arc::clone(&objects)), &"ci".into());
    assert!(matches!(of().opened(false), Err(BlockStoreError::NoStore(_))));
    of().opened(true).unwrap();
    of().opened(true).unwrap();
    of().opened(false).unwrap();
    assert_eq!(bytes(&objects, &ObjectPath::from("ci/bpfassay-blocks-1/store.json")), b"{\"format\":1}\n");
}

#[test]
fn an_entry_of_another_host_stays_unless_everything_is_measured() {
    let (objects, store) = in_memory();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let key = keep_all(&store, &contents)[0];
    let first = bytes(&objects, &location(&store, &key));
    assert_eq!(keep_all(&store, &journal(&plan, "b"))[0], key);
    assert_eq!(bytes(&objects, &location(&store, &key)), first);
    let other = journal(&plan, "b");
    let records = BlockRecords::of(&plan.blocks[0], of_block(&other, &plan.blocks[0])).unwrap();
    done(store.keep(records, (&plan, &plan.blocks[0]), &other.header.provenance, true)).unwrap();
    assert_ne!(bytes(&objects, &location(&store, &key)), first);
    assert!(found(&store, &key).is_some());
}

#[test]
fn what_is_damaged_or_of_another_key_is_reported_put_aside_and_measured_anew() {
    let (objects, store) = in_memory();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let keys = keep_all(&store, &contents);
    let whole = bytes(&objects, &location(&store, &keys[0]));
    put(&objects, &location(&store, &keys[1]), whole.clone());
    let another = problem(&store, &keys[1]);
    assert_eq!(another, format!("it is of another block: by what it has, its name is {}", keys[0]));
    for wrong in [Vec::new(), b"<Error/>".to_vec(), whole[..whole.len() / 2].to_vec(), vec![0xff; 100]] {
        put(&objects, &location(&store, &keys[0]), wrong);
        problem(&store, &keys[0]);
    }
    put(&objects, &location(&store, &keys[0]), vec![b'x'; usize::try_from(MAX_ENTRY).unwrap() + 1]);
    assert!(problem(&store, &keys[0]).contains("no entry has more than"));
    put(&objects, &location(&store, &keys[0]), b"damaged\n".to_vec());
    let (setup, provenance) = (host_setup(&plan), shared(&contents.header.provenance));
    let with = reuse(store);
    let reuse = RunStore { with: &with, plan: &plan, provenance: &provenance };
    let todo = ToDo::fresh(plan.blocks[0].clone());
    assert_eq!(done(reuse.look_up(&setup, &todo)), None);
    assert!(!with.store.keys().unwrap().contains(&keys[0]));
    let aside = done(objects.list_with_delimiter(Some(&ObjectPath::from("ci/bpfassay-blocks-1/aside")))).unwrap();
    assert_eq!(aside.objects.len(), 1);
    assert_eq!(bytes(&objects, &aside.objects[0].location), b"damaged\n");
    done(reuse.keep(&plan.blocks[0], of_block(&contents, &plan.blocks[0])));
    assert!(done(reuse.look_up(&setup, &todo)).is_some());
}

/// A server that answers every request with `answer`. The counter has the number of requests.
fn server(answer: impl Fn(&mut std::net::TcpStream) + Send + Sync + 'static) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/store", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU32::new(0));
    let (counted, answer) = (Arc::clone(&asked), Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted, answer) = (stream.unwrap(), Arc::clone(&counted), Arc::clone(&answer));
            thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                counted.fetch_add(1, Ordering::Relaxed);
                answer(&mut stream);
            });
        }
    });
    (url, asked)
}

fn url(text: &str) -> StorePlace {
    text.parse().unwrap()
}

#[test]
fn a_store_that_refuses_or_cannot_be_reached_is_an_error_that_names_it() {
    let (denied, _) = server(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
    let error = BlockStore::open(&url(&denied)).unwrap_err();
    assert!(matches!(&error, BlockStoreError::Objects { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("cannot look for a store in {denied}"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let begun = Instant::now();
    let error = BlockStore::open(&url(&format!("http://{nobody}"))).unwrap_err();
    assert!(matches!(&error, BlockStoreError::Objects { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_store_that_fails_again_and_again_is_not_asked_any_more() {
    // The server answers the first request as a store does, and all later ones with an error.
    let is_store = Arc::new(AtomicU32::new(0));
    let (place, asked) = server(move |stream| {
        let first = is_store.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = if first {
            "HTTP/1.1 200 OK\r\ncontent-length: 13\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nconnection: close\r\n\r\n"
        } else {
            "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        };
        let _ = stream.write_all(answer.as_bytes());
    });
    let store = BlockStore::open(&url(&place)).unwrap();
    let key: StoreKey = Digest::of(b"any").to_string().parse().unwrap();
    for _ in 0..2 {
        assert!(matches!(store.find(&key), Err(BlockStoreError::Objects { .. })));
    }
    let before = asked.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(store.find(&key), Err(BlockStoreError::NotAsked(_))));
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    let (place, _) = server(|stream| {
        let head =
            "HTTP/1.1 200 OK\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: 1000000000000\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        let chunk = vec![b'x'; 1 << 20];
        while sent.is_ok() {
            sent = stream.write_all(&chunk);
        }
    });
    let store = BlockStore::of_objects(Objects::client(&place).unwrap());
    let key: StoreKey = Digest::of(b"any").to_string().parse().unwrap();
    let error = store.find(&key).unwrap_err();
    assert!(bpfassay_protocol::with_causes(&error).contains("the answer has more than"), "{error:?}");
}
