//! placeholder
struct Object { probe: &'static str, map: &'static str, elf: &'static [u8] }
#[repr(align(16))]
struct Aligned<T: ?Sized>(T);
static OBJECTS: &[Object] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));
fn main() { for o in OBJECTS { 
 let mut b = libbpf_rs::ObjectBuilder::default();
 let r = b.open_memory(o.elf).and_then(|o| o.load());
 println!("{} {} {} {:?}", o.probe, o.map, o.elf.len(), r.is_ok()); } }
