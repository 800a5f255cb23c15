#![no_main]

feedline_fuzz::target!(sound_bytes);
