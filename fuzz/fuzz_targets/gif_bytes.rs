#![no_main]

feedline_fuzz::target!(gif_bytes);
