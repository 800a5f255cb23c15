#![no_main]

feedline_fuzz::target!(jpeg_bytes);
