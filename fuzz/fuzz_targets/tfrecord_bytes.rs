#![no_main]

feedline_fuzz::target!(tfrecord_bytes);
