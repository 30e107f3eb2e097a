! A generator in Fortran: the same samples as generator.c.
!
!     gfortran PREFIX/share/ringreel/ringreel.f90 generator.f90 -L PREFIX/lib -lringreel -o generator
program generator
  use ringreel
  implicit none
  type(c_ptr) :: ring
  real(c_float), target :: field(8, 8, 8)
  integer(c_int64_t), target :: number
  integer(c_int64_t) :: samples, finished
  integer :: i, j, k
  character(4096) :: config, count

  call get_command_argument(1, config)
  call get_command_argument(2, count)
  read (count, *) samples
  call check(ringreel_open(config, ring))
  do number = 0, samples - 1
    do concurrent(k=1:8, j=1:8, i=1:8)
      field(i, j, k) = real(number + 0.5d0*((i - 1) + 8*(j - 1) + 64*(k - 1)), c_float)
    end do
    call check(ringreel_begin(ring))
    call check(ringreel_part(ring, "number", "int64", [integer ::], c_loc(number)))
    call check(ringreel_part(ring, "field", "float32", shape(field), c_loc(field)))
    call check(ringreel_meta_text(ring, "language", "Fortran"))
    call check(ringreel_meta_int(ring, "seed", number))
    call check(ringreel_commit(ring))
  end do
  call check(ringreel_close(ring, 1_c_int, finished))
  print "(i0)", finished

contains

  subroutine check(code)
    integer(c_int), intent(in) :: code
    if (code /= RINGREEL_OK) then
      print "(a)", ringreel_message()
      error stop 1
    end if
  end subroutine
end program
