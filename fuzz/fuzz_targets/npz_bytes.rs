#![no_main]

feedline_fuzz::target!(npz_bytes);
