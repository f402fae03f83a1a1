//! `outboard-tender`: starts an image, alone or under `outboard run`.

#![no_main]

tender::entry!(tender::main);
