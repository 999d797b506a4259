use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Lamp(Arc<AtomicUsize>);
struct Chair;

cl_object!(Lamp, CL_INVALID_MEM_OBJECT, destroyed: |lamp, _| {
    lamp.0.fetch_add(1, Ordering::SeqCst);
});
cl_object!(Chair, CL_INVALID_EVENT);

fn mk_lamp() -> (*mut c_void, Arc<AtomicUsize>) {
    let destroyed = Arc::new(AtomicUsize::new(0));
    (Object::new(Lamp(Arc::clone(&destroyed))).as_ptr(), destroyed)
}

#[test]
fn the_first_word_of_a_handle_is_the_dispatch_table() {
    let (lamp, _) = mk_lamp();
    // SAFETY: the object is live, and its first word is read.
    let first = unsafe { *lamp.cast::<*const Dispatch>() };
    assert_eq!(first, &raw const DISPATCH);
    release::<Lamp>(lamp).unwrap();
}

#[test]
fn a_handle_lives_as_long_as_its_references() {
    let (lamp, destroyed) = mk_lamp();
    retain::<Lamp>(lamp).unwrap();
    assert_eq!(lookup::<Lamp>(lamp).unwrap().references(), 2);
    release::<Lamp>(lamp).unwrap();
    assert_eq!(destroyed.load(Ordering::SeqCst), 0);
    release::<Lamp>(lamp).unwrap();
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
    assert_eq!(release::<Lamp>(lamp), Err(ClError(cl::CL_INVALID_MEM_OBJECT)));
    assert!(lookup::<Lamp>(lamp).is_err());
}

#[test]
fn garbage_null_and_handles_of_another_type_are_refused() {
    let chair = Object::new(Chair).as_ptr();
    for handle in [std::ptr::null_mut(), 0xdead_beef as *mut c_void, chair] {
        assert_eq!(lookup::<Lamp>(handle).unwrap_err(), ClError(cl::CL_INVALID_MEM_OBJECT));
        assert_eq!(retain::<Lamp>(handle), Err(ClError(cl::CL_INVALID_MEM_OBJECT)));
    }
    release::<Chair>(chair).unwrap();
}

#[test]
fn what_is_retained_implicitly_stays_known_without_references() {
    let (lamp, destroyed) = mk_lamp();
    let used_by_a_command = lookup::<Lamp>(lamp).unwrap();
    release::<Lamp>(lamp).unwrap();
    assert_eq!(used_by_a_command.references(), 0);
    assert!(lookup::<Lamp>(lamp).is_ok());
    assert_eq!(release::<Lamp>(lamp), Err(ClError(cl::CL_INVALID_MEM_OBJECT)), "released once too often");
    drop(used_by_a_command);
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
    assert!(lookup::<Lamp>(lamp).is_err());
}

#[test]
fn references_are_counted_across_threads() {
    let (lamp, destroyed) = mk_lamp();
    let lamp_address = lamp as usize;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    retain::<Lamp>(lamp_address as *mut c_void).unwrap();
                    release::<Lamp>(lamp_address as *mut c_void).unwrap();
                }
            });
        }
    });
    assert_eq!(destroyed.load(Ordering::SeqCst), 0);
    release::<Lamp>(lamp).unwrap();
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
}
