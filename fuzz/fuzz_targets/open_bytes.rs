#![no_main]

feedline_fuzz::target!(open_bytes);
