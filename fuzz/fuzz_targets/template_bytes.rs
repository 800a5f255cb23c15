#![no_main]

feedline_fuzz::target!(template_bytes);
