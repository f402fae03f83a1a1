//! PCIe devices, and the memory that they reach.
//!
//! What an image asks for lies in its own extension note; what the tender attached, in the area
//! that it filled in. BARs are mapped where [`abi::pci::bar_address`] says, or are reached by
//! message (`message`).

mod message;

use crate::boot::{self, DeviceError, boot};
use crate::host::{self, Handle};
use abi::extension::{Descriptor, HEADER_SIZE};
use abi::pci::{BARS, DEVICES_MAX, Dma, Info, Request, bar_address, info_flag};
use abi::vfio_user::doorbell::WORDS;
use alloc::rc::Rc;
use alloc::string::String;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use device::WaitHandle;
use hw::{DmaArena, Mmio};
use message::{Bar, Link};

unsafe extern "C" {
    /// The extension note; the linker script that `image` writes says where.
    #[link_name = "__extension_note"]
    static EXTENSION_NOTE: [u8; 0];
}

/// A PCIe device of the image.
pub struct PciDevice {
    request: Request,
    info: Info,
    number: usize,
    index: u8,
    /// How registers are reached that are not mapped.
    link: Option<Rc<Link>>,
}

impl PciDevice {
    /// What the manifest asks for, which is what the device is.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The registers of this BAR, if the manifest asks for them.
    pub fn bar(&self, bar: usize) -> Option<Mmio> {
        let bytes = *self.info.bar_bytes.get(bar)? as usize;
        if bytes == 0 {
            return None;
        }
        if let Some(link) = &self.link {
            let link = Rc::clone(link);
            let number = bar as u32;
            return Some(Mmio::asked(Rc::new(Bar {
                link,
                number,
                bytes,
            })));
        }
        let address = bar_address(self.number, bar) as usize;
        let start = NonNull::new(core::ptr::with_exposed_provenance_mut(address))?;
        // SAFETY: the tender has mapped so many bytes there, for ever; nothing else is there, and
        // all that a device can do to memory it can do to DMA memory alone.
        Some(unsafe { Mmio::mapped(start, bytes) })
    }

    /// By what [`crate::wait`] tells that the device has interrupted; `None` for one that cannot,
    /// since the manifest does not make it a bus master.
    pub fn wait_handle(&self) -> Option<WaitHandle> {
        let interrupts = self.info.flags & info_flag::INTERRUPT != 0;
        interrupts.then_some(WaitHandle(self.index))
    }
}

/// The PCIe device of this name, once.
///
/// # Errors
/// If the manifest has no such device, it was handed out already, or the tender attaches none.
pub fn pci(name: &str) -> Result<PciDevice, DeviceError> {
    let request = (0..).map_while(request).enumerate();
    let (number, request) = request
        .into_iter()
        .find(|(_, request)| request.name() == Some(name))
        .ok_or(match boot::is_entry(name) {
            true => DeviceError::OtherKind,
            false => DeviceError::NotInManifest,
        })?;
    let info = boot().pci[number];
    if info.flags & info_flag::ATTACHED == 0 {
        return Err(DeviceError::NotAttached);
    }
    let index = boot::entry_count() + number;
    boot::mark_taken(index)?;
    let link = (info.flags & info_flag::MESSAGE != 0).then(|| {
        let page = (info.flags & info_flag::DOORBELLS != 0).then(|| doorbells(number));
        let handle = if host::is_hvt() {
            index as i32
        } else {
            info.handle
        };
        Rc::new(Link::new(Handle(handle), index, page.flatten()))
    });
    Ok(PciDevice {
        request,
        info,
        number,
        index: index as u8,
        link,
    })
}

/// The page of doorbells of PCIe device `number`, which has one.
fn doorbells(number: usize) -> Option<&'static [AtomicU64; WORDS]> {
    let address = core::ptr::with_exposed_provenance_mut(bar_address(number, 0) as usize);
    let page = NonNull::<[AtomicU64; WORDS]>::new(address)?;
    // SAFETY: the tender has mapped a page there, for ever; it is touched as atomics alone.
    Some(unsafe { page.as_ref() })
}

/// The name of the PCIe device with this index.
fn name(index: usize) -> String {
    let number = index.checked_sub(boot::entry_count());
    let request = number.and_then(request);
    let name = request.as_ref().and_then(Request::name);
    name.unwrap_or("of no name").into()
}

/// Ends the guest: the process that was the device with this index has gone.
#[cold]
pub(crate) fn gone(index: usize) -> ! {
    crate::println!(
        "outboard: device {}: the process that it was has ended",
        name(index)
    );
    crate::exit(abi::exit::DEVICE_GONE)
}

/// The DMA memory, once; `None` if the manifest asks for none or it was handed out already.
pub fn dma() -> Option<DmaArena> {
    let Dma {
        address,
        iova,
        bytes,
    } = boot().dma.replace(Dma::ZERO);
    let start = NonNull::new(core::ptr::with_exposed_provenance_mut(address as usize))?;
    // SAFETY: the tender has mapped so many zeroed bytes there, for ever, and devices find them at
    // `iova`. Nobody else is given them: what was told of them has just been taken away.
    Some(unsafe { DmaArena::new(start, bytes as usize, iova) })
}

/// Request `number` of the image, if it has so many.
fn request(number: usize) -> Option<Request> {
    let note = (&raw const EXTENSION_NOTE).cast::<u8>();
    // SAFETY: the descriptor follows the header of the note.
    let descriptor = unsafe { note.add(HEADER_SIZE) }.cast::<Descriptor>();
    // SAFETY: it is there, aligned to 4 bytes at least; volatile, for the linker wrote it.
    let descriptor = unsafe { descriptor.cast::<[u32; 8]>().read_volatile() };
    let descriptor: Descriptor = zerocopy::transmute!(descriptor);
    if number >= (descriptor.pci as usize).min(DEVICES_MAX) {
        return None;
    }
    let offset = HEADER_SIZE + size_of::<Descriptor>() + number * size_of::<Request>();
    // SAFETY: as many requests follow the descriptor as it says.
    let request = unsafe { note.add(offset) }.cast::<Request>();
    // SAFETY: as above; requests need no more than 4 bytes of alignment, which the note has.
    Some(unsafe { request.read_volatile() })
}

const _: () = assert!(align_of::<Request>() == 4 && BARS <= u8::BITS as usize);
