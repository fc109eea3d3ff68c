// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

const fn on(function: &str, way: HookKind) -> HookedFunction<'_> {
    HookedFunction { function, assumed: function, way }
}

/// A kernel without any pitfall of `vfs_read` and `vfs_write`.
fn facts() -> FunctionFacts<'static> {
    let one = Symbol { count: 1, ..Symbol::default() };
    FunctionFacts {
        symbols: Ok(["vfs_read", "vfs_write"].map(|name| (name.to_owned(), one.clone())).into()),
        traceable: Some(Ok(BTreeSet::from(["vfs_read", "vfs_write"]))),
        blacklist: Ok(String::new()),
        enabled: Ok(String::new()),
        kprobes: Ok(String::new()),
        prototypes: Ok(["vfs_read", "vfs_write"].map(|name| (name.to_owned(), expected::of(name)[0].clone())).into()),
    }
}

fn pitfalls(hooks: &[HookedFunction<'_>], facts: &FunctionFacts<'_>) -> Vec<Pitfall> {
    evaluate(hooks, facts).into_iter().map(|finding| finding.pitfall).collect()
}

fn symbol(count: usize, variants: &[&str]) -> Symbol {
    Symbol { count, variants: variants.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn a_kernel_without_pitfalls_has_no_findings() {
    for way in [HookKind::Kprobe, HookKind::Ftrace] {
        assert_eq!(evaluate(&[on("vfs_read", way), on("vfs_write", way)], &facts()), []);
    }
}

#[test]
fn missing_symbols_are_distinguished() {
    let read = [on("vfs_read", HookKind::Kprobe)];
    let with = |symbol: Symbol, in_btf: bool| {
        let mut facts = facts();
        facts.symbols = Ok([("vfs_read".to_owned(), symbol)].into());
        if !in_btf {
            facts.prototypes = Ok(Vec::new());
        }
        pitfalls(&read, &facts)
    };
    assert_eq!(with(symbol(0, &[]), false), [Pitfall::SymbolMissing]);
    assert_eq!(with(symbol(0, &[]), true), [Pitfall::SymbolInlined]);
    assert_eq!(with(symbol(0, &["vfs_read.isra.0"]), true), [Pitfall::SymbolRenamed]);
    assert_eq!(with(symbol(1, &["vfs_read.part.0"]), true), [Pitfall::SymbolInlined]);
    assert_eq!(with(symbol(1, &["vfs_read.constprop.0"]), true), []);
    assert_eq!(with(symbol(2, &[]), true), [Pitfall::SymbolAmbiguous]);
}

#[test]
fn pitfalls_depend_on_how_a_function_is_hooked() {
    let mut facts = facts();
    facts.traceable = Some(Ok(BTreeSet::from(["vfs_write"])));
    facts.blacklist = Ok("0x1-0x2\tvfs_read\n".to_owned());
    assert_eq!(pitfalls(&[on("vfs_read", HookKind::Ftrace)], &facts), [Pitfall::NotTraceable]);
    assert_eq!(pitfalls(&[on("vfs_read", HookKind::Kprobe)], &facts), [Pitfall::NotTraceable, Pitfall::Blacklisted]);
    assert_eq!(pitfalls(&[on("vfs_write", HookKind::Ftrace)], &facts), []);
    facts.traceable = None;
    assert_eq!(pitfalls(&[on("vfs_read", HookKind::Ftrace)], &facts), [], "not looked at");
}

#[test]
fn a_function_that_others_hook_is_reported_with_its_numbers() {
    let mut facts = facts();
    facts.enabled = Ok("vfs_read (2) R   D\tx\n".to_owned());
    facts.kprobes = Ok("ffffffff8135d3f0  k  vfs_read+0x0    [FTRACE]\n".to_owned());
    let found = evaluate(&[on("vfs_read", HookKind::Ftrace)], &facts);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].pitfall, found[0].detail.as_str()),
        (Pitfall::FunctionShared, "hooked before this tracer attached: ftrace has 2 callbacks, flags RD, 1 kprobe")
    );
}

#[test]
fn a_prototype_is_compared_with_what_the_program_assumes() {
    let read = HookedFunction { function: "vfs_write", assumed: "vfs_readv", way: HookKind::Ftrace };
    let found = evaluate(&[read], &facts());
    assert_eq!(found[0].pitfall, Pitfall::PrototypeDiffers);
    assert_eq!(
        found[0].detail,
        "the kernel has `ssize_t vfs_write(struct file *, const char *, size_t, loff_t *)`, the program assumes \
         `ssize_t vfs_readv(struct file *, const struct iovec *, unsigned long, loff_t *, rwf_t)`"
    );
}

#[test]
fn files_that_could_not_be_read_are_reported() {
    let gone = || Unread { what: "/x", why: "no such file".to_owned() };
    let nothing = FunctionFacts {
        symbols: Err(gone()),
        traceable: Some(Err(gone())),
        blacklist: Err(gone()),
        enabled: Err(gone()),
        kprobes: Err(gone()),
        prototypes: Err(gone()),
    };
    let found = evaluate(&[on("vfs_read", HookKind::Ftrace)], &nothing);
    assert_eq!(found, [finding(Pitfall::NotChecked, "/x", "cannot be read (no such file)")], "each once");
}

#[test]
fn this_machine_can_be_checked() {
    let found = before_hooking([("vfs_nowhere", HookKind::Kprobe)], &TracerOptions::default(), SearchTime::Refused);
    assert!(found.iter().any(|finding| matches!(finding.pitfall, Pitfall::SymbolMissing | Pitfall::NotChecked)));
    assert!(before_hooking([], &TracerOptions::default(), SearchTime::Refused).is_empty());
    assert_eq!(look_for(b"no object", &TracerOptions::default(), SearchTime::Refused)[0].pitfall, Pitfall::NotChecked);
}

#[test]
fn sections_name_functions_and_ways() {
    assert_eq!(hook("fexit/vfs_read"), Some(("vfs_read", HookKind::Ftrace)));
    assert_eq!(hook("?kretprobe/vfs_read"), Some(("vfs_read", HookKind::Kprobe)));
    assert_eq!(hook("kprobe/vfs_read+0x8"), Some(("vfs_read", HookKind::Kprobe)));
    for other in ["tp/syscalls/sys_enter_read", "uprobe/read", ".maps", "license", "fexit", "kprobe/"] {
        assert_eq!(hook(other), None, "{other}");
    }
    let elf = crate::loader::plan::object_files::find(
        bpfassay_protocol::probe::Probe::Fexit,
        bpfassay_protocol::probe::MapLayout::Percpu,
    );
    let options = TracerOptions {
        functions: [("vfs_read".to_owned(), "vfs_nowhere".to_owned())].into(),
        ..TracerOptions::default()
    };
    let found = look_for(elf.unwrap().elf, &options, SearchTime::Before);
    let about = |finding: &Finding| finding.subject == "vfs_nowhere" || finding.pitfall == Pitfall::NotChecked;
    assert!(found.iter().any(about), "{found:?}");
}

#[test]
fn a_function_without_a_symbol_of_its_name_is_absent() {
    let renamed = Symbol { count: 0, variants: ["aio_read.constprop.0".to_owned()].into() };
    let part = Symbol { count: 1, variants: ["vfs_rmdir.part.0".to_owned()].into() };
    let findings: Vec<Finding> = [
        of_symbol("aio_read", &renamed, Some(true)),
        of_symbol("vfs_rmdir", &part, Some(true)),
        of_symbol("inlined", &Symbol::default(), Some(true)),
        of_symbol("gone", &Symbol::default(), Some(false)),
        of_symbol("there", &Symbol { count: 1, ..Symbol::default() }, Some(true)),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert_eq!(absent(&findings).into_iter().collect::<Vec<_>>(), ["aio_read", "gone", "inlined"]);
}
