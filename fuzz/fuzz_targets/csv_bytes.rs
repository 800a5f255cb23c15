#![no_main]

feedline_fuzz::target!(csv_bytes);
