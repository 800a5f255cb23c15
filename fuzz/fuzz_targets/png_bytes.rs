#![no_main]

feedline_fuzz::target!(png_bytes);
