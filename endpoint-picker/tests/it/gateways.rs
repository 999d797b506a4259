//! The picker's port, asked as gateways ask and as nobody should.

mod calls;
mod hostile;
mod modes;
mod port;
mod protocol;
mod served;
