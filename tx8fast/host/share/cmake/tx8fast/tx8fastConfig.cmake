# find_package(tx8fast): the target tx8fast::host, for C11 and C++17. Everything is found from where this file lies.
get_filename_component(_tx8fast_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET tx8fast::host)
  add_library(tx8fast::host SHARED IMPORTED)
  set_target_properties(tx8fast::host PROPERTIES
    IMPORTED_LOCATION "${_tx8fast_root}/lib/libtx8fast.so"
    IMPORTED_SONAME "libtx8fast.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_tx8fast_root}/include")
endif()
set(tx8fast_INCLUDE_DIR "${_tx8fast_root}/include")
set(tx8fast_LIBRARY "${_tx8fast_root}/lib/libtx8fast.so")
unset(_tx8fast_root)
