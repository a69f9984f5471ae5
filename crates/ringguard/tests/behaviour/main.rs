//! The command, as a user runs it: every kind of damage, crashes at every point, failing devices.

mod crash;
mod devices;
mod outboards;
mod property;
mod reader;
mod scrub;
mod sets;
mod single;
mod support;
