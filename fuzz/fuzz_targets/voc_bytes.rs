#![no_main]

feedline_fuzz::target!(voc_bytes);
