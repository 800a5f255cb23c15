#![no_main]

feedline_fuzz::target!(tar_bytes);
