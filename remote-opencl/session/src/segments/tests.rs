use super::*;
use crate::governor::{Governor, Limits};
use crate::locality::Credentials;
use crate::side_socket::SideSocket;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

fn range(segment: u64, offset: u64, length: u64) -> v1::SegmentRange {
    v1::SegmentRange { segment, offset, length }
}

#[test]
fn a_segment_is_zero_shared_and_cannot_change_its_size() {
    let mut segments = Segments::default();
    let file = std::fs::File::from(segments.create(1, 8192, None).unwrap());
    assert_eq!(file.metadata().unwrap().len(), 8192);
    assert_eq!(&segments.copy(&range(1, 0, 8192)).unwrap()[..], &[0; 8192]);
    file.write_all_at(b"abc", 4096).unwrap();
    assert_eq!(&segments.copy(&range(1, 4096, 3)).unwrap()[..], b"abc");
    for size in [0, 4096, 16384] {
        assert!(file.set_len(size).is_err(), "{size}");
    }
}

#[test]
fn a_copy_does_not_change_with_the_segment() {
    let mut segments = Segments::default();
    let mut file = std::fs::File::from(segments.create(1, 4096, None).unwrap());
    file.write_all(b"before").unwrap();
    let copy = segments.copy(&range(1, 0, 6)).unwrap();
    file.write_all_at(b"behind", 0).unwrap();
    assert_eq!(&copy[..], b"before");
}

#[test]
fn ranges_of_no_segment_or_outside_are_refused() {
    let mut segments = Segments::default();
    segments.create(1, 4096, None).unwrap();
    assert_eq!(segments.slice(&range(2, 0, 1)).unwrap_err(), RangeError::Unknown(2));
    assert_eq!(segments.slice(&range(1, 0, 4097)).unwrap_err(), RangeError::Outside);
    assert_eq!(segments.slice(&range(1, 0, 4096)).unwrap().len(), 4096);
    segments.release(1);
    assert_eq!(segments.slice(&range(1, 0, 1)).unwrap_err(), RangeError::Unknown(1));
}

#[test]
fn bytes_are_bounded_and_come_back_when_the_last_user_has_gone() {
    let limits = Limits { lasting: 64 << 20, passing: 64 << 20 };
    let governor = Governor::new(limits, limits);
    let budget = governor.tenant().session().unwrap();
    let others = budget.lasting((64 << 20) - governor.held().lasting - 16384).unwrap();
    let held_before = governor.held().lasting;
    let taken = || governor.held().lasting - held_before;
    let mut segments = Segments::new(budget.clone());
    segments.create(1, 8192, None).unwrap();
    segments.create(2, 8192, None).unwrap();
    assert!(matches!(segments.create(3, 4096, None), Err(CreateError::Limit)));
    assert!(matches!(segments.create(2, 4096, None), Err(CreateError::Id(2))));
    assert!(matches!(segments.create(0, 4096, None), Err(CreateError::Id(0))));
    assert!(matches!(segments.create(3, 5, None), Err(CreateError::Size(_))));
    let used = segments.slice(&range(1, 0, 10)).unwrap();
    segments.release(1);
    assert_eq!(taken(), 16384);
    drop(used);
    assert_eq!(taken(), 8192);
    drop(segments);
    assert_eq!(taken(), 0);
    drop((others, budget));
}

#[test]
fn a_segment_that_was_released_takes_no_pages_though_the_client_keeps_its_descriptor() {
    use std::os::unix::fs::MetadataExt as _;
    const BYTES: u64 = 1 << 20;
    let mut segments = Segments::default();
    let file = std::fs::File::from(segments.create(1, BYTES, None).unwrap());
    file.write_all_at(&[7; 4096], 0).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= BYTES);
    let used = segments.slice(&range(1, 0, 10)).unwrap();
    segments.release(1);
    assert!(file.metadata().unwrap().blocks() * 512 >= BYTES, "a command still uses it");
    drop(used);
    assert_eq!(file.metadata().unwrap().blocks(), 0);
    let mut bytes = [1; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 10], "what the client has mapped stays valid, as zeroes");
}

#[test]
fn a_key_opens_once_and_only_for_the_process_that_has_the_session() {
    let (sender, mut input) = tokio::sync::mpsc::unbounded_channel();
    let sides = SideSocket::default();
    let (right, wrong) = (Key::random().unwrap(), Key::random().unwrap());
    assert!(right != wrong);
    let uid = nix::unistd::getuid().as_raw();
    let pid = nix::unistd::getpid().as_raw();
    let greet = |key: &Key| {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.write_all(key.bytes()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(sides.greet(theirs)).unwrap();
        ours
    };
    let inbox = crate::router::Inbox::new(sender);
    for other in [Credentials::new(uid + 1, pid), Credentials::new(uid, pid + 1)] {
        sides.expect(1, right.clone(), other, inbox.clone());
        assert_eq!(greet(&right).read(&mut [0]).unwrap(), 0, "closed");
    }
    sides.expect(1, right.clone(), Credentials::new(uid, pid), inbox);
    assert_eq!(greet(&wrong).read(&mut [0]).unwrap(), 0, "closed");
    let mut ours = greet(&right);
    let crate::router::Input::FdChannel(side) = input.try_recv().unwrap() else { panic!() };
    side.welcome().unwrap();
    let mut byte = [0];
    ours.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [fpga_protocol::segments::TAKEN]);
    assert_eq!(greet(&right).read(&mut [0]).unwrap(), 0, "used up");
    assert!(input.try_recv().is_err());
}

#[test]
fn a_placed_segment_lies_where_clients_can_map_it_and_no_two_overlap() {
    let mut segments = Segments::default();
    let mut ends = Vec::new();
    for id in 1..=20 {
        let (address, fd) = segments.create_placed(id, 8192, None).unwrap();
        let address = fpga_protocol::segments::check_address(address, 8192).unwrap();
        ends.push((address, address + 8192));
        std::fs::File::from(fd).write_all_at(b"abc", 4096).unwrap();
        let slice = segments.slice(&range(id, 4096, 3)).unwrap();
        assert_eq!((slice.address() as usize, &slice.copy()[..]), (address + 4096, &b"abc"[..]));
    }
    ends.sort_unstable();
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    assert!(segments.create_placed(1, 8192, None).is_err() && segments.create_placed(21, 1, None).is_err());
}
