//! Flow control as requests meet it.
