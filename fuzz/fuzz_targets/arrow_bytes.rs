#![no_main]

feedline_fuzz::target!(arrow_bytes);
