#![no_main]

feedline_fuzz::target!(bmp_bytes);
