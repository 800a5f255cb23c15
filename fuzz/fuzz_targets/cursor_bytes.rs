#![no_main]

feedline_fuzz::target!(cursor_bytes);
