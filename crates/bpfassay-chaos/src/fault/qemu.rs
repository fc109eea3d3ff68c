//! QEMU killed, stopped, or not to be had: trouble of the host, which no tool is to blame for.

use super::{Draw, Fault, all_runs, at_moment, host_of};
use crate::{
    script::{Act, Deed, Point, When},
    trial::{HostDeed, Trial},
};

const HUP: i32 = 1;
const ILL: i32 = 4;
const ABRT: i32 = 6;
const KILL: i32 = 9;
const SEGV: i32 = 11;
const TERM: i32 = 15;

/// One line per fault.
pub(super) const FAULTS: &[Fault] = &[
    Fault::new("qemu/killed", |draw| killed_once(draw, &[KILL])),
    Fault::new("qemu/crashes", |draw| killed_once(draw, &[SEGV, ABRT, ILL])),
    Fault::new("qemu/ended", |draw| killed_once(draw, &[TERM, HUP])),
    Fault::new("qemu/killed-always", killed_always).rare(),
    Fault::new("qemu/killed-everywhere", |draw| everywhere(draw, Deed::Kill(KILL), Point::Ready)).rare().wide(),
    Fault::new("qemu/does-not-start", |draw| {
        let mut trial = draw.trial();
        let block = draw.block();
        trial.told = format!("once in {}", block.id);
        trial.acts.push(Act { when: When::once(&block.id, Point::Launch), deed: refusal(draw) });
        trial
    }),
    Fault::new("qemu/never-starts", |draw| {
        let deed = refusal(draw);
        everywhere(draw, deed, Point::Launch)
    })
    .rare()
    .wide(),
    Fault::new("qemu/stopped-for-a-while", |draw| {
        let for_ms = draw.random.between(50, 800);
        draw.harmless(Deed::Stop(Some(for_ms)))
    }),
    Fault::new("qemu/stopped", stopped).rare(),
    Fault::new("qemu/gone", |draw| {
        let mut trial = draw.trial();
        host_of(&mut trial.expected, all_runs(draw.bench));
        at_moment(draw, &mut trial, HostDeed::NoQemu);
        trial
    }),
];

/// QEMU's last words, when it does not start.
fn refusal(draw: &mut Draw<'_>) -> Deed {
    let words = [
        "qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory",
        "qemu-system-x86_64: error while loading shared libraries: libglib-2.0.so.0: cannot open shared object file",
        "",
    ];
    let words = draw.random.pick(&words).copied().unwrap_or_default().to_owned();
    Deed::Refuse { status: u8::from(draw.random.percent(80)), words }
}

fn killed_once(draw: &mut Draw<'_>, signals: &[i32]) -> Trial {
    let mut trial = draw.trial();
    let (block, mut point) = draw.moment();
    let signal = draw.random.pick(signals).copied().unwrap_or(KILL);
    if point == Point::Launch && signal == HUP {
        point = Point::Boot;
    }
    trial.told = format!("signal {signal}, once in {} at {point:?}", block.id);
    trial.acts.push(Act { when: When::once(&block.id, point), deed: Deed::Kill(signal) });
    trial
}

/// One block never comes to its end; the others do.
fn killed_always(draw: &mut Draw<'_>) -> Trial {
    let mut trial = draw.trial();
    let block = draw.block();
    host_of(&mut trial.expected, block.runs.iter().map(|run| run.order.id.clone()));
    trial.told = format!("always in {}", block.id);
    trial.acts.push(Act { when: When::always(Some(&block.id), vec![Point::Ready]), deed: Deed::Kill(KILL) });
    trial
}

/// No block comes to its end: after some of them, no other is begun.
fn everywhere(draw: &mut Draw<'_>, deed: Deed, point: Point) -> Trial {
    let mut trial = draw.trial();
    host_of(&mut trial.expected, all_runs(draw.bench));
    trial.told = format!("always, everywhere, at {point:?}");
    trial.acts.push(Act { when: When::always(None, vec![point]), deed });
    trial
}

/// It looks like a guest that hangs. Whoever hangs once in a tool run is blamed for it, unless the host finds out.
fn stopped(draw: &mut Draw<'_>) -> Trial {
    let mut trial = draw.broken_guest(Deed::Stop(None), &["deadline", "silent", "host"], true);
    for blame in trial.expected.blamed.values_mut() {
        blame.must = false;
    }
    // A host that finds out tries again, and fails the block if it goes on.
    if trial.expected.lasts {
        host_of(&mut trial.expected, all_runs(draw.bench));
    }
    trial
}
