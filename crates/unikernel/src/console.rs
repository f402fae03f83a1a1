//! Text for whoever started the guest.

/// Writes bytes to the console. What it does not take is lost.
pub fn write_console(bytes: &[u8]) {
    ports::console::write(crate::host::host(), bytes);
}

#[doc(hidden)]
pub fn print(arguments: core::fmt::Arguments<'_>) {
    ports::console::print(crate::host::host(), arguments);
}

/// Prints to the console.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::__print(format_args!($($argument)*)) };
}

/// Prints to the console, with a newline.
#[macro_export]
macro_rules! println {
    () => { $crate::__print(format_args!("\n")) };
    ($($argument:tt)*) => { $crate::__print(format_args!("{}\n", format_args!($($argument)*))) };
}
