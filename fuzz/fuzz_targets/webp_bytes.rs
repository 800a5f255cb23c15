#![no_main]

feedline_fuzz::target!(webp_bytes);
