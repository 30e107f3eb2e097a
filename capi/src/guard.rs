//! Between Rust and C: results become codes and messages, panics become an error, pointers become text.

use ringreel::Error;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Code and message of a call that failed. The codes are those of `ringreel.h`.
pub struct Failure {
    code: c_int,
    message: String,
}

const ARGUMENT: c_int = 1;
const INTERNAL: c_int = 8;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

impl Failure {
    /// A caller's mistake.
    pub fn argument(message: &str) -> Failure {
        Failure { code: ARGUMENT, message: message.to_owned() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error {
            Error::Config { .. } => 2,
            Error::Sample(_) => 4,
            Error::Fs { .. } => 5,
            Error::Coordination(_) | Error::CoordinationUnavailable { .. } | Error::CoordinationDenied { .. } => 6,
            Error::Interrupted { .. } => 7,
            _ => 3,
        };
        Failure { code, message: error.to_string() }
    }
}

/// Does `work`, and returns its code. Keeps the message of a failure for [`message`].
pub fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure { code: INTERNAL, message: "a panic in ringreel: this is a defect, please report it".to_owned() })
    });
    let (code, message) = done.map_or_else(|failure| (failure.code, failure.message), |()| (0, String::new()));
    // A message cannot have a zero byte inside; a path could not have one either.
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    MESSAGE.with(|kept| *kept.borrow_mut() = message);
    code
}

/// The message of this thread's last call.
pub fn message() -> *const c_char {
    MESSAGE.with(|kept| kept.borrow().as_ptr())
}

/// The text at a pointer.
///
/// # Safety
/// `text` is null, or a text that ends with a zero byte and does not change while the result is used.
pub unsafe fn text_at<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(&format!("{name} is a null pointer")));
    }
    // SAFETY: it is not null, and the caller promises the rest.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::argument(&format!("{name} is not UTF-8")))
}
