//! The router's pure decisions. Nothing here does I/O, reads a clock, draws a random number or logs: time comes in as
//! [`tick::Tick`], everything else as plain views, and each decision is a value. The dataplane and the control plane are
//! thin around it.
//!
//! | module | decides |
//! | --- | --- |
//! | [`option`], [`route`] | what a route document may say, and what it means |
//! | [`session`], [`body`] | which session a request belongs to, and what is changed in its body |
//! | [`reject`] | which requests are refused for what they hold |
//! | [`sse`] | what is changed in answers |
//! | [`admit`] | which backend a request gets, or that it waits, or why it is refused |
//! | [`health`] | when a backend is out and when it is back |
//! | [`flow`] | how much a pool takes while answers are slow, and whom it lets in first |
//! | [`retry`] | which failures may be tried elsewhere |
//! | [`header`] | which headers cross the router |
//! | [`gateway_file`] | what a session gateway's files say |
//! | [`refusal`] | the status of each refusal |
//! | [`payload_count`] | what is counted of all that |
//! | [`toggle`] | what an operator may set at run time |

pub mod admit;
pub mod body;
pub mod flow;
pub mod gateway_file;
pub mod header;
pub mod health;
pub mod ids;
pub mod option;
pub mod payload_count;
pub mod refusal;
pub mod reject;
pub mod retry;
pub mod route;
pub mod session;
pub mod sse;
pub mod tick;
pub mod toggle;
