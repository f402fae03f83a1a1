//! Something that goes back to its pool when it is dropped.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// What knows where it belongs.
pub trait Recycle: Sized + 'static {
    /// Puts the lease back where it came from. Whoever takes it from there makes it a lease again
    /// by [`ManuallyDrop::into_inner`]; one that is never taken again is leaked.
    fn recycle(lease: ManuallyDrop<Lease<Self>>);
}

/// The exclusive use of a `T` that lives for ever; dropping it recycles it. One pointer wide, so
/// that moving a frame is moving a word.
pub struct Lease<T: Recycle>(NonNull<T>);

impl<T: Recycle> Lease<T> {
    /// A lease of `value`, which nobody else has.
    pub fn new(value: &'static mut T) -> Self {
        Self(NonNull::from(value))
    }
}

impl<T: Recycle> Deref for Lease<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it was made of a `&'static mut T`, and there is one lease of it at a time.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Recycle> DerefMut for Lease<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }
}

impl<T: Recycle> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        // This lease ends here, so the copy is the only one.
        T::recycle(ManuallyDrop::new(Self(self.0)));
    }
}
