#![no_main]

feedline_fuzz::target!(npy_bytes);
