//! The command, as a user runs it: every kind of damage, crashes at every point, failing devices.

mod crash;
mod devices;
#[expect(dead_code, reason = "shared with other tests")]
mod fuse;
mod in_order;
mod outboards;
mod property;
mod reader;
mod safety;
mod scrub;
mod sets;
mod single;
mod support;
