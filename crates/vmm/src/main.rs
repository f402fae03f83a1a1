//! `outboard-vmm`: runs a stock Linux as a guest of KVM's.

#![forbid(unsafe_code)]

fn main() {
    let arguments = std::env::args_os().skip(1);
    std::process::exit(vmm::main(arguments));
}
