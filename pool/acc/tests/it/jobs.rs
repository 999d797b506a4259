//! Jobs with a broker that obeys the test: results against references, and what happens when parts go away.

mod fallback;
mod faults;
mod program;
mod results;
