# Defines the targets ringreel::ringreel (shared) and ringreel::static.
get_filename_component(_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET ringreel::ringreel)
  add_library(ringreel::ringreel SHARED IMPORTED)
  set_target_properties(ringreel::ringreel PROPERTIES
    IMPORTED_LOCATION "${_prefix}/lib/libringreel.so"
    IMPORTED_SONAME "libringreel.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include")
  add_library(ringreel::static STATIC IMPORTED)
  set_target_properties(ringreel::static PROPERTIES
    IMPORTED_LOCATION "${_prefix}/lib/libringreel.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_prefix}/include"
    INTERFACE_LINK_LIBRARIES "gcc_s;pthread;m;dl")
endif()
set(ringreel_FORTRAN_SOURCE "${_prefix}/share/ringreel/ringreel.f90")
unset(_prefix)
