#![no_main]

feedline_fuzz::target!(index_bytes);
