#![no_main]

feedline_fuzz::target!(spec_layout);
