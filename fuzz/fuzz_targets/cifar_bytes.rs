#![no_main]

feedline_fuzz::target!(cifar_bytes);
