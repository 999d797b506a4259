//! A process's use of a board that is reconfigured as a whole.

use super::{Loaded, Round};
use fpga_core::bitstream::Digest;
use serde::{Deserialize, Serialize};

/// A process's use of the board. A process that has the board for itself is never told to leave: its own loads keep its
/// users out.
#[derive(Debug, Default)]
pub struct Presence {
    /// Number of calls, builds and tasks that use the vendor.
    users: usize,
    /// Number of own loads that wait or run.
    loads: usize,
    /// A thread releases or restores the vendor's objects.
    is_working: bool,
    /// The vendor's objects are released.
    is_off: bool,
    kept_out: Option<KeptOut>,
    /// A user wants to come in and found the vendor's objects released.
    is_wanted: bool,
    /// The process was let back and has not said so.
    says_back: bool,
}

/// The process was told to leave.
#[derive(Debug)]
struct KeptOut {
    round: Round,
    has_said_so: bool,
    /// The images whose programs may be made, once the process may return.
    may_return: Option<Vec<Digest>>,
}

/// What the process's own thread should do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Save the contents and release the vendor's objects.
    Release,
    /// Make the vendor's objects again, with programs of these images only.
    Restore(Vec<Digest>),
    /// Say this to the manager.
    Say(Word),
}

/// What the thread of a load should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadWork {
    /// Save the contents and release the vendor's objects.
    Release,
    /// Make the vendor's objects again, with programs of the load's images only: this loads the board.
    Restore,
}

/// What a process tells the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The process has left the board.
    IsOff(Round),
    /// The process has returned.
    IsBack(Loaded),
}

/// A load that waits or runs; nobody uses the vendor meanwhile.
#[derive(Debug)]
pub struct LoadTicket {
    /// The request to leave that the load answers.
    round: Option<Round>,
}

impl Presence {
    /// Admits a user of the vendor. A user that is not admitted is admitted later, when [`Self::is_open`].
    #[must_use]
    pub fn enter(&mut self) -> bool {
        if self.loads > 0 {
            return false;
        }
        if let Some(KeptOut { may_return, .. }) = &self.kept_out {
            self.is_wanted |= may_return.is_some();
            return false;
        }
        self.users += 1;
        true
    }

    /// Another user comes in by one that is in.
    pub fn enter_by_another(&mut self) {
        self.users += 1;
    }

    /// A user leaves.
    pub fn exit(&mut self) {
        self.users -= 1;
    }

    /// Whether it is of use to try to enter.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let may_return = |out: &KeptOut| out.may_return.is_some() && !self.is_wanted;
        self.loads == 0 && self.kept_out.as_ref().is_none_or(may_return)
    }

    /// Whether the vendor's objects are released.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.is_off
    }

    /// The manager wants the process to leave.
    pub fn leave(&mut self, round: Round) {
        self.is_wanted = false;
        self.kept_out = Some(KeptOut { round, has_said_so: false, may_return: None });
    }

    /// The manager lets the process return.
    pub fn may_return(&mut self, images: Vec<Digest>) {
        let Some(out) = &mut self.kept_out else { return };
        out.may_return = Some(images);
        self.says_back = true;
        if !self.is_off && !self.is_working {
            self.kept_out = None;
        }
    }

    /// An own load begins, in place of a request to leave if there is one.
    #[must_use]
    pub fn load_begins(&mut self) -> LoadTicket {
        self.loads += 1;
        LoadTicket { round: self.kept_out.take().map(|out| out.round) }
    }

    /// What the thread of a load should do next; `None` while others use the vendor.
    #[must_use]
    pub fn loads_work(&mut self) -> Option<LoadWork> {
        if self.users > 0 || self.is_working {
            return None;
        }
        self.is_working = true;
        Some(if self.is_off { LoadWork::Restore } else { LoadWork::Release })
    }

    /// An own load ends, or is given up. Returns what to say.
    pub fn load_ends(&mut self, LoadTicket { round }: LoadTicket, loaded: Loaded) -> Option<Word> {
        self.loads -= 1;
        let round = round?;
        if self.is_off {
            // The next user has the objects made again.
            self.kept_out = Some(KeptOut { round, has_said_so: true, may_return: Some(Vec::new()) });
        }
        Some(Word::IsBack(loaded))
    }

    /// What the process's own thread should do next; `None` until something changes.
    #[must_use]
    pub fn work(&mut self) -> Option<Work> {
        if std::mem::take(&mut self.says_back) {
            return Some(Work::Say(Word::IsBack(Loaded::No)));
        }
        if self.is_working || self.loads > 0 {
            return None;
        }
        let out = self.kept_out.as_mut()?;
        if !self.is_off {
            if self.users > 0 {
                return None;
            }
            self.is_working = true;
            return Some(Work::Release);
        }
        if !out.has_said_so {
            out.has_said_so = true;
            return Some(Work::Say(Word::IsOff(out.round)));
        }
        let images = out.may_return.as_ref().filter(|_| self.is_wanted)?.clone();
        self.is_working = true;
        Some(Work::Restore(images))
    }

    /// The vendor's objects are released.
    pub fn released(&mut self) {
        (self.is_working, self.is_off) = (false, true);
    }

    /// The vendor's objects are made again. Users come in unless the process was told to leave meanwhile.
    pub fn restored(&mut self) {
        (self.is_working, self.is_off) = (false, false);
        if self.kept_out.as_ref().is_some_and(|out| out.may_return.is_some()) {
            (self.kept_out, self.is_wanted) = (None, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_wants_nothing_is_not_asked_to_make_its_objects_again() {
        let image = Digest::from_bytes([1; 32]);
        let mut presence = Presence::default();
        presence.leave(Round(1));
        assert_eq!(presence.work(), Some(Work::Release));
        presence.released();
        assert_eq!(presence.work(), Some(Work::Say(Word::IsOff(Round(1)))));
        presence.may_return(vec![image]);
        assert_eq!(presence.work(), Some(Work::Say(Word::IsBack(Loaded::No))));
        assert_eq!(presence.work(), None, "nobody has come");
        assert!(presence.is_open() && !presence.enter() && !presence.is_open());
        assert_eq!(presence.work(), Some(Work::Restore(vec![image])));
        presence.leave(Round(2));
        presence.restored();
        assert!(!presence.enter(), "it has to leave again first");
        assert_eq!(presence.work(), Some(Work::Release));
    }
}
