# The command line, and the experiments it runs: applications of the library.
find_package(CLI11 REQUIRED)

# The source documents' statements as experiments: an application of the library.
file(GLOB CLAIM_SOURCES CONFIGURE_DEPENDS stepzero/claims/*.cpp)
add_library(stepzero_claims STATIC ${CLAIM_SOURCES})
compile_together(claims ${CLAIM_SOURCES})
target_link_libraries(stepzero_claims PUBLIC stepzero_lib fmt::fmt nlohmann_json::nlohmann_json PRIVATE stepzero_options PkgConfig::HWY)
target_precompile_headers(stepzero_claims PRIVATE <algorithm> <cmath> <functional> <map> <string> <vector> <fmt/format.h>)

file(GLOB CLI_SOURCES CONFIGURE_DEPENDS stepzero/cli/*.cpp)
# The heads of the op files go into the program: what `stepzero explain` says is what the code says.
file(GLOB OP_HEADERS CONFIGURE_DEPENDS stepzero/ops/*.hpp)
set(OP_HEADS ${PROJECT_BINARY_DIR}/generated/op_heads.cpp)
add_custom_command(OUTPUT ${OP_HEADS} DEPENDS ${OP_HEADERS} cmake/heads.cmake VERBATIM
  COMMAND ${CMAKE_COMMAND} -DDIR=${PROJECT_SOURCE_DIR}/stepzero/ops -DOUT=${OP_HEADS} -P ${PROJECT_SOURCE_DIR}/cmake/heads.cmake)
add_executable(stepzero ${CLI_SOURCES} ${OP_HEADS})
compile_together(cli ${CLI_SOURCES})
target_link_libraries(stepzero PRIVATE stepzero_claims stepzero_lib stepzero_options CLI11::CLI11)
target_precompile_headers(stepzero PRIVATE <functional> <map> <string> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp> <CLI/CLI.hpp>)
target_compile_options(stepzero PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles in three quarters of the time; what is fast lies in the library
target_compile_definitions(stepzero PRIVATE STEPZERO_VERSION="${PROJECT_VERSION}")
if(STEPZERO_MPI AND NOT STEPZERO_SANITIZE)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    target_compile_definitions(stepzero PRIVATE STEPZERO_MPI OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    target_link_libraries(stepzero PRIVATE MPI::MPI_CXX)
  endif()
endif()
# The manual page and the completions, told by the program about itself.
set(SHELL_FILES ${PROJECT_BINARY_DIR}/share)
add_custom_command(TARGET stepzero POST_BUILD VERBATIM
  COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:stepzero> -DOUT=${SHELL_FILES} -P ${PROJECT_SOURCE_DIR}/cmake/shell.cmake)
