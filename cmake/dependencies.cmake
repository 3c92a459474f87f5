# What the library links, found on this machine: read by the build and by the installed package, which names no path of its own.
# Targets are global, so that a project that adds this one as a folder can link it.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
if(NOT TARGET PkgConfig::HWY)
  pkg_check_modules(HWY REQUIRED IMPORTED_TARGET GLOBAL libhwy)
endif()
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)

# stepzero_import(NAME LIBRARY HEADER SUFFIX...): the target stepzero::NAME
function(stepzero_import name library header)
  string(TOUPPER ${name} prefix)
  find_library(${prefix}_LIBRARY ${library} REQUIRED PATH_SUFFIXES ${ARGN})
  find_path(${prefix}_INCLUDE ${header} REQUIRED PATH_SUFFIXES ${ARGN})
  mark_as_advanced(${prefix}_LIBRARY ${prefix}_INCLUDE)
  if(NOT TARGET stepzero::${name})
    add_library(stepzero::${name} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(stepzero::${name} PROPERTIES
      IMPORTED_LOCATION ${${prefix}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${prefix}_INCLUDE})
  endif()
endfunction()
# oneDNN's own package file asks for OpenCL, which a product of floats does not need: find the library by name.
stepzero_import(dnnl dnnl oneapi/dnnl/dnnl.h)
# The OpenMP build of OpenBLAS, so that one runtime owns the threads.
stepzero_import(openblas openblas cblas.h openblas-openmp x86_64-linux-gnu/openblas-openmp x86_64-linux-gnu)
