#![no_main]

feedline_fuzz::target!(mds_bytes);
