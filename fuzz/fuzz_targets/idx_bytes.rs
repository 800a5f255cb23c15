#![no_main]

feedline_fuzz::target!(idx_bytes);
