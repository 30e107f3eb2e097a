! ringreel: generators in Fortran, by iso_c_binding. See ringreel.h for what each call does.
!
! A Fortran array a(i, j, k) is stored with its first index contiguous. In a ring, the last axis is contiguous, so the part
! has the shape [k, j, i]: pass the extents in reverse order, as `ringreel_shape(shape(a))` does.
module ringreel
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int), parameter :: RINGREEL_OK = 0
  integer(c_int), parameter :: RINGREEL_ERROR_ARGUMENT = 1
  integer(c_int), parameter :: RINGREEL_ERROR_CONFIG = 2
  integer(c_int), parameter :: RINGREEL_ERROR_RING = 3
  integer(c_int), parameter :: RINGREEL_ERROR_SAMPLE = 4
  integer(c_int), parameter :: RINGREEL_ERROR_FILESYSTEM = 5
  integer(c_int), parameter :: RINGREEL_ERROR_COORDINATION = 6
  integer(c_int), parameter :: RINGREEL_ERROR_INTERRUPTED = 7
  integer(c_int), parameter :: RINGREEL_ERROR_INTERNAL = 8

  interface
    integer(c_int) function c_open(path, generator) bind(c, name="ringreel_open")
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), intent(out) :: generator
    end function
    integer(c_int) function ringreel_begin(generator) bind(c, name="ringreel_begin")
      import
      type(c_ptr), value :: generator
    end function
    integer(c_int) function c_part(generator, name, dtype, ndim, shape, data) bind(c, name="ringreel_part")
      import
      type(c_ptr), value :: generator
      character(kind=c_char), intent(in) :: name(*), dtype(*)
      integer(c_size_t), value :: ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: data
    end function
    integer(c_int) function c_meta_int(generator, key, value) bind(c, name="ringreel_meta_int")
      import
      type(c_ptr), value :: generator
      character(kind=c_char), intent(in) :: key(*)
      integer(c_int64_t), value :: value
    end function
    integer(c_int) function c_meta_double(generator, key, value) bind(c, name="ringreel_meta_double")
      import
      type(c_ptr), value :: generator
      character(kind=c_char), intent(in) :: key(*)
      real(c_double), value :: value
    end function
    integer(c_int) function c_meta_text(generator, key, value) bind(c, name="ringreel_meta_text")
      import
      type(c_ptr), value :: generator
      character(kind=c_char), intent(in) :: key(*), value(*)
    end function
    integer(c_int) function ringreel_commit(generator) bind(c, name="ringreel_commit")
      import
      type(c_ptr), value :: generator
    end function
    integer(c_int) function ringreel_flush(generator) bind(c, name="ringreel_flush")
      import
      type(c_ptr), value :: generator
    end function
    integer(c_int64_t) function ringreel_finished(generator) bind(c, name="ringreel_finished")
      import
      type(c_ptr), value :: generator
    end function
    subroutine ringreel_stop(generator) bind(c, name="ringreel_stop")
      import
      type(c_ptr), value :: generator
    end subroutine
    integer(c_int) function ringreel_close(generator, promote, finished) bind(c, name="ringreel_close")
      import
      type(c_ptr), value :: generator
      integer(c_int), value :: promote
      integer(c_int64_t), intent(out) :: finished
    end function
    type(c_ptr) function c_message() bind(c, name="ringreel_message")
      import
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Opens the ring that a configuration file describes.
  integer(c_int) function ringreel_open(path, generator)
    character(*), intent(in) :: path
    type(c_ptr), intent(out) :: generator
    ringreel_open = c_open(trim(path)//c_null_char, generator)
  end function

  ! Adds a part. `data` is c_loc(array); `extents` is shape(array).
  integer(c_int) function ringreel_part(generator, name, dtype, extents, data)
    type(c_ptr), intent(in) :: generator, data
    character(*), intent(in) :: name, dtype
    integer, intent(in) :: extents(:)
    ringreel_part = c_part(generator, trim(name)//c_null_char, trim(dtype)//c_null_char, &
                           size(extents, kind=c_size_t), ringreel_shape(extents), data)
  end function

  ! Returns the shape of a Fortran array in row-major order.
  function ringreel_shape(extents) result(reversed)
    integer, intent(in) :: extents(:)
    integer(c_int64_t) :: reversed(size(extents))
    reversed = int(extents(size(extents):1:-1), c_int64_t)
  end function

  integer(c_int) function ringreel_meta_int(generator, key, value)
    type(c_ptr), intent(in) :: generator
    character(*), intent(in) :: key
    integer(c_int64_t), intent(in) :: value
    ringreel_meta_int = c_meta_int(generator, trim(key)//c_null_char, value)
  end function

  integer(c_int) function ringreel_meta_double(generator, key, value)
    type(c_ptr), intent(in) :: generator
    character(*), intent(in) :: key
    real(c_double), intent(in) :: value
    ringreel_meta_double = c_meta_double(generator, trim(key)//c_null_char, value)
  end function

  integer(c_int) function ringreel_meta_text(generator, key, value)
    type(c_ptr), intent(in) :: generator
    character(*), intent(in) :: key, value
    ringreel_meta_text = c_meta_text(generator, trim(key)//c_null_char, trim(value)//c_null_char)
  end function

  ! Returns the message of the last failure.
  function ringreel_message() result(message)
    character(:), allocatable :: message
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: text
    integer :: i
    text = c_message()
    call c_f_pointer(text, bytes, [c_strlen(text)])
    allocate (character(size(bytes)) :: message)
    do i = 1, size(bytes)
      message(i:i) = bytes(i)
    end do
  end function
end module
