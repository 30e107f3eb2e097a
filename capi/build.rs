//! Gives the shared library its soname, which changes with every version that breaks the interface.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libringreel.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
